"""Where the machines' time went, in `jestlab status` and `jestlab costs --goodput`."""

from __future__ import annotations

import json
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores

from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

# Of two minutes; it trained until step 100, and saved step 60.
MEASURED: dict[str, Any] = {
    "startup_seconds": 12.0, "compilation_seconds": 24.0, "training_seconds": 60.0,
    "evaluation_seconds": 12.0, "checkpoint_seconds": 6.0, "winddown_seconds": 6.0,
    "resumed_step": 0, "reached_step": 100, "saved_step": 60, "saved_seconds": 48.0,
}  # fmt: skip
SPEC = "name: toy\nprogram: command\nbase: {command: [sleep, '1']}\nruns: {uniform: {}}\n"


@pytest.fixture
def spec(root, tmp_path):
    """A study whose only run was preempted once, and went on from its checkpoint."""
    store = Store.open(Lab.find(root).store_url)
    run = plans.run("uniform")
    store.record(plans.plan(run))
    stores.attempt(store, run, RunState.PREEMPTED, **MEASURED)
    stores.attempt(store, run, number=2, **MEASURED | {"resumed_step": 60})
    store.close()
    path = tmp_path / "toy.yaml"
    path.write_text(SPEC)
    return str(path)


LINE = "goodput 50%: compilation 20%, start-up 10%, preempted work 10%, checkpoints 5%, wind-down 5%"


def test_status_says_it_in_a_line(jestlab, spec):
    assert LINE in jestlab("status", "toy").splitlines()
    [run] = json.loads(jestlab("status", "toy", "--json"))
    assert run["goodput"]["goodput"] == 0.5
    assert sum(run["goodput"]["chip_seconds"].values()) == run["goodput"]["held_chip_seconds"] == 240


def test_costs_says_it_by_run(jestlab, spec, monkeypatch):
    headers, row, whole, _, line, *_ = jestlab("costs", spec, "--goodput").splitlines()
    assert headers.split()[:4] == ["RUN", "SEED", "HELD", "GOODPUT"]
    assert row.split()[:6] == ["uniform", "0", "4.0", "min", "50%", "42%"]
    assert (whole.split()[0], line) == ("all", LINE)
    monkeypatch.setenv("COLUMNS", "80")
    out = jestlab("costs", spec, "--goodput")
    assert max(map(len, out.splitlines())) <= 80 and "50%" in out and "not shown" in out


def test_costs_gives_programs_all_of_it(jestlab, spec):
    found = json.loads(jestlab("costs", spec, "--goodput", "--json"))
    assert found["all"]["chip_seconds"]["preempted"] == found["runs"][0]["chip_seconds"]["preempted"] == 24
    assert (found["all"]["attempts"], found["all"]["unknown_attempts"]) == (2, 0)


def test_what_has_not_begun_has_no_goodput(jestlab, root, tmp_path):
    store = Store.open(Lab.find(root).store_url)
    store.record(plans.plan(plans.run("uniform")))
    store.close()
    (tmp_path / "toy.yaml").write_text(SPEC)
    spec = tmp_path / "toy.yaml"
    assert jestlab("costs", spec, "--goodput") == "no run of toy has begun yet\n"
    assert "goodput" not in jestlab("status", "toy")
    jestlab("costs", spec, "--goodput", "--plot", "figures", code=2)
