"""`jestlab list`, `show` and `plan`, as they are typed."""

import json
import os
import re
import subprocess
import sys

import plans_support as plans
import pytest
import yaml

from jestlab.platform.cli import main
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import load
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
    schedule.examples_seen: [320, 640, 960, 1280, 1600, 1920, 2240, 2560, 2880, 3200]
seeds: 4
"""


@pytest.fixture
def jestlab(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JESTLAB_ROOT", raising=False)
    monkeypatch.delenv("JESTLAB_STORE", raising=False)

    def call(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def finish(root, names):
    """Enter quickstart in a store, with some of its runs in other states."""
    store = Store.open(f"sqlite:///{root}/results.db")
    planned = plan(load("quickstart"))
    store.record(planned)
    for run in planned.runs:
        for state in names.get((run.name, run.seed), ()):
            plans.move(store, run, state)
    store.close()
    return planned


DONE = (RunState.RUNNING, RunState.COMPLETED)


def test_list_names_every_study_with_its_question_and_runs(jestlab):
    code, out, err = jestlab("list")
    assert (code, err) == (0, "")
    (line,) = [line for line in out.splitlines() if line.startswith("quickstart ")]
    assert "smoke:15" in line
    assert line.endswith(load("quickstart").question)
    data = json.loads(jestlab("list", "--json")[1])
    assert {
        "name": "quickstart",
        "question": load("quickstart").question,
        "paper": None,
        "runs": {"smoke": 15, "mini": 15, "paper": 5},
        "studies": [],
        "tags": [],
    } in data


def test_show_says_what_a_study_is(jestlab, tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)
    code, out, _ = jestlab("show", "grid.yaml")
    assert code == 0
    for part in (
        "Which of many?",
        'joint      selection.rule="joint"  selection.reference="reference"',
        "joint: grid, 500 points",
        "    selection.filtering_ratio: 0.5, 0.6, 0.7, 0.8, 0.9",
        "seeds  0, 1, 2, 3",
        "2004 runs, 2 at a time",
    ):
        assert part in out
    assert "reports  table (baseline uniform), curves, pareto" in jestlab("show", "quickstart")[1]


def test_show_says_what_is_claimed_and_what_decides_it(jestlab):
    out = jestlab("show", "learnable_batches")[1]
    claim = "  Joint example selection yields more learnable batches than independent selection (Fig. 2)\n"
    assert claim + "    diagnosis (learnability/joint) above diagnosis (learnability/independent)\n" in out
    union = re.search(r"union of (\d+) studies, (\d+) claims", jestlab("show", "paper")[1])
    assert union is not None
    assert int(union[1]) == 16
    assert int(union[2]) > 40


def test_plan_says_when_one_seed_is_too_few_for_claims(jestlab):
    text = "3 claims cannot be decided with one seed: --set seeds=3 gives intervals and verdicts."
    assert text in jestlab("plan", "learnable_batches", "--scale", "paper")[1]
    assert "one seed" not in jestlab("plan", "learnable_batches")[1]
    assert "claims cannot be decided with one seed" in jestlab("plan", "paper", "--scale", "paper")[1]


def test_show_yaml_launches_the_same_runs(jestlab, tmp_path):
    out = jestlab("show", "quickstart", "--set", "seeds=[4]", "--yaml")[1]
    (tmp_path / "again.yaml").write_text(out)
    assert plan(load(str(tmp_path / "again.yaml"))) == plan(load("quickstart", None, ["seeds=[4]"]))
    assert json.loads(jestlab("show", "again.yaml", "--json")[1]) == yaml.safe_load(out)
    assert jestlab("show", "quickstart", "--yaml", "--json")[0] == 2


def test_plan_shows_runs_needs_and_costs_and_writes_nothing(jestlab, tmp_path):
    code, out, err = jestlab("plan", "quickstart")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line and line[0] != " "}
    assert rows["joint"][1:5] == ["3", "3", "run", "reference-cache"]
    assert rows["uniform"][4] == "–"
    assert rows["all"][1] == "15"
    assert "15 runs: 0 done, 0 to resume, 15 to run." in out
    assert list(tmp_path.iterdir()) == []


def test_plan_is_compared_with_the_store(jestlab, tmp_path):
    finish(
        tmp_path / "lab",
        {
            ("reference", 0): DONE,
            ("uniform", 0): DONE,
            ("uniform", 1): (RunState.RUNNING, RunState.CANCELLED),
        },
    )
    before = (tmp_path / "lab" / "results.db").read_bytes()
    out = jestlab("plan", "quickstart")[1]
    assert "15 runs: 2 done, 1 to resume, 12 to run." in out
    uniform = next(line for line in out.splitlines() if line.startswith("uniform"))
    assert "1 done, 1 resume (CANCELLED), 1 run (PENDING)" in uniform
    data = json.loads(jestlab("plan", "quickstart", "--json")[1])
    assert {key: data["totals"][key] for key in ("done", "resume", "run")} == {
        "done": 2,
        "resume": 1,
        "run": 12,
    }
    assert (tmp_path / "lab" / "results.db").read_bytes() == before


def test_why_names_the_fields_that_differ(jestlab, tmp_path):
    planned = finish(tmp_path / "lab", {("reference", 0): DONE, ("uniform", 0): DONE, ("joint", 0): DONE})
    joint = next(run for run in planned.runs if (run.name, run.seed) == ("joint", 0))
    arguments = (
        "plan",
        "quickstart",
        "--set",
        "runs.joint.selection.filtering_ratio=0.9",
        "--set",
        "seeds=1",
        "--why",
    )
    lines = jestlab(*arguments)[1].splitlines()
    assert f"joint/0: new; {joint.directory} differs in selection.filtering_ratio 0.8 → 0.9" in lines
    assert not any(line.startswith("uniform seed") for line in lines)
    data = json.loads(jestlab(*arguments, "--json")[1])
    (why,) = [run["why"] for run in data["runs"] if run["run"] == "joint"]
    assert why["differences"] == {"selection.filtering_ratio": {"before": 0.8, "now": 0.9}}


def test_a_changed_reference_shows_in_the_runs_that_need_it(jestlab, tmp_path):
    every = {(name, 0): DONE for name in ("reference", "uniform", "independent", "joint")}
    finish(tmp_path / "lab", every)
    out = jestlab(
        "plan", "quickstart", "--set", "seeds=1", "--set", "runs.reference.data.filter=null", "--why"
    )[1]
    assert "differs in selection.reference" in next(
        line for line in out.splitlines() if line.startswith("joint/0")
    )


def test_many_points_are_one_row_unless_all_are_asked_for(jestlab, tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)
    out = jestlab("plan", "grid.yaml")[1]
    assert "joint × 500 points" in out
    assert len(out.splitlines()) < 12
    assert "2004 runs: 0 done, 0 to resume, 2004 to run." in out
    everything = jestlab("plan", "grid.yaml", "--all")[1]
    assert len(everything.splitlines()) > 2004
    assert len(json.loads(jestlab("plan", "grid.yaml", "--json")[1])["runs"]) == 2004


def test_points_that_are_one_run_are_told(jestlab):
    axes = "axes=[{runs: [uniform], grid: {selection.chunks: [2, 4, 8, 16]}}]"
    out = jestlab("plan", "quickstart", "--set", axes, "--set", "seeds=1")[1]
    assert "uniform chunks=2 (also uniform chunks=4, uniform chunks=8 and 1 more)" in out
    assert "3 more points of the study share them." in out


def test_a_program_without_prices_is_no_obstacle(jestlab, tmp_path):
    (tmp_path / "own.yaml").write_text("program: json:dumps\nruns: {a: {x: 1}}\n")
    out = jestlab("plan", "own.yaml")[1]
    assert next(line for line in out.splitlines() if line.startswith("RUN")).split() == [
        *("RUN", "RUNS", "TO", "DO", "NEEDS")
    ]
    assert "The cost of 1 run in FLOPs is unknown." in out


@pytest.mark.parametrize("verb", ["show", "plan"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quikstart"], "no study 'quikstart': did you mean 'quickstart'?"),
        (["quickstart", "--scale", "smok"], "quickstart has no scale 'smok': did you mean 'smoke'?"),
        (["quickstart", "--set", "runs.joint.selection.rul=x"], "unknown key: did you mean 'rule'?"),
        (["missing.yaml"], "missing.yaml: no such file"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(jestlab, tmp_path, verb, arguments, message):
    code, out, err = jestlab(verb, *arguments)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["list", "show", "plan"])
def test_help_has_an_example(jestlab, verb):
    code, out, _ = jestlab(verb, "--help")
    assert code == 0
    assert f"jestlab {verb}" in out.split("Examples:")[1]


HEAVY = {"jax", "flax", "pandas", "matplotlib", "alembic", "xmanager", "grain", "sqlalchemy", "numpy", "rich"}


@pytest.mark.parametrize("verb", [["plan", "quickstart"], ["show", "quickstart"], ["list"]])
def test_nothing_heavy_is_imported_without_a_store(tmp_path, verb):
    code = (
        "import sys, json; from jestlab.platform.cli import cli; "
        f"cli.main({verb!r}, standalone_mode=False); "
        "print(json.dumps([m for m in sys.modules if '.' not in m]))"
    )
    environment = {**os.environ, "JESTLAB_ROOT": str(tmp_path)}
    command = [sys.executable, "-c", code]
    # Elsewhere than here, where data may lie that plans would count.
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert HEAVY & set(json.loads(done.stdout.splitlines()[-1])) == set()
