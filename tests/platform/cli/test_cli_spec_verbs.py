"""`jestlab list`, `show`, and `plan`."""

import json
import re

import plans_support as plans
import pytest
import stores_support as stores
import yaml

from jestlab.platform.cli import studies
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import load
from jestlab.platform.store.annotations import Subject, add_tags
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

GRID = """
question: Which of many?
base: {schedule.batch_size: 32}
runs:
  reference: {}
  joint: {selection: {rule: joint, reference: reference}}
axes:
- runs: [joint]
  grid:
    selection.filtering_ratio: [0.5, 0.6, 0.7, 0.8, 0.9]
    optimizer.learning_rate: [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4, 9e-4, 1e-3]
seeds: 4
"""
DONE = (RunState.RUNNING, RunState.COMPLETED)


@pytest.fixture
def jestlab(checked):
    return checked


@pytest.fixture
def finish(tmp_path):
    """Record quickstart in a store, and change the states of some of its runs."""

    def finish(names):
        store = Store.open(stores.empty_lab(tmp_path / "lab").store_url)
        planned = plan(load("quickstart"))
        plans.record(store, planned)
        for run in planned.runs:
            for state in names.get((run.name, run.seed), ()):
                plans.move(store, run, state)
        add_tags(store, Subject(experiment="quickstart"), ["best", "old"])
        store.close_whole()
        return planned

    return finish


def test_list_shows_studies_with_runs_questions_and_tags(jestlab, finish, monkeypatch):
    monkeypatch.setattr(studies, "study_names", lambda: ["quickstart"])
    header, line = jestlab("list").splitlines()
    assert "tags" not in header and "smoke:15" in line and line.endswith(load("quickstart").question)
    finish({})
    header, line = jestlab("list").splitlines()
    assert "tags" in header and "best, old" in line
    [row] = json.loads(jestlab("list", "--json"))
    assert row["runs"] == {"smoke": 15, "mini": 15, "paper": 5}
    assert (row["studies"], row["tags"]) == ([], ["best", "old"])


def test_show_prints_the_resolved_study_or_the_studies_of_a_union(jestlab, tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)
    out = jestlab("show", "grid.yaml")
    assert out.endswith("204 runs, 2 at a time\n")
    assert "selection.filtering_ratio: [0.5, 0.6, 0.7, 0.8, 0.9]" in out and "seeds: [0, 1, 2, 3]" in out
    union = re.search(r"union of (\d+) studies: (\d+) claims", jestlab("show", "paper"))
    assert union is not None and int(union[1]) == 16 and int(union[2]) > 40


def test_plan_names_values_of_runs_that_an_axis_replaces(jestlab, tmp_path):
    grid = "selection: {rule: joint, reference: reference, filtering_ratio: 0.8, chunks: 4}}"
    (tmp_path / "grid.yaml").write_text(GRID.replace("selection: {rule: joint, reference: reference}}", grid))
    line = "axes.0 replaces selection.filtering_ratio=0.8 of the run joint, which has no effect"
    assert jestlab("plan", "grid.yaml").splitlines()[-1] == line
    assert json.loads(jestlab("plan", "grid.yaml", "--json"))["remarks"] == [line]
    cases = "axes=[{runs: joint, cases: [{}, {selection.filtering_ratio: 0.5}]}]"  # one point keeps it
    assert "replaces" not in jestlab("plan", "grid.yaml", "--set", cases)


def test_plan_says_which_claims_cannot_be_decided(jestlab):
    text = "3 claims cannot be decided with one seed"
    assert text in jestlab("plan", "learnable_batches", "--scale", "paper")
    assert "one seed" not in jestlab("plan", "learnable_batches")


def test_show_yaml_launches_the_same_runs(jestlab, tmp_path):
    out = jestlab("show", "quickstart", "--set", "seeds=[4]", "--yaml")
    (tmp_path / "again.yaml").write_text(out)
    assert plan(load("again.yaml")) == plan(load("quickstart", None, ["seeds=[4]"]))
    assert json.loads(jestlab("show", "again.yaml", "--json")) == yaml.safe_load(out)
    assert "expected only one" in jestlab("show", "quickstart", "--yaml", "--json", code=2)


def test_plan_shows_runs_needs_and_costs_and_writes_nothing(jestlab, tmp_path):
    out = jestlab("plan", "quickstart")
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line and line[0] != " "}
    assert rows["joint"][1:5] == ["3", "3", "run", "reference-cache"]
    assert (rows["uniform"][4], rows["all"][1]) == ("–", "15")
    assert "15 runs: 0 done, 0 to resume, 15 to run." in out
    assert list(tmp_path.iterdir()) == []


def test_plan_is_compared_with_the_store(jestlab, finish, tmp_path):
    stopped = (RunState.RUNNING, RunState.CANCELLED)
    finish({("reference", 0): DONE, ("uniform", 0): DONE, ("uniform", 1): stopped})
    before = (tmp_path / "lab" / "results.db").read_bytes()
    out = jestlab("plan", "quickstart")
    assert "15 runs: 2 done, 1 to resume, 12 to run." in out
    uniform = next(line for line in out.splitlines() if line.startswith("uniform"))
    assert "1 done, 1 resume (CANCELLED), 1 run (PENDING)" in uniform
    totals = json.loads(jestlab("plan", "quickstart", "--json"))["totals"]
    assert [totals[key] for key in ("done", "resume", "run")] == [2, 1, 12]
    assert (tmp_path / "lab" / "results.db").read_bytes() == before


def test_why_names_the_fields_that_differ(jestlab, finish):
    planned = finish({("reference", 0): DONE, ("uniform", 0): DONE, ("joint", 0): DONE})
    joint = next(run for run in planned.runs if (run.name, run.seed) == ("joint", 0))
    changed = ("--set", "runs.joint.selection.filtering_ratio=0.9", "--set", "seeds=1")
    lines = jestlab("plan", "quickstart", *changed, "--why").splitlines()
    assert f"joint/0: new; {joint.directory} differs in selection.filtering_ratio 0.8 → 0.9" in lines
    assert not any(line.startswith("uniform seed") for line in lines)
    data = json.loads(jestlab("plan", "quickstart", *changed, "--why", "--json"))
    [why] = [run["why"] for run in data["runs"] if run["run"] == "joint"]
    assert why["differences"] == {"selection.filtering_ratio": {"before": 0.8, "now": 0.9}}
