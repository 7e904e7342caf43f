"""Costs in plans, in refusals of launches, in the status of experiments, and in `jestlab costs`."""

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores

from jestlab.platform.planning.plan import RunBudget, plan
from jestlab.platform.spec.load import load
from jestlab.platform.store import provenance
from jestlab.platform.store.records import RunState

PAPER = """
base:
  model: {variant: B/16}
  schedule: {batch_size: 32768, examples_seen: 3000000000}
  data.train.examples: 1000000000
runs:
  reference: {}
  joint: {selection: {rule: joint, reference: reference, filtering_ratio: 0.8}}
resources: {tpu: v5e-16x16}
"""
LEDGER = """
base:
  model: {variant: B/16}
  schedule: {super_batch_size: 163840, examples_seen: 3000000000}
  data.train.examples: 1000000000
runs:
  reference: {schedule: {batch_size: 32768, super_batch_size: null}}
  uniform: {schedule: {batch_size: 32768, super_batch_size: null}, initialization: 1}
  jest: {selection: {rule: joint, reference: reference}}
  cached: {selection: {rule: joint, reference: cache}}
  flexi: {selection: {rule: joint, reference: cache}, approximation: {score: true, share: 0.5}}
  cache: {program: embed, reference: reference, data.train.examples: 1000000}
  own: {program: "json:dumps"}
seeds: 2
"""


@pytest.fixture
def jestlab(checked: Callable[..., str], tmp_path: Path) -> Callable[..., str]:
    """Call a command in a folder with the specs."""
    for name, spec in {"paper": PAPER, "ledger": LEDGER}.items():
        (tmp_path / f"{name}.yaml").write_text(spec)
    return checked


def lines_of(out: str) -> list[str]:
    """Return the lines of a text without the alignment of columns."""
    return [" ".join(line.split()) for line in out.splitlines()]


def test_a_plan_for_a_slice_shows_chip_hours_prices_and_the_assumptions(jestlab, store, tmp_path):
    planned = plan(load("paper.yaml"))
    plans.record(store, planned)
    plans.begun(store, planned.runs[0]).complete()
    out = jestlab("plan", "paper.yaml")
    assert lines_of(out)[2].endswith("total by paper chips chip-hours") and "$" not in out
    assert "To do: 7,960 chip-hours on v5e-16x16, the longest run 31 h. Done: 1,840 chip-hours." in out
    assert "assuming 40% of a v5e's 197 TFLOP/s." in out
    settings = tmp_path / "settings" / "jestlab" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("prices: {v5e: 1.20}\nutilization: {v5e: 0.5}\n")
    out = jestlab("plan", "paper.yaml", "--all")
    assert any(line.startswith("joint") and line.endswith(" 6,370 $7,650") for line in lines_of(out))
    assert "assuming 50% of a v5e's 197 TFLOP/s and $1.20 per chip-hour." in out
    data = json.loads(jestlab("plan", "paper.yaml", "--json"))
    [joint] = [run["budget"] for run in data["runs"] if run["run"] == "joint"]
    assert (joint["chip"], joint["chips"]) == ("v5e", 256)
    assert data["totals"]["budget_to_do"]["dollars"] == pytest.approx(joint["dollars"])


def test_a_plan_for_this_machine_has_hours_once_runs_have_completed_here(jestlab, store):
    assert "time" not in jestlab("plan", "quickstart").splitlines()[2].split()
    assert json.loads(jestlab("plan", "quickstart", "--json"))["runs"][0]["budget"] is None
    planned = plan(load("quickstart"))
    plans.record(store, planned)
    ended = stores.START + timedelta(hours=2)
    stores.attempt(store, planned.runs[0], ended_at=ended, host="elsewhere", device=provenance.device())
    out = jestlab("plan", "quickstart")
    hours = {line.split()[0]: line.split()[-2:] for line in out.splitlines()[2:] if line}
    assert (hours["run"][1], hours["reference"]) == ("time", ["6", "h"])  # three runs of two hours
    assert hours["uniform"] == ["3", "h"]  # half as many examples
    assert "on this machine with 2 at a time, estimated from 1 earlier run." in out
    # (4 + 3 + 8.0 + 8.1) / 2, rounded; runs that train nothing say nothing
    assert "To do: about 12 h, and 3 of unknown length" in out


