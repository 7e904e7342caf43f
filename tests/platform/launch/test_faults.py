"""What a launch survives: killed workers, killed launchers, Ctrl-C, and a second launcher beside it.

Where the launcher itself is not harmed, it runs in this process: that saves a start of Python and XManager.
"""

from __future__ import annotations

import functools
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from workers_support import ForkingLocal

from jestlab.platform.launch.executor import Job, LaunchedJob
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load

RUNS = {
    "uniform": {"steps": 60, "pause": 0.02},
    "joint": {"needs": ["uniform"], "steps": 12},
}
NEVER_STOPS = {"deaf": {"program": "toy_programs:stubborn"}, "next": {"steps": 3}}


def results(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that tables are made from."""
    connection = sqlite3.connect(root / "results.db")
    return {
        "metrics": connection.execute(
            "SELECT run, seed, name, step, value FROM v_metrics ORDER BY 1, 2, 3, 4"
        ).fetchall(),
        "scores": connection.execute(
            "SELECT run, seed, name, step, value, examples_seen, flops_total, final FROM v_evaluations"
            " ORDER BY 1, 2, 3, 4"
        ).fetchall(),
    }


def states(root: Path) -> dict[str, str]:
    return dict(sqlite3.connect(root / "results.db").execute("SELECT run, state FROM v_runs"))


def step_of(root: Path, run: str) -> int:
    """Steps that a run has entered into the store."""
    if not (root / "results.db").exists():
        return 0
    try:
        [step] = sqlite3.connect(root / "results.db").execute(
            "SELECT MAX(step) FROM v_metrics WHERE run = ?", (run,)
        ).fetchone()  # fmt: skip
    except sqlite3.OperationalError:  # the schema is being made
        return 0
    return step or 0


def looked_after_by(root: Path) -> list[tuple[int]]:
    """The launchers that the store names for each attempt."""
    return sqlite3.connect(root / "results.db").execute("SELECT launcher_id FROM attempt").fetchall()


def launched(root: Path, spec: Path) -> int:
    """Launch in this process, and return the exit code."""
    planned = plan(load(str(spec)))
    return labs.launch_here(root, planned).exit_code


def _has_started(root: Path, times: int) -> bool:
    return len(labs.starts(root, "uniform")) == times


def is_under_way(root: Path) -> bool:
    return step_of(root, "uniform") > 5


def kill_uniform(root: Path, number: int, times: int = 1) -> Callable[[], None]:
    """Something that sends a signal to each of the first workers of `uniform`, in mid-run."""

    def act() -> None:
        for attempt in range(1, times + 1):
            labs.wait_until(lambda: is_under_way(root))
            labs.wait_until(functools.partial(_has_started, root, attempt))
            os.kill(labs.starts(root, "uniform")[-1][0], number)

    return act


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, list[tuple[Any, ...]]]:
    """The results of the study in a lab where nothing went wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in labs.variables(folder / "lab").items():
            monkeypatch.setenv(name, value)
        assert launched(folder / "lab", labs.write_study(folder, runs=RUNS)) == 0
    return results(folder / "lab")


def assert_goes_on(root: Path, spec: Path, undisturbed: dict[str, list[tuple[Any, ...]]]) -> None:
    """Another launch completes the study, from a checkpoint, with the results of an undisturbed lab."""
    assert labs.processes_of(root) == []
    assert launched(root, spec) == 0
    assert set(states(root).values()) == {"COMPLETED"}
    assert results(root) == undisturbed
    assert labs.starts(root, "uniform")[-1][1] > 0


def test_a_worker_killed_in_mid_run(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.meanwhile(kill_uniform(root, signal.SIGKILL)):
        assert launched(root, spec) == 1
    assert states(root) == {"uniform": "FAILED", "joint": "SKIPPED"}
    assert_goes_on(root, spec, undisturbed)


def test_a_killed_worker_is_tried_again_from_its_checkpoint(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS, resources={"retries": 1})
    with labs.meanwhile(kill_uniform(root, signal.SIGKILL)):
        assert launched(root, spec) == 0
    assert results(root) == undisturbed
    [(_, began), (_, resumed)] = labs.starts(root, "uniform")
    assert began == 0 < resumed


def test_a_worker_stopped_from_outside_goes_on_without_using_up_retries(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.meanwhile(kill_uniform(root, signal.SIGTERM, times=2)):
        assert launched(root, spec) == 0
    assert results(root) == undisturbed
    ended = sqlite3.connect(root / "results.db").execute(
        "SELECT attempt.state FROM attempt JOIN run ON run.id = run_id WHERE directory LIKE '%uniform%'"
    )
    assert ended.fetchall() == [("PREEMPTED",), ("PREEMPTED",), ("COMPLETED",)]


def test_a_launcher_killed_in_mid_run(root, tmp_path, undisturbed):
    """Its workers go on, and the next launcher finds them."""
    hurry = tmp_path / "hurry"
    spec = labs.write_study(
        tmp_path, runs=RUNS | {"uniform": {"steps": 600, "pause": 0.1, "hurry": str(hurry)}}
    )

    def hurry_when_found() -> None:
        labs.wait_until(lambda: looked_after_by(root) != first)
        hurry.touch()

    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: is_under_way(root))
        launcher.kill()
        launcher.wait()
        first = looked_after_by(root)
        with labs.meanwhile(hurry_when_found):
            assert launched(root, spec) == 0
    assert len(labs.starts(root, "uniform")) == 1
    completed = "SELECT run FROM v_runs WHERE state = 'COMPLETED' AND attempts = 1 ORDER BY run"
    found = sqlite3.connect(root / "results.db").execute(completed).fetchall()
    assert found == [("joint",), ("uniform",)]


def test_ctrl_c_stops_what_an_earlier_launcher_left_running(root, tmp_path):
    spec = labs.write_study(tmp_path, runs={"long": {"steps": 5_000, "pause": 0.02}})
    with labs.started("launch", spec, root=root) as first:
        labs.wait_until(lambda: step_of(root, "long") > 2)
        first.kill()
        first.wait()
        with labs.started("launch", spec, root=root) as second:
            assert second.stdout is not None
            lines = iter(second.stdout.readline, "")
            assert any("RUNNING    toy/long/0" in line and "another" not in line for line in lines)
            os.killpg(second.pid, signal.SIGINT)
            assert second.wait(15) == 130
            labs.wait_until_ended(root, 10)  # the worker, no child of the second, has said so and is ending
    assert states(root) == {"long": "CANCELLED"}


def test_cancel_leaves_nothing_running_and_nothing_to_be_run(root, tmp_path):
    """Nor does the launcher whose runs they are start them again. As in `nohup jestlab launch … &`."""
    runs = {"long": {"steps": 5_000, "pause": 0.02}, "next": {"needs": ["long"], "steps": 3}}
    spec = labs.write_study(tmp_path, runs=runs)
    with labs.started("launch", spec, root=root, ignoring_sigint=True) as launcher:
        labs.wait_until(lambda: step_of(root, "long") > 2)
        cancelled = labs.here("cancel", "toy", root=root)
        assert cancelled.returncode == 0, cancelled.stdout + cancelled.stderr
        assert "2 runs cancelled" in cancelled.stdout
        assert launcher.wait(15) == 1
        assert labs.processes_of(root) == []
    assert states(root) == {"long": "CANCELLED", "next": "CANCELLED"}
    assert labs.here("cancel", "toy", root=root).returncode == 0


def test_cancel_ends_what_does_not_stop(root, tmp_path):
    spec = labs.write_study(tmp_path, runs=NEVER_STOPS)
    with labs.started("launch", spec, "--parallel", 1, root=root) as launcher:
        labs.wait_until(lambda: list(root.glob("runs/deaf-*/deaf")))
        launcher.kill()
        launcher.wait()
        assert len(labs.processes_of(root)) == 2  # the worker and its child
        assert labs.here("cancel", "toy/deaf", "--now", root=root).returncode == 0
        labs.wait_until(lambda: labs.processes_of(root) == [], seconds=3)
    assert states(root) == {"deaf": "CANCELLED", "next": "PENDING"}


def test_a_frozen_worker_is_revoked_and_its_run_goes_on(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS, resources={"lease_seconds": 8.0})
    with labs.meanwhile(kill_uniform(root, signal.SIGSTOP)):
        assert launched(root, spec) == 0
    assert results(root) == undisturbed
    reasons = sqlite3.connect(root / "results.db").execute(
        "SELECT reason FROM attempt WHERE state = 'PREEMPTED'"
    )
    [(reason,)] = reasons.fetchall()
    assert reason.startswith("no sign of life for")


def test_the_first_failure_stops_all_where_that_is_wanted(root, tmp_path):
    runs = {"bad": {"fail_at": 3}, "long": {"steps": 5_000, "pause": 0.02}, "next": {"steps": 3}}
    spec = labs.write_study(tmp_path, runs=runs)
    outcome = labs.launch_here(root, plan(load(str(spec))), fail_fast=True, parallel=2)
    assert outcome.exit_code == 1
    assert states(root) == {"bad": "FAILED", "long": "CANCELLED", "next": "CANCELLED"}


def test_retry_runs_what_failed_and_what_waited_for_it_and_nothing_else(root, tmp_path):
    runs = {
        "flaky": {"kill_at": 7},
        "after": {"needs": ["flaky"], "steps": 3},
        "stopped": {"steps": 4},
        "done": {"steps": 5},
    }
    spec = labs.write_study(tmp_path, runs=runs)
    assert launched(root, spec) == 1
    database = sqlite3.connect(root / "results.db")
    with database:
        database.execute("UPDATE run SET state = 'CANCELLED' WHERE directory LIKE 'runs/stopped%'")
    assert states(root) == {
        "flaky": "FAILED",
        "after": "SKIPPED",
        "stopped": "CANCELLED",
        "done": "COMPLETED",
    }
    again = labs.here("retry", "toy", root=root)
    assert again.returncode == 0, again.stdout + again.stderr
    done = "COMPLETED"
    assert states(root) == {"flaky": done, "after": done, "stopped": "CANCELLED", "done": done}
    assert "nothing to retry" in labs.here("retry", "toy", root=root).stdout


def test_launcher_and_worker_killed_at_once(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: is_under_way(root))
        launcher.kill()
        for pid in labs.processes_of(root):
            os.kill(pid, signal.SIGKILL)
        launcher.wait()
        labs.wait_until(lambda: not labs.processes_of(root))
    assert states(root)["uniform"] == "RUNNING"  # nobody was left to say otherwise
    status = labs.here("status", "toy", root=root).stdout
    assert "its process has vanished: launch again to go on" in status
    assert_goes_on(root, spec, undisturbed)
    ended = sqlite3.connect(root / "results.db").execute(
        "SELECT DISTINCT reason FROM attempt WHERE state = 'PREEMPTED'"
    )
    assert ended.fetchall() == [("its process vanished",)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_launch_stopped_by_its_user(root, tmp_path, undisturbed, number):
    """Also where it was started with SIGINT ignored, as shells do in the background."""
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root, ignoring_sigint=True) as launcher:
        labs.wait_until(lambda: is_under_way(root))
        os.killpg(launcher.pid, number)
        assert launcher.wait(15) == 130
        assert labs.processes_of(root) == []
    assert states(root) == {"joint": "CANCELLED", "uniform": "CANCELLED"}
    assert_goes_on(root, spec, undisturbed)


def test_ctrl_c_before_any_run_has_begun(root, tmp_path):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until((root / "results.db").exists)
        labs.wait_until(lambda: (root / "xmanager").exists())
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait(15) == 130
        assert labs.processes_of(root) == []
    assert set(states(root).values()) == {"CANCELLED"}


def test_a_second_ctrl_c_ends_what_does_not_stop(root, tmp_path):
    spec = labs.write_study(tmp_path, runs=NEVER_STOPS)
    with labs.started("launch", spec, "--parallel", 1, root=root) as launcher:
        labs.wait_until(lambda: list(root.glob("runs/deaf-*/deaf")))
        os.killpg(launcher.pid, signal.SIGINT)
        time.sleep(0.5)
        assert launcher.poll() is None
        assert len(labs.processes_of(root)) == 3  # launcher, worker, the worker's child
        began = time.monotonic()
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait(15) == 130
        assert time.monotonic() - began < 5
        assert labs.processes_of(root) == []
    assert states(root) == {"deaf": "CANCELLED", "next": "CANCELLED"}
    reason = sqlite3.connect(root / "results.db").execute("SELECT exit_code, state FROM attempt").fetchall()
    assert reason == [(-signal.SIGKILL, "CANCELLED")]


def test_two_launchers_at_once_train_nothing_twice(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with (
        labs.started("launch", spec, root=root) as first,
        labs.started("launch", spec, root=root) as second,
    ):
        said = first.communicate(timeout=60)[0] + second.communicate(timeout=60)[0]
        assert (first.returncode, second.returncode) == (0, 0), said
    assert results(root) == undisturbed
    assert {run: len(labs.starts(root, run)) for run in RUNS} == dict.fromkeys(RUNS, 1), said


def test_a_launcher_goes_on_when_the_other_is_stopped(root, tmp_path):
    hurry = tmp_path / "hurry"
    long = {"steps": 1_000, "pause": 0.05, "save_every": 100, "hurry": str(hurry)}
    spec = labs.write_study(tmp_path, runs={"long": long})
    with labs.started("launch", spec, root=root) as first:
        labs.wait_until(lambda: step_of(root, "long") > 5)
        with labs.started("launch", spec, root=root) as second:
            assert second.stdout is not None
            lines = iter(second.stdout.readline, "")
            assert any("by another launch" in line for line in lines)
            os.killpg(first.pid, signal.SIGINT)
            assert first.wait(15) == 130
            hurry.touch()
            said = second.communicate(timeout=60)[0]
            assert second.returncode == 0, said
    [(_, began), (_, resumed)] = labs.starts(root, "long")
    assert began == 0 < resumed
    assert states(root) == {"long": "COMPLETED"}


def test_what_is_being_launched_when_its_user_stops_it_never_begins(root, tmp_path):
    """Its executor waits, as for a fork server that was frozen; Ctrl-C ends that, too."""
    spec = labs.write_study(tmp_path, runs=RUNS)
    asked, halted = threading.Event(), threading.Event()

    class Frozen(ForkingLocal):
        def launch(self, job: Job) -> LaunchedJob:
            asked.set()
            assert halted.wait(60)
            return super().launch(job)

        def halt(self) -> None:
            super().halt()
            halted.set()

    def stop() -> None:
        assert asked.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    with labs.meanwhile(stop):
        outcome = labs.launch_here(root, plan(load(str(spec))), executor=Frozen)
    assert outcome.exit_code == 130
    assert set(states(root).values()) == {"CANCELLED"}
    assert labs.starts(root, "uniform") == []
