"""`jestlab diff`: the differences between two runs."""

import json
import math
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import insert

from jestlab.models.config import TrainConfig
from jestlab.platform.store import tables
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

REFERENCE = plans.run("reference", config={"steps": 10})
UNIFORM = plans.run(
    "uniform", config={"steps": 30, "selection": {"rule": "uniform"}, "same": [1, 2]}, price=None
)
JOINT = plans.run(
    "joint",
    config={"steps": 20, "selection": {"rule": "joint", "chunks": 4}, "same": [1, 2]},
    needs={"selection.reference": REFERENCE.fingerprint},
)


@pytest.fixture
def lab(root):
    lab = stores.empty_lab(root)
    store = Store.open(lab.store_url)
    metrics = {"toy/score": {"goal": "max", "unit": "percent"}, "toy/other": {"unit": "dB"}}
    plans.record(store, plans.plan(REFERENCE, UNIFORM, JOINT, metrics=metrics))
    stores.attempt(store, UNIFORM, scores={"toy/score": 0.5, "toy/other": 0.25})
    stores.attempt(store, JOINT, RunState.FAILED, scores={"toy/score": 0.25})
    recorded: dict[str, Any] = {
        "git_commit": "abc",
        "git_patch": "- a\n+ b\n",
        "environment": '{"XLA_FLAGS": "--x"}',
    }
    recorded["versions"] = '{"python": "3.12.1", "jax": "0.10"}'
    stores.attempt(store, JOINT, number=2, scores={"toy/score": 0.75, "toy/new": math.inf}, **recorded)
    budget = {"run_id": stores.run_id(store, JOINT), "chip": "v5e", "chips": 4, "chip_hours": 0.5}
    with store.writing() as connection:
        connection.execute(insert(tables.BudgetRow).values(**budget, dollars=0.75))
    return lab


def test_differences_as_json(lab, jestlab):
    difference = json.loads(jestlab("diff", "toy/uniform", JOINT.fingerprint[:8], "--json"))
    runs = {run["fingerprint"]: run["state"] for run in difference["runs"]}
    assert runs == {UNIFORM.fingerprint: "COMPLETED", JOINT.fingerprint: "COMPLETED"}
    assert difference["config"] == {
        "steps": [30, 20],
        "selection.rule": ["uniform", "joint"],
        "selection.chunks": [None, 4],
    }
    assert difference["needs"] == {"selection.reference": [None, REFERENCE.fingerprint]}
    assert difference["provenance"].pop("jestlab.patch")[1].startswith("2 lines, ")
    assert difference["provenance"] == {
        "jestlab.commit": [None, "abc"],
        "versions.jax": [None, "0.10"],
        "versions.python": ["3.11.7", "3.12.1"],
        "environment.XLA_FLAGS": [None, "--x"],
    }

    def numbers(first, second, difference):
        return {"first": first, "second": second, "second_minus_first": difference}

    assert difference["scores"] == {
        "toy/other": numbers(0.25, None, None),
        "toy/score": numbers(0.5, 0.75, 0.25),
        "toy/new": numbers(None, "inf", None),  # JSON lacks infinities
    }
    costs = difference["costs"]
    assert costs["total_flops"] == numbers(None, 4e6, None)
    assert costs["actual_hours"] == pytest.approx(numbers(1 / 30, 1 / 15, 1 / 30))
    assert costs["planned_chip_hours"] == numbers(None, 0.5, None)


def test_differences_as_text(lab, jestlab):
    lines = [line.split() for line in jestlab("diff", "joint", "uniform").splitlines()]
    assert ["selection.chunks", "4", "–"] in lines
    assert ["scores", "joint/0", "uniform/0", "Δ"] in lines
    assert lines[-1] == ["Δ:", "uniform/0", "minus", "joint/0"]
    assert ["toy/score", "75.0%", "50.0%", "−25.0", "points"] in lines
    assert ["toy/other", "–", "0.25", "dB", "–"] in lines
    assert ["toy/new", "inf", "–", "–"] in lines
    assert ["actual", "time", "4", "min", "2", "min", "−2", "min", "(−50%)"] in lines
    assert ["total", "FLOPs", "4.00", "MFLOP", "–", "–"] in lines
    assert not any(line[:1] == ["same"] for line in lines)
    assert jestlab("diff", "toy/joint", "toy/joint/0").count("no difference") == 3


def test_missing_fields_have_their_defaults(lab, jestlab):
    """A config stored before a field was added has its default."""
    whole = TrainConfig().model_dump(mode="json")
    runs = [plans.run("bare", "train", {}), plans.run("whole", "train", whole)]
    plans.record(Store.open(lab.store_url), plans.plan(*runs, name="two"))
    assert json.loads(jestlab("diff", "two/bare", "two/whole", "--json"))["config"] == {}
