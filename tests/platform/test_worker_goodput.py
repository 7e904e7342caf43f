"""Where real workers' time went: kills, resumes, commands, compilation, stores that are away."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
from workers_support import Worker

from jestlab.analysis.costs.goodput import CAUSES, AttemptTime, by_run, divide, of_run
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import processes
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store import leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.spending import attempt_times, spending
from jestlab.platform.store.store import Store

SCRIPT = """
import time
from jestlab.platform import client
run = client.run()
with run.phase("startup"):
    time.sleep(0.4)
run.progress(0, 2)
with run.phase("compilation"):
    time.sleep(0.3)
time.sleep(0.5)
run.log(1, loss=1.0)
with run.phase("evaluation"):
    time.sleep(0.2)
run.log(2, loss=0.5)
with run.phase("checkpoint"):
    time.sleep(0.1)
"""


@pytest.fixture
def lab(root: Path) -> Lab:
    return Lab.find(root)


def toy(program: str = "loop", **config: Any) -> PlannedRun:
    return plans.run("run", f"toy_programs:{program}", {"seed": 0, **config})


def recorded(lab: Lab, run: PlannedRun) -> Store:
    store = Store.open(lab.store_url)
    store.record(plans.plan(run))
    return store


def worker(lab: Lab, run: PlannedRun, store: Store) -> Worker:
    return Worker("--root", lab.root, "--run", run.fingerprint, "--attempt", plans.claimed(store, run))


def ended_by_launcher(store: Store, run: PlannedRun, state: RunState = RunState.PREEMPTED) -> None:
    """What a launcher does about a worker that is gone."""
    lease = leases.standings(store, [run.fingerprint])[run.fingerprint].lease
    assert lease is not None
    assert leases.end(store, run.fingerprint, lease.id, state, "killed by SIGKILL", -9)


def check_sum(attempts: list[AttemptTime], store: Store) -> None:
    """The parts add up to the hours that the run cost."""
    found = of_run(attempts)
    assert set(found.parts) == set(CAUSES) and min(found.parts.values()) >= 0
    [cost] = spending(store, "toy").values()
    assert cost.actual_hours is not None
    assert found.held / 3.6e9 == pytest.approx(cost.actual_hours, abs=1e-9)


def test_a_run_that_is_killed_after_a_checkpoint_loses_the_steps_since(lab):
    """Killed in step 19 of 24, it goes on from 10: eight steps and more were trained twice."""
    run = toy(steps=24, save_every=10, pause=0.2, kill_at=19)
    store = recorded(lab, run)
    assert worker(lab, run, store).wait(60) == -signal.SIGKILL
    ended_by_launcher(store, run)
    assert worker(lab, run, store).wait(60) == processes.EXIT_COMPLETED
    first, second = attempts = attempt_times(store, "toy")
    assert (first.state, first.resumed_step, first.saved_step) == ("PREEMPTED", 0, 10)
    assert second.resumed_step == 10 and second.reached_step == 24
    parts = divide(first, second.resumed_step)
    assert first.saved_seconds is not None and first.saved_seconds >= 10 * 0.2
    assert parts["training"] == round(first.saved_seconds * 1e6)  # what remained of it
    assert parts["preempted"] >= 8 * 0.2 * 1e6
    found = of_run(attempts)
    assert found.parts["preempted"] == parts["preempted"]
    assert found.ratio is not None and 0 < found.ratio < 1
    check_sum(attempts, store)


def test_a_run_that_is_killed_before_its_first_checkpoint_loses_everything(lab):
    run = toy(steps=24, save_every=50, pause=0.02, kill_at=8)
    store = recorded(lab, run)
    assert worker(lab, run, store).wait(60) == -signal.SIGKILL
    ended_by_launcher(store, run, RunState.FAILED)
    [first] = attempts = attempt_times(store, "toy")
    assert {cause for cause, part in of_run(attempts).parts.items() if part} == {"failed"}
    assert first.held_seconds and of_run(attempts).ratio == 0
    check_sum(attempts, store)


def test_a_run_that_is_asked_to_stop_loses_nothing(lab):
    run = toy(steps=500, pause=0.01)
    store = recorded(lab, run)
    process = worker(lab, run, store)
    labs.wait_until(lambda: labs.starts(lab.root, "run"))
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == processes.EXIT_STOPPED
    [attempt] = attempts = attempt_times(store, "toy")
    assert attempt.saved_step == attempt.reached_step and attempt.winddown_seconds is not None
    parts = of_run(attempts).parts
    assert parts["preempted"] < parts["training"]
    check_sum(attempts, store)


def test_heartbeats_tell_where_time_goes_while_a_run_is_under_way(lab):
    run = toy(steps=5_000, pause=0.01)
    store = recorded(lab, run)
    process = worker(lab, run, store)
    try:
        labs.wait_until(lambda: any((one.training_seconds or 0) > 0.5 for one in attempt_times(store, "toy")))
        [attempt] = attempt_times(store, "toy")
        assert attempt.state == "RUNNING" and attempt.winddown_seconds is None
        found = of_run([attempt])
        assert found.ratio is not None and found.ratio > 0.1
        check_sum([attempt], store)
    finally:
        process.kill()
        process.wait(30)


def test_a_command_tells_its_own_phases(lab):
    words = [sys.executable, "-c", SCRIPT]
    run = plans.run("run", "command", {"seed": 3, "command": words}, seed=3)
    store = recorded(lab, run)
    assert worker(lab, run, store).wait(60) == processes.EXIT_COMPLETED
    [attempt] = attempts = attempt_times(store, "toy")
    assert attempt.startup_seconds is not None and attempt.startup_seconds >= 0.35
    for name, least in {"compilation": 0.3, "training": 0.5, "evaluation": 0.2, "checkpoint": 0.1}.items():
        assert getattr(attempt, f"{name}_seconds") >= least - 0.05, name
    assert (attempt.resumed_step, attempt.reached_step, attempt.saved_step) == (0, 2, 2)
    check_sum(attempts, store)


def test_a_command_that_reports_nothing_is_useful_if_it_completes(lab):
    run = plans.run("run", "command", {"seed": 3, "command": ["sleep", "0.5"]}, seed=3)
    store = recorded(lab, run)
    assert worker(lab, run, store).wait(60) == processes.EXIT_COMPLETED
    [attempt] = attempt_times(store, "toy")
    assert attempt.training_seconds is not None and attempt.training_seconds >= 0.5


def test_an_attempt_whose_end_was_spooled_has_its_parts(lab):
    """The next attempt writes what the one before could not."""
    from jestlab.platform.store.spool import Batch, Spool

    run = toy(steps=3)
    store = recorded(lab, run)
    number = plans.claimed(store, run)
    ended_by_launcher(store, run)
    [old] = attempt_times(store, "toy")
    assert old.training_seconds is None and number == 1
    directory = lab.make_folder(run.directory)
    with store.reading() as connection:
        attempt_id = connection.exec_driver_sql("SELECT id FROM attempt").scalar_one()
    spent: dict[str, float | int | None] = {"training_seconds": 2.5, "resumed_step": 0, "reached_step": 2}
    Spool(directory, attempt_id).append(Batch(progress=(2, 3), spent=spent))
    assert worker(lab, run, store).wait(60) == processes.EXIT_COMPLETED
    first, second = attempt_times(store, "toy")
    assert (first.training_seconds, first.reached_step) == (2.5, 2)
    assert second.training_seconds is not None and second.reached_step == 3


def test_a_training_run_tells_compilation_apart(lab):
    """JAX's own: of a small run, most of the time."""
    from jestlab.platform.planning.plan import plan
    from jestlab.platform.spec.load import load

    spec = lab.root.parent / "small.yaml"
    spec.write_text(json.dumps(SMALL))
    [run] = plan(load(str(spec))).runs
    store = Store.open(lab.store_url)
    store.record(plan(load(str(spec))))
    assert worker(lab, run, store).wait(240) == processes.EXIT_COMPLETED
    [attempt] = attempt_times(store, "small")
    assert (attempt.resumed_step, attempt.reached_step, attempt.saved_step) == (0, 4, 4)
    [found] = by_run([attempt]).values()
    for cause in ("training", "evaluation", "startup", "compilation", "checkpoint"):
        assert found.parts[cause] > 0, cause
    assert found.share("compilation") > 0.1
    assert found.share("winddown") < 0.2


SMALL = {
    "name": "small",
    "question": "How long?",
    "base": {
        "model.vision": {"image_size": 16, "patch_size": 8, "width": 16, "depth": 1, "mlp_dim": 32},
        "model.text": {"length": 8, "width": 16, "depth": 1, "mlp_dim": 32, "vocabulary_size": 100},
        "model.embedding_dim": 8,
        "data.train": {"examples": 64, "image_size": 16},
        "data.benchmark": {"image_size": 16},
        "schedule": {"batch_size": 8, "examples_seen": 32},
        "evaluation.points": 1,
        "runtime": {"log_every_steps": 2, "checkpoint_every_steps": 2},
    },
    "runs": {"uniform": {}},
}  # fmt: skip
