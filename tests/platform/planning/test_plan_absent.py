"""Plans of studies whose data and weights are missing on this machine."""

import json

import labs_support as labs
import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load

SPEC = """
question: What would it cost?
base:
  data:
    train: {kind: folder, path: webli}
    benchmark: {kind: folder, path: benchmark}
    filter: similarity > 0.3
runs:
  siglip: {program: weights, path: siglip.npz, tokenizer: spiece.model}
  cache: {program: embed, reference: siglip}
  joint: {selection: {rule: joint, reference: cache}}
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JESTLAB_ROOT", raising=False)
    monkeypatch.delenv("JESTLAB_STORE", raising=False)
    (tmp_path / "s.yaml").write_text(SPEC)
    return tmp_path / "s.yaml"


def test_a_launch_refuses_the_missing_data_that_a_plan_notes(spec):
    with pytest.raises(UserError, match=r"siglip.npz: no such file or folder"):
        plan(load(str(spec)))
    planned = plan(load(str(spec)), note_absent=True)
    here = spec.parent
    assert planned.absent == {
        here / "siglip.npz": "checkpoint",
        here / "spiece.model": "tokenizer",
        here / "webli": "folder",
        here / "benchmark": "folder",
    }
    joint = planned.runs[-1]
    assert joint.price is not None and joint.price.total > 0
    assert joint.config["data"]["train"]["digest"] is None


def test_missing_data_is_identified_by_its_path(spec):
    first = plan(load(str(spec)), note_absent=True).fingerprints
    assert plan(load(str(spec)), note_absent=True).fingerprints == first
    spec.write_text(SPEC.replace("path: webli", "path: laion"))
    other = plan(load(str(spec)), note_absent=True).fingerprints
    assert [one == two for one, two in zip(first, other, strict=True)] == [True, False, False]
    spec.write_text("runs: {a: {}}")  # no data is missing
    study = load(str(spec))
    assert plan(study, note_absent=True) == plan(study)
    assert plan(study).absent == {}


def test_the_verbs_list_missing_data_in_one_line(spec):
    listed = (
        "not found: siglip.npz, spiece.model, webli/, benchmark/ (1 checkpoint, 1 tokenizer, 2 folders): "
        "until they exist, runs are identified by these paths and can't be launched"
    )
    for verb in ("plan", "show", "costs"):
        done = labs.here(verb, "s.yaml")
        assert (done.returncode, done.stderr) == (0, "")
        assert listed in done.stdout.splitlines(), verb
    absent = json.loads(labs.here("plan", "s.yaml", "--json").stdout)["absent"]
    assert len(absent) == 4 and absent[0] == str(spec.parent / "siglip.npz")
