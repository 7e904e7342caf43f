"""One way to name a run, in all verbs: EXPERIMENT/RUN/SEED, without the parts that are clear."""

from __future__ import annotations

import json
import shlex

import plans_support as plans
import pytest
import stores_support as stores

from jestlab.platform.cli import main, naming
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

SHARED = plans.run("uniform", seed=0)
RUNS = [
    SHARED,
    plans.run("uniform", seed=1),
    plans.run("joint", config={"r": 1}, point={"ratio": 0.5}),
    plans.run("joint", config={"r": 2}, point={"filter": "a > 1"}),
]
AWKWARD = "toy/joint filter=a > 1/0"


@pytest.fixture
def root(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    store = Store.open(lab.store_url)
    store.record(plans.plan(*RUNS))
    store.record(plans.plan(SHARED, plans.run("alone", config={"r": 3}), name="second"))
    for run in RUNS:
        stores.attempt(store, run, RunState.FAILED, reason="no")
        folder = tmp_path / "lab" / run.directory
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text(f"log of {run.label}/{run.seed}\n")
    store.close_whole()
    return tmp_path / "lab"


@pytest.mark.parametrize(
    "name, count",
    [
        ("toy", 4),
        ("toy/uniform", 2),
        ("toy/uniform/1", 1),
        ("toy/joint", 2),
        ("toy/joint ratio=0.5", 1),
        (AWKWARD, 1),
        ("joint", 2),
        ("alone", 1),
        ("alone/0", 1),
        ("uniform/1", 1),
        (RUNS[3].fingerprint[:8], 1),
    ],
)
def test_names(root, name, count):
    found = naming.several(Store.open(Lab.find(root).store_url), name)
    assert len(found.runs) == count


def test_a_run_of_two_experiments_is_clear_and_two_runs_of_one_name_are_not(root):
    store = Store.open(Lab.find(root).store_url)
    assert naming.run(store, "uniform/0").fingerprint == SHARED.fingerprint
    with pytest.raises(UserError, match=r"uniform is in 2 experiments: choose one: .*toy/uniform"):
        naming.several(store, "uniform")
    with pytest.raises(UserError, match="toy has 4 runs: choose one: toy/uniform/0, toy/uniform/1, '"):
        naming.run(store, "toy")


@pytest.mark.parametrize(
    "verb",
    [["logs"], ["status"], ["diff"], ["note"], ["tag"], ["weights", "inspect"], ["retract"]],
    ids=" ".join,
)
def test_all_verbs_take_the_name(root, verb, capsys):
    more = {"diff": [AWKWARD], "retract": ["wrong"]}.get(verb[0], [])
    with pytest.raises(SystemExit) as stopped:
        main([*verb, AWKWARD, *more, "--root", str(root)])
    printed = capsys.readouterr()
    if verb[0] == "weights":  # found, but without weights
        assert "found 0 completed runs" in printed.err
    else:
        assert stopped.value.code == 0, printed.err


def test_what_is_printed_can_be_pasted(root, jestlab):
    with pytest.raises(UserError) as told:
        naming.run(Store.open(Lab.find(root).store_url), "toy/joint")
    said = str(told.value).partition("choose one: ")[2]
    first, second = (shlex.split(part)[0] for part in said.split(", "))
    assert (first, second) == ("toy/joint ratio=0.5/0", AWKWARD)
    assert jestlab("logs", second) == "log of joint filter=a > 1/0\n"


def test_cancel_and_retry_stop_and_try_all_seeds_of_a_run(root, jestlab):
    assert [run["run"] for run in json.loads(jestlab("status", "toy/joint", "--json"))] == ["joint", "joint"]
    stopped = json.loads(jestlab("cancel", "second/alone", "--json"))
    assert [(run["run"], run["seed"]) for run in stopped] == [("alone", 0)]


def test_a_row_to_explain_may_have_its_experiment_before_it(tmp_path, root, jestlab):
    store = Store.open(Lab.find(root).store_url)
    run = plans.run("scored", config={"r": 9})
    store.record(plans.plan(run, name="third"))
    stores.attempt(store, run, scores={"toy/score": 0.5})
    store.close_whole()
    plain = jestlab("table", "third", "--explain", "scored", "toy/score")
    assert jestlab("table", "third", "--explain", "third/scored", "toy/score") == plain
