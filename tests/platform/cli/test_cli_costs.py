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
from jestlab.platform.store.store import Store

PAPER = """
question: Does it pay?
base:
  model:
    vision: {image_size: 256, patch_size: 16, width: 768, depth: 12, heads: 12, mlp_dim: 3072, pooling: map}
    text: {length: 64, width: 768, depth: 12, heads: 12, mlp_dim: 3072}
    embedding_dim: 768
  schedule: {batch_size: 32768, examples_seen: 3000000000}
  data.train.examples: 1000000000
runs:
  reference: {}
  joint: {selection: {rule: joint, reference: reference, filtering_ratio: 0.8}}
resources: {tpu: v5e-16x16}
"""
LOCAL = """
base:
  model:
    vision: {width: 64, depth: 2, mlp_dim: 128, pooling: mean}
    text: {width: 64, depth: 1, mlp_dim: 128, pooling: mean}
    embedding_dim: 64
  schedule.examples_seen: 15360
runs:
  reference: {schedule.examples_seen: 30720}
  uniform: {}
  independent: {selection: {rule: independent, reference: reference}}
  joint: {selection: {rule: joint, reference: reference}}
seeds: 3
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

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def jestlab(in_folder: Call, tmp_path: Path) -> Call:
    (tmp_path / "paper.yaml").write_text(PAPER)
    (tmp_path / "local.yaml").write_text(LOCAL)
    (tmp_path / "ledger.yaml").write_text(LEDGER)
    return in_folder


def write_settings(folder: Path, text: str) -> None:
    path = folder / "settings" / "jestlab" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def cells(out: str, name: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if line.startswith(name))


def test_a_plan_for_a_slice_shows_chip_hours_and_the_assumptions(jestlab, store, tmp_path):
    code, out, err = jestlab("plan", "paper.yaml")
    assert (code, err) == (0, "")
    assert out.splitlines()[2].endswith("TOTAL     BY PAPER  CHIPS  CHIP-HOURS")
    assert [cells(out, name)[-1] for name in ("reference", "joint", "all")] == ["1,840", "7,960", "9,800"]
    assert "To do: 9,800 chip-hours on v5e-16x16, the longest run 31 h." in out
    assert "assuming 40% of a v5e's 197 TFLOP/s." in out
    assert "$" not in out
    planned = plan(load("paper.yaml"))
    plans.record(store, planned)
    plans.begun(store, planned.runs[0]).complete()
    out = jestlab("plan", "paper.yaml")[1]
    assert "To do: 7,960 chip-hours on v5e-16x16, the longest run 31 h. Done: 1,840 chip-hours." in out
    write_settings(tmp_path, "prices: {v5e: 1.20}\nutilization: {v5e: 0.5}\n")
    out = jestlab("plan", "paper.yaml", "--all")[1]
    assert out.splitlines()[2].endswith("CHIP-HOURS       $")
    assert cells(out, "joint")[-2:] == ["6,370", "$7,650"]
    assert "assuming 50% of a v5e's 197 TFLOP/s and $1.20 per chip-hour." in out
    data = json.loads(jestlab("plan", "paper.yaml", "--json")[1])
    [joint] = [run["budget"] for run in data["runs"] if run["run"] == "joint"]
    assert (joint["chip"], joint["chips"]) == ("v5e", 256)
    assert data["totals"]["budget_to_do"]["dollars"] == pytest.approx(joint["dollars"])


def test_a_plan_for_this_machine_has_hours_once_runs_have_completed_here(jestlab, store, tmp_path):
    assert "HOURS" not in jestlab("plan", "local.yaml")[1]
    assert json.loads(jestlab("plan", "local.yaml", "--json")[1])["runs"][0]["budget"] is None
    planned = plan(load("local.yaml"))
    plans.record(store, planned)
    ended = stores.START + timedelta(hours=2)
    stores.attempt(store, planned.runs[0], ended_at=ended, host="elsewhere", device=provenance.device())
    out = jestlab("plan", "local.yaml")[1]
    assert out.splitlines()[2].endswith("TOTAL  HOURS")
    assert cells(out, "reference")[-1] == "6.00"  # three runs of two hours
    assert cells(out, "uniform")[-1] == "3.00"  # half as many examples
    assert "on this machine with 2 at a time, estimated from 1 earlier run." in out
    assert "To do: about 16 h" in out  # (4 + 3 + 2 · 12.98) / 2, rounded


def test_a_launch_above_the_limit_writes_nothing(jestlab, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, out, err = jestlab("launch", "paper.yaml", "--on", "vertex", "--max-chip-hours", "9000")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "9,800 chip-hours, more than --max-chip-hours 9000" in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def recorded(store: Store) -> None:
    """A run that was preempted and then completed, one that runs, and one that waits; each has 4 chips."""
    done, runs, waits = (
        replace(plans.run(name, seed=seed), budget=RunBudget("v5e", 4, 8.0, 16.0))
        for seed, name in enumerate(("done", "runs", "waits"))
    )
    plans.record(store, plans.plan(done, runs, waits))
    hour = timedelta(hours=1)
    ended: dict[str, Any] = {"chips": 4, "ended_at": stores.START + hour}
    stores.attempt(store, done, RunState.PREEMPTED, **ended)
    stores.attempt(
        store, done, number=2, chips=4, ended_at=stores.START + 2 * hour, scores={"toy/score": 0.5}
    )
    stores.attempt(store, runs, RunState.RUNNING, chips=4, heartbeat_at=stores.START + hour)


def test_status_shows_the_drift(jestlab, recorded):
    """The completed run took 3 hours on 4 chips of 8 planned chip-hours; the other is within its plan."""
    code, out, _ = jestlab("status", "toy")
    assert code == 0
    headers, done, runs, *_ = [" ".join(line.split()) for line in out.splitlines()]
    assert headers.endswith("FLOPs planned drift chip-hours planned drift $ planned drift reason")
    assert done == "done 0 COMPLETED 2 1.00 GFLOP 4.00 MFLOP × 250.00 12.0 8.00 × 1.50 $24.00 $16.00 × 1.50"
    assert runs.startswith("runs 1 RUNNING 1 4.00 MFLOP 4.00 8.00 $8.00 $16.00 no heartbeat")
    assert (
        "1 run completed, actual of planned cost: 1.00 GFLOP of 4.00 MFLOP (× 250.00), "
        "12.0 of 8.00 chip-hours (× 1.50), $24.00 of $16.00 (× 1.50)" in out.splitlines()
    )
    cost = json.loads(jestlab("status", "toy", "--json")[1])[0]["cost"]
    assert (cost["actual_chip_hours"], cost["planned_chip_hours"]) == (12.0, 8.0)


def test_watch_shows_the_spent_part_of_the_plan(jestlab, recorded):
    out = jestlab("watch", "toy", "--once", "--every", "0.2")[1]
    assert out.rstrip().endswith(
        "1.00 GFLOP of 12.0 MFLOP, 8333%; 16.0 of 24.0 chip-hours, 67%; $32.00 of $48.00, 67%"
    )
    lines = json.loads(jestlab("watch", "toy", "--json", "--every", "0.2")[1])
    assert [line["cost"]["total_flops"] for line in lines] == [4e6] * 3
    assert [line["cost"]["actual_flops"] for line in lines] == [1e9, None, None]


def ledger(jestlab: Call, *options: str) -> dict[str, Any]:
    code, out, err = jestlab("costs", "ledger.yaml", "--json", *options)
    assert (code, err) == (0, "")
    data = json.loads(out)
    return {**data, "runs": {run["label"]: run for run in data["runs"]}}


def equal_budgets(data: dict[str, Any], convention: str = "paper") -> dict[str, float]:
    runs = data["runs"].items()
    return {label: run["per_example"][convention]["equal_budget_examples"] for label, run in runs}


def test_shows_the_factors_of_the_paper_and_the_counted_ones(jestlab):
    runs = ledger(jestlab)["runs"]
    relative = {label: runs[label]["per_example"]["paper"]["relative"] for label in ("jest", "cached")}
    assert relative == pytest.approx({"jest": 4, "cached": 7 / 3}, rel=1e-3)
    counted = runs["jest"]["per_example"]["counted"]
    assert counted["relative"] == pytest.approx(13 / 3, rel=0.01)
    parts = ("image_tower", "text_tower", "loss", "scoring", "selection", "reference_scoring")
    assert counted["total_flops"] == pytest.approx(sum(counted[f"{part}_flops"] for part in parts))
    assert runs["jest"]["executed_flops"] == pytest.approx(counted["total_flops"] * runs["jest"]["examples"])
    assert (runs["jest"]["seeds"], runs["jest"]["step"]["super_batch_size"]) == (2, 163_840)


def test_equal_budgets_in_both_conventions(jestlab):
    data = ledger(jestlab)
    assert (data["baseline"], data["left_out"]) == ("uniform", ["cache", "own"])
    matched, seen = equal_budgets(data), data["runs"]["uniform"]["examples"]
    assert matched["uniform"] == pytest.approx(seen)
    assert matched["jest"] == matched["cached"] == pytest.approx(seen * 3 / 7)
    learner = ledger(jestlab, "--scope", "learner")
    assert equal_budgets(learner, "counted")["jest"] == pytest.approx(seen)
    by_cached = ledger(jestlab, "--baseline", "cached")
    examples = by_cached["runs"]["cached"]["examples"]
    assert equal_budgets(by_cached)["uniform"] == pytest.approx(7 / 3 * examples)
    # Three runs share the reference of their seed; two of them share its cache.
    shared = {label: run["reference_shared_by"] for label, run in data["runs"].items()}
    assert (shared["jest"], shared["cached"], shared["uniform"]) == (3, 2, None)


def test_draws_the_cost_of_a_step_of_each_method(jestlab, tmp_path):
    """The sizes are those of the run with an approximate pass, which isn't the first run that selects."""
    code, out, err = jestlab("costs", "ledger.yaml", "--plot", "figures")
    names = [f"method_costs_{way}.{kind}" for way in ("counted", "paper") for kind in ("png", "svg", "pdf")]
    assert (code, err, out.split()[-6:]) == (0, "", [str(Path("figures") / name) for name in names])
    assert "<!-- Flexi-JEST, cached reference -->" in (tmp_path / "figures" / names[4]).read_text()
    assert ledger(jestlab)["plots"] == []


def test_errors_are_one_line(jestlab, checked, check_errors, tmp_path):
    (tmp_path / "iid.yaml").write_text("base: {schedule: {batch_size: 8}}\nruns: {a: {}}\n")
    (tmp_path / "own.yaml").write_text("program: json:dumps\nruns: {a: {x: 1}}\n")
    (tmp_path / "file").write_text("")
    cases = {
        "iid.yaml --plot figures": "study iid: no run selects its batches, so there is nothing to draw: ",
        "ledger.yaml --plot file/below": "cannot write to file/below",
        "ledger.yaml --baseline unifrm": "no run 'unifrm' that trains: did you mean 'uniform'?",
        "own.yaml": "study own: no run trains anything that can be priced",
        "ledger.yaml --scope all": "2 --scope",
    }
    check_errors(functools.partial(checked, "costs"), cases.items())
