"""Chip-hours, hours and money as people see them: before a launch, at its refusal, and afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores

from jestlab.platform.cli import main
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import Budget, plan
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
F = 46.82e9 + 11.02e9  # SigLIP's B/16 at 256 pixels, 64 tokens
LOSS = 6 * 32_768 * 768  # an example
CHOOSING = 2 * 5 * (768 + 768) * (1 + 2 * 15 / 16 * 32_768)  # 16 chunks, of which the last meets nobody
CHIP_HOURS = 3e9 / (0.4 * 197e12) / 3600  # of a FLOP an example
UNIFORM = (3 * F + LOSS) * CHIP_HOURS
JOINT = ((3 + 5 + 5) * F + LOSS + CHOOSING) * CHIP_HOURS  # of 5 candidates, scored by learner and reference

Call = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def jestlab(capsys: Any, monkeypatch: Any, tmp_path: Path) -> Call:
    """Run a command in a folder with two studies: (exit code, standard output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JESTLAB_ROOT", raising=False)
    monkeypatch.delenv("JESTLAB_STORE", raising=False)
    monkeypatch.delenv("JESTLAB_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (tmp_path / "paper.yaml").write_text(PAPER)
    (tmp_path / "local.yaml").write_text(LOCAL)

    def call(*arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def say(folder: Path, settings: str) -> None:
    """Write the user's settings."""
    path = folder / "settings" / "jestlab" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(settings)


def cells(out: str, name: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if line.startswith(name))


def test_a_plan_for_a_slice_shows_chip_hours_and_says_what_is_assumed(jestlab):
    code, out, err = jestlab("plan", "paper.yaml")
    assert (code, err) == (0, "")
    assert out.splitlines()[2].endswith("TOTAL     BY PAPER  CHIPS  CHIP-HOURS")
    assert cells(out, "reference")[-1] == "1,840"
    assert cells(out, "joint")[-1] == "7,960"
    assert cells(out, "all")[-1] == "9,800"
    assert "To do: 9,800 chip-hours on v5e-16x16, the longest run 31 h." in out
    assert "assuming 40% of a v5e's 197 TFLOP/s." in out
    assert "$" not in out


def test_prices_and_utilisation_are_the_users(jestlab, tmp_path):
    say(tmp_path, "prices: {v5e: 1.20}\nutilisation: {v5e: 0.5}\n")
    out = jestlab("plan", "paper.yaml", "--all")[1]
    assert out.splitlines()[2].endswith("CHIP-HOURS       $")
    assert cells(out, "joint")[-2:] == ["6,370", "$7,650"]
    assert "assuming 50% of a v5e's 197 TFLOP/s and $1.20 per chip-hour." in out
    data = json.loads(jestlab("plan", "paper.yaml", "--json")[1])
    budgets = {run["run"]: run["budget"] for run in data["runs"]}
    assert budgets["joint"]["chip_hours"] == pytest.approx(JOINT * 0.4 / 0.5, rel=1e-3)
    assert budgets["joint"]["dollars"] == pytest.approx(1.2 * JOINT * 0.4 / 0.5, rel=1e-3)
    assert budgets["joint"]["hours"] == pytest.approx(budgets["joint"]["chip_hours"] / 256)
    assert (budgets["joint"]["chip"], budgets["joint"]["chips"]) == ("v5e", 256)


def test_what_is_done_is_counted_apart(jestlab, tmp_path):
    planned = plan(load("paper.yaml"))
    store = Store.open(f"sqlite:///{tmp_path}/lab/results.db")
    store.record(planned)
    plans.begun(store, planned.runs[0]).complete()
    store.close()
    assert (
        "To do: 7,960 chip-hours on v5e-16x16, the longest run 31 h. Done: 1,840 chip-hours."
        in jestlab("plan", "paper.yaml")[1]
    )
    totals = json.loads(jestlab("plan", "paper.yaml", "--json")[1])["totals"]
    assert totals["budget_to_do"]["chip_hours"] == pytest.approx(JOINT, rel=1e-3)
    assert totals["budget_done"]["chip_hours"] == pytest.approx(UNIFORM, rel=1e-3)


def test_a_plan_for_this_machine_has_hours_once_runs_have_completed_here(jestlab, tmp_path):
    out = jestlab("plan", "local.yaml")[1]
    assert "HOURS" not in out
    assert json.loads(jestlab("plan", "local.yaml", "--json")[1])["runs"][0]["budget"] is None
    planned = plan(load("local.yaml"))
    store = Store.open(f"sqlite:///{tmp_path}/lab/results.db")
    store.record(planned)
    first = planned.runs[0]
    twice = timedelta(hours=2)
    stores.attempt(store, first, ended_at=stores.START + twice, host="elsewhere", device=provenance.device())
    store.close()
    out = jestlab("plan", "local.yaml")[1]
    assert out.splitlines()[2].endswith("TOTAL  HOURS")
    assert cells(out, "reference")[-1] == "6.00"  # three of two hours
    assert cells(out, "uniform")[-1] == "3.00"  # half as many examples
    assert cells(out, "joint")[-1] == "13.0"
    assert "on this machine with 2 at a time, estimated from 1 earlier run." in out
    assert "To do: about 16 h" in out  # (4 + 3 + 2 · 12.98) / 2, rounded


def test_a_plan_that_the_settings_send_elsewhere_has_no_hours_of_this_machine(jestlab, tmp_path, monkeypatch):
    planned = plan(load("local.yaml"))
    store = Store.open(f"sqlite:///{tmp_path}/lab/results.db")
    store.record(planned)
    stores.attempt(
        store, planned.runs[0], ended_at=stores.START + timedelta(hours=2), device=provenance.device()
    )
    store.close()
    assert "on this machine" in jestlab("plan", "local.yaml")[1]
    settings = tmp_path / "config.yaml"
    settings.write_text("on: kubernetes\n")
    monkeypatch.setenv("JESTLAB_CONFIG", str(settings))
    assert "on this machine" not in jestlab("plan", "local.yaml")[1]
    assert json.loads(jestlab("plan", "local.yaml", "--json")[1])["runs"][0]["budget"] is None


@pytest.mark.parametrize("place", ["kubernetes", "vertex"])
def test_a_launch_above_the_limit_is_refused_before_anything_is_written(jestlab, tmp_path, place):
    before = sorted(tmp_path.rglob("*"))
    code, out, err = jestlab("launch", "paper.yaml", "--on", place, "--max-chip-hours", "9000")
    assert (code, out) == (1, "")
    assert err == (
        "jestlab: the 2 runs to do would take 9,800 chip-hours, more than --max-chip-hours 9000 "
        "(largest: joint seed 0 7,960, reference seed 0 1,840); nothing was launched\n"
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_limit_that_nobody_can_vouch_for_is_refused(jestlab, tmp_path):
    spec = "program: json:dumps\nruns: {a: {x: 1}}\nresources: {tpu: v5e-2x4}\n"
    (tmp_path / "own.yaml").write_text(spec)
    code, _, err = jestlab("launch", "own.yaml", "--on", "kubernetes", "--max-chip-hours", "1e9")
    assert code == 1
    assert "the cost of a seed 0 is unknown, because its program json:dumps has no price" in err
    code, _, err = jestlab("launch", "local.yaml", "--max-chip-hours", "1e9")
    assert code == 1
    assert "how long reference seed 0 takes is unknown" in err
    assert not (tmp_path / "lab").exists()


def test_on_this_machine_the_limit_is_hours_and_what_is_done_is_free(jestlab, tmp_path):
    planned = plan(load("local.yaml", None, ["seeds=1"]))
    store = Store.open(f"sqlite:///{tmp_path}/lab/results.db")
    store.record(planned)
    hour: dict[str, Any] = {"ended_at": stores.START + timedelta(hours=2), "device": provenance.device()}
    stores.attempt(store, planned.runs[0], **hour)
    code, _, err = jestlab("launch", "local.yaml", "--set", "seeds=1", "--max-chip-hours", "9")
    assert (code, err.count("\n")) == (1, 1)
    assert "the 3 runs to do would take 9.67 chip-hours" in err  # 1 + 2 · 4.33
    for run in planned.runs[1:]:
        stores.attempt(store, run, **hour)
    store.close()
    code, out, _ = jestlab(
        "launch", "local.yaml", "--set", "seeds=1", "--max-chip-hours", "0", "--no-reports"
    )
    assert code == 0
    assert "nothing to run: all 4 runs are COMPLETED" in out


def recorded(folder: Path) -> Store:
    """A preempted and completed run, one that runs, and one that waits, all planned for 4 chips."""
    done, runs, waits = (
        replace(plans.run(name, seed=seed), budget=Budget("v5e", 4, 8.0, 16.0))
        for seed, name in enumerate(("done", "runs", "waits"))
    )
    store = Store.open(Lab.find(folder / "lab").store_url)
    store.record(plans.plan(done, runs, waits))
    hour = timedelta(hours=1)
    ended: dict[str, Any] = {"chips": 4, "ended_at": stores.START + hour}
    stores.attempt(store, done, RunState.PREEMPTED, **ended)
    stores.attempt(
        store, done, number=2, chips=4, ended_at=stores.START + 2 * hour, scores={"toy/score": 0.5}
    )
    stores.attempt(store, runs, RunState.RUNNING, chips=4, heartbeat_at=stores.START + hour)
    return store


def test_status_shows_the_drift(jestlab, tmp_path):
    """3 hours on 4 chips of 8 planned chip-hours; what goes on within its plan has no drift."""
    recorded(tmp_path).close()
    code, out, _ = jestlab("status", "toy")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split()[5:] == [
        *("FLOPs", "planned", "drift"),
        *("chip-hours", "planned", "drift"),
        *("$", "planned", "drift"),
        "reason",
    ]
    assert " ".join(lines[1].split()) == (
        "done 0 COMPLETED 2 1.00 GFLOP 4.00 MFLOP × 250.00 12.0 8.00 × 1.50 $24.00 $16.00 × 1.50"
    )
    assert " ".join(lines[2].split()).startswith(
        "runs 1 RUNNING 1 4.00 MFLOP 4.00 8.00 $8.00 $16.00 no sign of life"
    )
    assert lines[-2].endswith(
        "1 run completed, actual of planned cost: 1.00 GFLOP of 4.00 MFLOP (× 250.00), "
        "12.0 of 8.00 chip-hours (× 1.50), $24.00 of $16.00 (× 1.50)"
    )
    cost = json.loads(jestlab("status", "toy", "--json")[1])[0]["cost"]
    assert (cost["actual_chip_hours"], cost["planned_chip_hours"]) == (12.0, 8.0)
    assert (cost["actual_dollars"], cost["planned_dollars"]) == (24.0, 16.0)


def test_watch_shows_what_was_spent_of_all_that_was_planned(jestlab, tmp_path):
    recorded(tmp_path).close()
    out = jestlab("watch", "toy", "--once", "--every", "0.2")[1]
    assert out.rstrip().endswith(
        "1.00 GFLOP of 12.0 MFLOP, 8333%; 16.0 of 24.0 chip-hours, 67%; $32.00 of $48.00, 67%"
    )
    lines = json.loads(jestlab("watch", "toy", "--json", "--every", "0.2")[1])
    assert [line["planned_flops"] for line in lines] == [4e6] * 3
    assert [line["flops"] for line in lines] == [1e9, None, None]


def test_a_real_run_drifts_by_what_it_did_more(root, jestlab):
    """Five steps of a million FLOPs, where four millions were planned."""
    run = replace(plans.run("a", config={"steps": 5, "seed": 0}), budget=Budget("local", 1, 1.0))
    assert labs.launch_here(root, plans.plan(run)).exit_code == 0
    out = jestlab("status", "toy", "--root", str(root))[1]
    assert "5.00 MFLOP  4.00 MFLOP  × 1.25  <0.01     1.00  × 0.00" in out
    [cost] = [run["cost"] for run in json.loads(jestlab("status", "toy", "--root", str(root), "--json")[1])]
    assert 0 < cost["actual_hours"] < 0.02
    assert cost["chip"] == "local"
