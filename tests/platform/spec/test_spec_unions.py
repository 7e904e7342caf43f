"""Unions: specs of several whole studies."""

from typing import Any

import pytest
import yaml

from jestlab.platform.errors import SpecError, UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.spec.expand import expand

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}
SMALL = {
    "question": "Is it small?",
    "runs": {"uniform": {}, "reference": {"schedule.examples_seen": 960}, "joint": JOINT},
    "seeds": 2,
    "reports": ["table"],
    "resources": {"parallel": 3, "threads": 2},
}
LARGE = {
    "base": {"optimizer.beta2": 0.9},
    "runs": {"plain": {}, "wide": {"model.vision.width": 128, "match": {"flops": "plain"}}},
    "axes": {"plain, wide": {"grid": {"schedule.batch_size": [32, 64]}}},
}


def union(studies, **written):
    return StudySpec.parse({"name": "both", "studies": studies, **written})


def described(members: Any, prefix=""):
    """Names of members, of what they need, and of what they match."""
    names = {None: None} | {i: (f"{prefix}{m.variant.label}", m.seed) for i, m in enumerate(members)}
    return [(names[i], [*map(names.get, m.needs.values())], names[m.match]) for i, m in enumerate(members)]


def test_the_members_of_a_union_are_those_of_its_parts_under_their_names():
    both = union({"large": LARGE, "small": SMALL, "again": LARGE})
    found = described(expand(both))
    parts = both.studies.values()
    assert found == [row for part in parts for row in described(expand(part), f"{part.name}/")]
    assert sum(bool(needs) for _, needs, _ in found) == 2
    assert [match for *_, match in found if match][-1] == ("again/plain batch_size=64", 0)


def test_parts_are_whole_studies_at_the_unions_scale():
    both = union(
        {"small": SMALL, "large": {**LARGE, "scale": "mini"}}, scale="smoke", figure={"width": "3in"}
    )
    small, large = both.studies.values()
    assert (small.name, small.scale, small.seeds, len(small.reports)) == ("small", "smoke", (0, 1), 1)
    assert (large.name, large.scale, large.seeds) == ("large", "mini", (0,))
    assert small.figure == both.figure is not None


def test_resources_are_the_unions_own_or_those_of_its_parts():
    other = {**LARGE, "resources": {"parallel": 2}}
    for studies, own, threads in (
        ({"small": SMALL, "large": LARGE}, {}, 2),
        ({"large": LARGE, "small": SMALL}, {}, 2),
        ({"large": LARGE}, {}, 1),
        ({"small": SMALL, "large": other}, {"resources": {"parallel": 7}}, 1),
    ):
        assert union(studies, **own).resources.threads == threads
    with pytest.raises(SpecError, match="resources: missing: the studies request different resources"):
        union({"small": SMALL, "large": other})


def test_a_python_union_takes_what_other_specs_return(tmp_path):
    (tmp_path / "both.py").write_text(
        "from jestlab.experiments import quickstart\n"
        "from jestlab.platform import spec\n"
        'SCALES = ("smoke",)\n'
        "def get_config(scale):\n"
        "    own = spec.study(question='Mine?')\n"
        "    own.runs.uniform = {'schedule.batch_size': 32}\n"
        "    parsed = spec.StudySpec.parse({'name': 'parsed', 'runs': {'a': {}}})\n"
        "    studies = {'quickstart': quickstart.get_config(scale), 'own': own, 'parsed': parsed}\n"
        "    return spec.union(question='Both?', paper='All', studies=studies)\n"
    )
    both = load(str(tmp_path / "both.py"), "smoke")
    assert (both.name, both.question, both.paper, both.scale) == ("both", "Both?", "All", "smoke")
    assert both.studies["quickstart"] == load("quickstart", "smoke")
    assert both.studies["own"].runs["uniform"].overrides == {"schedule": {"batch_size": 32}}
    assert len(plan(both).runs) == len(plan(load("quickstart", "smoke")).runs) + 2


def test_a_list_names_registered_studies_and_files_beside_it(tmp_path, monkeypatch):
    (tmp_path / "specs").mkdir()
    own = {"program": "command", "runs": {"a": {"command": ["true"], "cwd": "here"}}}
    (tmp_path / "specs" / "mine.yaml").write_text(yaml.safe_dump(own))
    (tmp_path / "specs" / "both.yaml").write_text("scale: smoke\nstudies: [quickstart, ./mine.yaml]\n")
    monkeypatch.chdir(tmp_path)
    both = load("specs/both.yaml")
    assert list(both.studies) == ["quickstart", "mine"]
    assert both.studies["quickstart"] == load("quickstart", "smoke")
    assert both.studies["mine"].scale == "smoke"
    assert both.studies["mine"].runs["a"].overrides["cwd"] == str(tmp_path / "specs" / "here")
    (tmp_path / "all.yaml").write_text(both.to_yaml())
    assert load("all.yaml").studies == both.studies
    (tmp_path / "specs" / "inline.yaml").write_text(yaml.safe_dump({"studies": {"mine": own}}))
    assert load("specs/inline.yaml").studies["mine"].runs == both.studies["mine"].runs


