"""One way to name a run in all verbs: EXPERIMENT/RUN/SEED, without the parts that are unambiguous."""

import json
import shlex
from contextlib import closing

import plans_support as plans
import pytest
import stores_support as stores

from jestlab.platform.cli import naming
from jestlab.platform.errors import UserError
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

RUNS = [
    plans.run("uniform", seed=0),
    plans.run("uniform", seed=1),
    plans.run("joint", config={"r": 1}, point={"ratio": 0.5}),
    plans.run("joint", config={"r": 2}, point={"filter": "a > 1"}),
    plans.run("joint", config={"r": 3}, point={"path": "a/b"}),
]
ALONE = plans.run("alone", config={"r": 3})
AWKWARD = "toy/joint filter=a > 1/0"


@pytest.fixture
def store(root):
    lab = stores.empty_lab(root)
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(*RUNS))
        plans.record(store, plans.plan(RUNS[0], ALONE, name="second"))
        for run in RUNS:
            stores.attempt(store, run, RunState.FAILED, reason="no")
            stores.folder(lab, run)
        yield store


def test_names_stand_for_runs(store):
    expected = {
        "toy": RUNS,
        "toy/uniform": RUNS[:2],
        "toy/uniform/1": [RUNS[1]],
        "toy/joint": RUNS[2:],
        "toy/joint ratio=0.5": [RUNS[2]],
        "toy/joint ratio=0.5/0": [RUNS[2]],
        AWKWARD: [RUNS[3]],
        "toy/joint path=a/b": [RUNS[4]],
        "toy/joint path=a/b/0": [RUNS[4]],
        "joint path=a/b": [RUNS[4]],
        "joint": RUNS[2:],
        "alone": [ALONE],
        "alone/0": [ALONE],
        "uniform/0": [RUNS[0]],  # in two experiments
        "uniform/1": [RUNS[1]],
        RUNS[3].fingerprint[:8]: [RUNS[3]],
        RUNS[1].fingerprint[:6].upper(): [RUNS[1]],
        RUNS[2].fingerprint: [RUNS[2]],
        f"toy/{RUNS[0].fingerprint[:8]}": [RUNS[0]],
    }
    for name, runs in expected.items():
        fingerprints = {run.fingerprint for run in runs}
        assert {run.fingerprint for run in naming.find_runs(store, name).runs} == fingerprints, name
        if len(runs) == 1:
            assert naming.find_run(store, name).fingerprint == runs[0].fingerprint, name


def test_explains_names_of_no_run_or_several(store):
    for name, message in (
        ("toy", "toy matches 5 runs: choose one: toy/uniform/0, toy/uniform/1, '"),
        ("toy/uniform", "2 runs: choose one: toy/uniform/0, toy/uniform/1"),
        ("toy/uniform/7", "no run 'uniform/7' in toy: did you mean 'uniform/"),
        ("toy/joint", "3 runs: choose one: 'toy/joint ratio=0.5/0', 'toy/joint filter=a > 1/0'"),
        ("toy/unifrom/1", "did you mean 'uniform/1'"),
        ("toi/uniform", "did you mean 'toy'"),
        ("uniform", r"uniform is in 2 experiments: choose one: .*toy/uniform"),
        ("abcdef0123", "no experiment or run 'abcdef0123'"),
        ("abc", "no experiment or run 'abc'"),
    ):
        with pytest.raises(UserError, match=message):
            naming.find_run(store, name)


def test_all_verbs_take_the_name(store, jestlab):
    for verb in ("logs", "status", "diff", "note", "tag", "retract"):
        jestlab(verb, AWKWARD, *{"diff": [AWKWARD], "retract": ["wrong"]}.get(verb, []))
    assert [run["run"] for run in json.loads(jestlab("status", "toy/joint", "--json"))] == ["joint"] * 3
    assert "expected a completed run" in jestlab("weights", "inspect", AWKWARD, code=1)


def test_suggested_names_can_be_pasted(store, jestlab):
    with pytest.raises(UserError) as error:
        naming.find_run(store, "toy/joint")
    suggested = str(error.value).partition("choose one: ")[2]
    names = [shlex.split(part)[0] for part in suggested.split(", ")]
    assert names == ["toy/joint ratio=0.5/0", AWKWARD, "toy/joint path=a/b/0"]
    assert jestlab("logs", names[1]) == "--- attempt 1\njoint filter=a > 1 0\n"
