"""Plans of unions: runs that studies share are planned once."""

import labs_support as labs
import pytest
import yaml

from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning import cost
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec
from jestlab.platform.spec.resources import parse_slice
from jestlab.platform.store.records import RunState

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}
FIRST = {"runs": {"uniform": {}, "reference": {"schedule.examples_seen": 960}, "joint": JOINT}, "seeds": 2}
SECOND = {
    "runs": {"curated": {"schedule.examples_seen": 960}, "baseline": {}, "wide": {"model.vision.width": 128}},
    "seeds": 3,
}
WRITTEN = {"name": "both", "question": "Both?", "studies": {"first": FIRST, "second": SECOND}}


@pytest.fixture
def both():
    return plan(StudySpec.parse(WRITTEN))


def test_equal_runs_are_one_under_the_first_parts_name(both):
    aliases = {(run.label, run.seed): [alias.label for alias in run.aliases] for run in both.runs}
    shared = {"first/uniform": "second/baseline", "first/reference": "second/curated"}
    assert {place: names for place, names in aliases.items() if names} == {
        (label, seed): [other] for label, other in shared.items() for seed in (0, 1)
    }
    assert len(both.runs) == 6 + 9 - 4
    assert both.needed == {"first/reference"}
    seen: set[str] = set()
    for run in both.runs:
        assert set(run.needs.values()) <= seen
        seen.add(run.fingerprint)
        assert run.directory == f"runs/{run.name.split('/')[1]}-{run.fingerprint[:16]}"


def test_each_part_is_planned_as_if_by_itself(both):
    assert both.parts == tuple(plan(study) for study in both.study.studies.values())


def test_states_and_budgets_reach_the_parts(both):
    shared = next(run for run in both.runs if run.label == "first/uniform")
    compared = both.with_states({shared.fingerprint: RunState.COMPLETED})
    sized = cost.on_tpu(compared, parse_slice("v5e-1x1"), Settings())
    for whole in (sized, *sized.parts):
        [run] = [run for run in whole.runs if run.fingerprint == shared.fingerprint]
        assert (run.state, run.budget is not None) == (RunState.COMPLETED, True)


@pytest.fixture
def jestlab(tmp_path):
    """Calls the command line with the spec of the union."""
    spec = tmp_path / "both.yaml"
    spec.write_text(yaml.safe_dump(WRITTEN, sort_keys=False))

    def call(verb, *options):
        done = labs.here(verb, spec, *options)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return call


def test_plan_shows_each_label_under_its_part(jestlab):
    out = jestlab("plan")
    names = [line.split("  ")[0] or line.split()[0] for line in out.splitlines()[3:12]]
    assert names == ["first", "uniform", "reference", "joint", "second", "curated", "baseline", "wide", "all"]


def test_many_labels_are_one_row_per_part_unless_all_are_asked_for(jestlab):
    axis = "studies.second.axes=[{runs: [wide], grid: {schedule.batch_size: %s}}]" % list(range(16, 60))  # noqa: UP031
    out = jestlab("plan", "--set", axis)
    assert [line.split()[0] for line in out.splitlines()[3:6]] == ["first", "second", "all"]
    assert len(jestlab("plan", "--set", axis, "--all").splitlines()) > 130