def test_a_union_of_names_without_a_scale_has_the_scales_of_its_studies(tmp_path):
    (tmp_path / "both.yaml").write_text("studies: [quickstart, batch_size]\n")
    mini = load(str(tmp_path / "both.yaml"), "mini")
    assert [mini.scale, *(part.scale for part in mini.studies.values())] == ["mini"] * 3
    assert mini.studies["quickstart"] == load("quickstart", "mini")
    with pytest.raises(UserError, match="quickstart has no scale 'huge': valid: smoke, mini, paper"):
        load(str(tmp_path / "both.yaml"), "huge")


ERRORS = """
{studies: {a: {runs: {y: {}}}}, runs: {x: {}}} => runs: not valid in a spec with studies
{studies: 5} => studies: must be a mapping, not 5
{studies: {}} => studies: is empty
{studies: {a: b}} => studies.a: a spec is a mapping
{studies: {a/b: {runs: {y: {}}}}} => studies.a/b: invalid name 'a/b'
{studies: {both: {runs: {y: {}}}}} => studies.both: has the name of the union itself
{studies: {a: {name: b, runs: {y: {}}}}} => studies.a.name: is 'b'
{studies: {a: {studies: {b: {runs: {y: {}}}}}}} => studies.a.studies: is itself a union
{studies: {a: {runs: {u: {}}}}, reports: [table: {baseline: u}]}
=> reports.0.baseline: no run 'u': did you mean 'a/u'
{studies: {a: {runs: {x: {match: {flops: y}}, y: {program: 'json:load'}}}}}
=> studies.a.runs.x.match: the cost of that run is unknown
"""


def test_errors_name_the_part(check_errors):
    def planned(text):
        return plan(StudySpec.parse({"name": "both"} | yaml.safe_load(text)))

    check_errors(ERRORS, planned, prefix="")


LIST_ERRORS = """
studies: [] => 1: studies: is empty: name studies or their files
seeds: 2
studies: [a.yaml,
  batch_sise] => 3: studies.1: no study 'batch_sise': did you mean 'batch_size'?
studies: [./nowhere.yaml] => 1: studies.0: nowhere.yaml: no such file
studies: [a.yaml, b.yml] => 1: studies.1: b.yml: no such file: did you mean 'b.yaml'?
studies: [./u.yaml] => 1: studies.0: ./u.yaml is itself a union
studies: [./a.yaml, ./a.yaml] => 1: studies.1: duplicate study name 'a'
studies: [3] => 1: studies.0: must be a registered name or a path, not 3
studies: [./b.yaml] => 1: studies.b.runs.x.los: unknown key
scale: mini
studies: [./c.yaml] => 2: studies.0: ./c.yaml is at scale smoke
"""


def test_rejects_lists_of_missing_and_unsuitable_studies(check_errors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("runs: {x: {}}")
    (tmp_path / "b.yaml").write_text("runs: {x: {los: 1}}")
    (tmp_path / "c.yaml").write_text("scale: smoke\nruns: {x: {}}")

    def attempt(text):
        (tmp_path / "u.yaml").write_text(text)
        load("u.yaml")

    check_errors(LIST_ERRORS, attempt, prefix="u.yaml:")


OWN = {"program": "command", "base": {"command": ["true"], "depth": {"x": 1}}, "runs": {"a": {}}}
UNION = yaml.safe_dump({"studies": {"small": SMALL, "large": LARGE, "own": OWN}}, sort_keys=False)


def overridden(tmp_path, *overrides):
    (tmp_path / "u.yaml").write_text(UNION)
    return load(str(tmp_path / "u.yaml"), overrides=overrides)


def test_an_override_of_the_union_reaches_every_part_that_has_the_key(tmp_path):
    texts = ("base.optimizer.beta1=0.8", "base.depth.x=2", "seeds=[5]", "resources.parallel=4")
    both = overridden(tmp_path, *texts)
    small, large, own = both.studies.values()
    assert [study.base.get("optimizer", {}).get("beta1") for study in (small, large, own)] == [0.8, 0.8, None]
    assert own.base["depth"] == {"x": 2}
    assert [study.seeds for study in (small, large, own)] == [(5,)] * 3
    assert [study.resources.parallel for study in (both, small, large, own)] == [4] * 4


def test_an_override_can_name_one_part(tmp_path):
    texts = ("studies.small.runs.joint.selection.chunks=4", "studies.large.seeds=2", "name=other")
    both = overridden(tmp_path, *texts)
    small, large, _ = both.studies.values()
    assert small.runs["joint"].overrides["selection"]["chunks"] == 4
    assert (both.name, small.seeds, large.seeds) == ("other", (0, 1), (0, 1))


OVERRIDE_ERRORS = """
base.optimizer.bet=1 => studies.small.base.optimizer.bet: unknown key: did you mean 'beta
base.optimizer.beta1=2
=> studies.small.base.optimizer.beta1: must be less than 1
=> studies.large.base.optimizer.beta1: must be less than 1
seeds=no => studies.small.seeds: must be a number of replicates
studies=1 => studies: incomplete: expected studies.<name>
runs.joint.seed=1 => runs.joint.seed: belongs to a part: write --set studies.<name>.runs
resources.paralel=1 => resources.paralel: unknown key
"""


def test_wrong_overrides_name_the_part(check_errors, tmp_path):
    check_errors(OVERRIDE_ERRORS, lambda text: overridden(tmp_path, text), prefix="--set ")
