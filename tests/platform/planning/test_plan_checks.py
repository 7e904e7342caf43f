"""What is checked before anything runs: that what a spec names is there, and that batches fit the data."""

import json
import shutil
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
import yaml

from jestlab.models.config import ShapesBenchmark, ShapesWeb
from jestlab.models.data import shapes
from jestlab.models.data.tars import TarWriter
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.spec.load import load
from jestlab.platform.spec.schema import StudySpec

JOINT = {"selection": {"rule": "joint", "criterion": "hard_learner", "chunks": 2}}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 100 examples."""
    folder = tmp_path_factory.mktemp("web")
    shapes.make_web(folder, ShapesWeb(examples=100), seed=5)
    return folder


def planned(run: dict[str, Any], train: dict[str, Any] | Path, **data: Any) -> Plan:
    given = {"kind": "folder", "path": str(train)} if isinstance(train, Path) else train
    return plan(StudySpec.parse({"name": "s", "runs": {"joint": {"data": {"train": given, **data}, **run}}}))


def refusal(*arguments: Any, **data: Any) -> str:
    with pytest.raises(UserError) as refused:
        planned(*arguments, **data)
    return str(refused.value)


@pytest.mark.parametrize(
    ("run", "train", "message"),
    [
        (JOINT | {"schedule.batch_size": 64}, None,
         "super-batch of 320 .* {web}, which has 100: lower the batch size or the filtering ratio"),
        (JOINT | {"schedule.super_batch_size": 81_920}, {"examples": 27_588},
         "super-batch of 81,920 .* data.train, which has 27,588: lower the batch size"),
        ({"schedule.batch_size": 128}, None, "batch of 128 .* {web}, which has 100: lower the batch size"),
        (JOINT | {"schedule.batch_size": 64}, {"kind": "folder", "digest": "0" * 64, "examples": 200},
         "super-batch of 320 .* larger than the training set"),
    ],
)  # fmt: skip
def test_a_super_batch_larger_than_the_training_set_is_an_error(web, run, train, message):
    folder = {"kind": "folder", "path": str(web)}
    given = folder if train is None else folder | train if "kind" in train else train
    with pytest.raises(UserError, match=r"^runs.joint: .*" + message.format(web=web)):
        planned(run, given)


def test_a_super_batch_that_fits_or_is_not_checked_is_planned(web):
    large = JOINT | {"schedule.batch_size": 64}
    assert planned(JOINT | {"schedule.batch_size": 20}, web).runs
    assert planned(large, {"kind": "folder", "path": str(web), "digest": "0" * 64}).runs  # not read
    written = {"name": "s", "runs": {"a": {"schedule.batch_size": 32_768}}}
    assert plan(StudySpec.parse(written), placement="none").runs  # only priced


def test_a_filter_counts_where_metadata_are_in_parquets(web, tmp_path):
    fits = JOINT | {"schedule.batch_size": 18}  # of the 100, and not of what the filter leaves
    message = refusal(fits, web, filter="similarity > 0.25")
    assert "the super-batch of 90 examples is larger than the part of" in message
    assert message.startswith("runs.joint: ")
    nothing = refusal(fits, web, filter="similarity > 7")
    assert nothing == f"runs.joint: filter 'similarity > 7': none of the 100 examples of {web} satisfies it"
    shutil.copytree(web, tmp_path / "bare")
    for parquet in (tmp_path / "bare").glob("*.parquet"):
        parquet.unlink()  # metadata are in the tars then, and filtering them takes long
    assert planned(fits, tmp_path / "bare", filter="similarity > 0.25").runs


def test_a_plan_says_what_of_its_data_is_left_out(web, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert planned({"schedule.batch_size": 8}, web).left_out == {web: ""}
    shutil.copytree(web, tmp_path / "worn")
    with TarWriter(tmp_path / "worn" / "1.tar") as tar:
        for name in ("a.jpg", "b.v1.jpg", "b.v1.txt", "c.npy"):
            tar.add(name, b"x")
    spec = {"name": "s", "runs": {"a": {"schedule.batch_size": 8}}}
    spec["base"] = {"data.train": {"kind": "folder", "path": "worn"}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(spec))
    [line] = json.loads(labs.here("plan", "s.yaml", "--json").stdout)["left_out"].values()
    assert "1 × no caption" in line and "1 × dot in the name" in line and "1 × other file" in line
    assert f"{tmp_path / 'worn'}: left out: {line}" in labs.here("plan", "s.yaml").stdout


def test_a_diagnosis_fits_its_data_too(web):
    diagnosis = {"program": "diagnose", "learner": "learner", "criterion": "hard_learner", "chunks": [2]}
    runs = {"learner": {"schedule.batch_size": 20}, "it": diagnosis | {"joint_chunks": 2, "matrix_size": 8}}
    base = {"data.train": {"kind": "folder", "path": str(web)}}
    with pytest.raises(UserError, match=r"runs.it: the super-batch of 1,280 .* has 100: lower the batch"):
        plan(StudySpec.parse({"name": "s", "base": base, "runs": runs}))


def test_columns_to_count_by_exist(web):
    unused = {"schedule.batch_size": 10, "runtime.diagnostics.columns": ["similarty"]}
    assert planned(unused, web).runs
    for train in (web, {"examples": 100}):
        message = refusal(unused | {"runtime.diagnostics.every_steps": 5}, train)
        assert "runtime.diagnostics.columns: " in message
        assert "has no metadata column 'similarty': did you mean 'similarity'?" in message
    runs = {"a": {}, "d": {"program": "diagnose", "learner": "a", "reference": "a", "columns": ["nois"]}}
    with pytest.raises(UserError, match=r"runs.d: columns: the synthetic web has no metadata column 'nois'"):
        plan(StudySpec.parse({"name": "s", "runs": runs}))


def test_a_benchmark_is_one(web, tmp_path):
    shapes.make_benchmark(
        tmp_path / "good", ShapesBenchmark(classification_examples=20, retrieval_examples=8)
    )
    small = {"schedule.batch_size": 10}
    assert planned(small, web, benchmark={"kind": "folder", "path": str(tmp_path / "good")}).runs
    message = refusal(small, web, benchmark={"kind": "folder", "path": str(web)})
    assert message.startswith(f"runs.joint: {web}: holds no dataset, which is a folder with test/0.tar")


def study(folder: Path, command: Any, **parts: Any) -> Path:
    path = folder / "own.yaml"
    written = {"program": "command", "base": {"command": command, "lr": 0.1}, "runs": {"a": {}}}
    path.write_text(yaml.safe_dump(written | parts))
    return path


def test_a_missing_script_is_an_error_of_plan_and_launch(root, tmp_path):
    (tmp_path / "train.py").touch()
    missing = f"runs.a: command: no such file {tmp_path / 'trian.py'}: did you mean 'train.py'?"
    for verb in ("plan", "launch"):
        done = labs.here(verb, study(tmp_path, ["python", "trian.py"]), root=root)
        assert done.returncode == 1 and missing in done.stderr
    assert not root.exists()
    assert labs.here("plan", study(tmp_path, "python train.py --lr {lr}"), root=root).returncode == 0


def test_scripts_of_pods_are_in_their_image(tmp_path, monkeypatch):
    spec = study(tmp_path, ["python", "/app/train.py"])
    with pytest.raises(UserError, match=r"no such file /app/train\.py"):
        plan(load(str(spec)))
    assert plan(load(str(spec)), placement="remote").runs
    pods = study(tmp_path, ["python", "/app/train.py"], resources={"tpu": "v5e-1x1", "on": "kubernetes"})
    assert labs.here("plan", pods, root=tmp_path / "lab").returncode == 0


# ---- missing data

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
    absent = {"siglip.npz": "checkpoint", "spiece.model": "tokenizer"}
    absent |= {"webli": "folder", "benchmark": "folder"}
    assert planned.absent == {here / name: type_ for name, type_ in absent.items()}
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