def test_a_launch_above_the_limit_writes_nothing(jestlab, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    refused = jestlab("launch", "paper.yaml", "--on", "vertex", "--max-chip-hours", "9000", code=1)
    assert "9,800 chip-hours, more than --max-chip-hours 9000" in refused
    assert sorted(tmp_path.rglob("*")) == before


def test_status_shows_the_drift_and_watch_the_spent_part_of_the_plan(jestlab, store):
    """The completed run took 3 hours on 4 chips of 8 planned chip-hours; the other is within its plan."""
    done, runs, waits = (
        replace(plans.run(name, seed=seed), budget=RunBudget("v5e", 4, 8.0, 16.0))
        for seed, name in enumerate(("done", "runs", "waits"))
    )
    plans.record(store, plans.plan(done, runs, waits))
    one, two = (stores.START + timedelta(hours=hours) for hours in (1, 2))
    stores.attempt(store, done, RunState.PREEMPTED, chips=4, ended_at=one)
    stores.attempt(store, done, number=2, chips=4, ended_at=two, scores={"toy/score": 0.5})
    stores.attempt(store, runs, RunState.RUNNING, chips=4, heartbeat_at=one)

    lines = lines_of(jestlab("status", "toy"))
    assert lines[0].endswith("FLOPs planned drift chip-hours planned drift $ planned drift")
    assert (
        lines[1] == "done 0 COMPLETED 2 1.00 GFLOP 4.00 MFLOP × 250.00 12.0 8.00 × 1.50 $24.00 $16.00 × 1.50"
    )
    assert lines[2] == "runs 1 RUNNING 1 4.00 MFLOP 4.00 8.00 $8.00 $16.00"
    assert any(line.startswith("1 run RUNNING: no heartbeat") for line in lines)
    assert (
        "1 run completed, actual of planned cost: 1.00 GFLOP of 4.00 MFLOP (× 250.00), "
        "12.0 of 8.00 chip-hours (× 1.50), $24.00 of $16.00 (× 1.50)" in lines
    )
    cost = json.loads(jestlab("status", "toy", "--json"))[0]["cost"]
    assert (cost["actual_chip_hours"], cost["planned_chip_hours"]) == (12.0, 8.0)
    spent = "1.00 GFLOP of 12.0 MFLOP, 8333%; 16.0 of 24.0 chip-hours, 67%; $32.00 of $48.00, 67%"
    assert jestlab("watch", "toy", "--once").rstrip().endswith(spent)
    watched = json.loads(jestlab("watch", "toy", "--json", "--once"))
    costs = [(run["cost"]["total_flops"], run["cost"]["actual_flops"]) for run in watched]
    assert costs == [(4e6, 1e9), (4e6, None), (4e6, None)]


@pytest.fixture
def ledger(jestlab: Callable[..., str]) -> Callable[..., dict[str, Any]]:
    """Show costs as JSON, with the parts by label."""

    def ledger(*options: str) -> dict[str, Any]:
        data = json.loads(jestlab("costs", "ledger.yaml", "--json", *options))
        return {**data, "runs": {run["label"]: run for run in data["runs"]}}

    return ledger


def equal_budgets(data: dict[str, Any], convention: str = "paper") -> dict[str, Any]:
    runs = data["runs"].items()
    return {label: run["per_example"][convention]["equal_budget_examples"] for label, run in runs}


def test_costs_by_both_conventions(ledger):
    data = ledger()
    jest, cached, uniform = (data["runs"][label] for label in ("jest", "cached", "uniform"))
    assert jest["per_example"]["paper"]["relative"] == pytest.approx(4, rel=1e-3)
    assert cached["per_example"]["paper"]["relative"] == pytest.approx(7 / 3, rel=1e-3)
    counted = jest["per_example"]["counted"]
    assert counted["relative"] == pytest.approx(13 / 3, rel=0.01)
    parts = ("image_tower", "text_tower", "loss", "scoring", "selection", "reference_scoring")
    assert counted["total_flops"] == pytest.approx(sum(counted[f"{part}_flops"] for part in parts))
    assert jest["executed_flops"] == pytest.approx(counted["total_flops"] * jest["examples"])
    assert (jest["seeds"], jest["step"]["super_batch_size"], data["plots"]) == (2, 163_840, [])
    # Three runs share the reference of their seed; two of them share its cache.
    assert [run["reference_shared_by"] for run in (jest, cached, uniform)] == [3, 2, None]

    assert (data["baseline"], data["left_out"]) == ("uniform", ["cache", "own"])
    matched, seen = equal_budgets(data), uniform["examples"]
    assert matched["uniform"] == pytest.approx(seen)
    assert matched["jest"] == matched["cached"] == pytest.approx(seen * 3 / 7)
    assert equal_budgets(ledger("--scope", "learner"), "counted")["jest"] == pytest.approx(seen)
    by_cached = equal_budgets(ledger("--baseline", "cached"))
    assert by_cached["uniform"] == pytest.approx(7 / 3 * cached["examples"])


def test_the_cost_of_a_dependency_without_a_price_is_unknown(jestlab, ledger, tmp_path):
    spec = LEDGER.replace("cache: {program", "needing: {needs: [own]}\n  cache: {program")
    (tmp_path / "ledger.yaml").write_text(spec)
    data = ledger("--scope", "reference_training")
    needing = data["runs"]["needing"]
    assert needing["reference_training_flops"] is needing["reference_training_share_flops"] is None
    assert (equal_budgets(data)["needing"], needing["reference_shared_by"]) == (None, 1)
    assert equal_budgets(data)["uniform"] is not None
    assert "unknown 1 unknown unknown" in " ".join(jestlab("costs", "ledger.yaml").split())


def test_draws_the_cost_of_a_step_of_each_method(jestlab, tmp_path):
    """The sizes are those of the run with an approximate pass, which isn't the first run that selects."""
    out = jestlab("costs", "ledger.yaml", "--plot", "figures")
    names = [f"method_costs_{way}.{kind}" for way in ("counted", "paper") for kind in ("png", "svg", "pdf")]
    assert out.split()[-6:] == [str(Path("figures") / name) for name in names]
    assert "<!-- Flexi-JEST, cached reference -->" in (tmp_path / "figures" / names[4]).read_text()


def test_errors_are_one_line(jestlab, check_errors, tmp_path):
    (tmp_path / "iid.yaml").write_text("base: {schedule: {batch_size: 8}}\nruns: {a: {}}\n")
    (tmp_path / "own.yaml").write_text("program: json:dumps\nruns: {a: {x: 1}}\n")
    cases = {
        "iid.yaml --plot figures": "study iid: no run selects its batches, so no costs can be drawn: ",
        "ledger.yaml --plot own.yaml/below": "cannot write to own.yaml/below",
        "ledger.yaml --baseline unifrm": "no run 'unifrm' that trains: did you mean 'uniform'?",
        "own.yaml": "study own: no run trains anything that can be priced",
        "ledger.yaml --scope all": "2 --scope",
    }
    check_errors(functools.partial(jestlab, "costs"), cases.items())
