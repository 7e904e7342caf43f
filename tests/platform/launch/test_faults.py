"""Killed workers, killed launchers, Ctrl-C, and a second launcher.

If the test kills no process, jobs are threads of this process.
"""

import os
import signal
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from in_process import Machine, Threads, rows

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.launch import controller, liveness
from jestlab.platform.launch.claiming import XManagerRecord
from jestlab.platform.launch.display import Listener
from jestlab.platform.store import leases
from jestlab.platform.store.records import RunProgress

RUNS: dict[str, dict[str, Any]] = {"uniform": {"steps": 300}, "joint": {"needs": ["uniform"], "steps": 12}}
LONG = {"long": {"steps": 5_000, "pause": 0.02}, "next": {"needs": ["long"], "steps": 3}}


def results(root: Path) -> list[list[tuple[Any, ...]]]:
    """Return everything that tables are made from."""
    columns = {"v_metrics": "", "v_evaluations": ", examples_seen, flops_total, final"}
    return [
        rows(root, f"SELECT run, seed, name, step, value{more} FROM {view} ORDER BY 1, 2, 3, 4")
        for view, more in columns.items()
    ]


def states(root: Path) -> dict[str, str]:
    return dict(rows(root, "SELECT run, state FROM v_runs"))


def step_of(root: Path, run: str) -> int:
    """Return the last step that the store has of a run."""
    return max((step for (step,) in rows(root, f"SELECT step FROM v_metrics WHERE run = '{run}'")), default=0)


def launched(root: Path, spec: Path, **options: Any) -> int:
    return labs.launch_here(root, spec, **options).exit_code


def slow_study(folder: Path, **uniform: Any) -> Path:
    """A study of `RUNS`, of which one takes half a minute unless the file `hurry` is there."""
    slow = {"pause": 0.1, "save_every": 5, "hurry": str(folder / "hurry")}
    return labs.write_study(folder, runs=RUNS | {"uniform": RUNS["uniform"] | slow | uniform})


def wait_until_under_way(root: Path, run: str = "uniform") -> None:
    labs.wait_until(lambda: step_of(root, run) > 5)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> list[list[tuple[Any, ...]]]:
    """The results of the study in a lab where nothing went wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in labs.variables(folder / "lab").items():
            monkeypatch.setenv(name, value)
        Machine(monkeypatch)
        assert launched(folder / "lab", labs.write_study(folder, runs=RUNS)) == 0
    return results(folder / "lab")


def assert_goes_on(root: Path, spec: Path, undisturbed: list[list[tuple[Any, ...]]]) -> None:
    """Another launch completes a slow study, from a checkpoint, with the results of an undisturbed lab."""
    (spec.parent / "hurry").touch()
    assert launched(root, spec) == 0
    assert set(states(root).values()) == {"COMPLETED"}
    assert results(root) == undisturbed
    assert labs.starts(root, "uniform")[-1][1] > 0


# ---- jobs are threads


@pytest.mark.parametrize(
    ("harm", "state", "reason"),
    [
        ("kill", "FAILED", "killed by SIGKILL"),
        ("interrupt", "PREEMPTED", "stopped by SIGTERM"),
        ("preempt", "PREEMPTED", "node drained"),
        ("vanish", "PREEMPTED", "its process vanished"),
        ("freeze", "PREEMPTED", "no heartbeat for "),
    ],
)
def test_a_run_resumes_from_its_checkpoint(
    root, tmp_path, machine, monkeypatch, undisturbed, harm, state, reason
):
    """Only failures use up retries. A frozen worker is killed before the next attempt."""
    frozen_at: list[float] = []  # from then on, the clock runs so fast that a lease ends at once
    fast = lambda: 1_000 * (time.monotonic() - frozen_at[0]) if frozen_at else 0.0  # noqa: E731
    monkeypatch.setattr(liveness, "clock", lambda: time.monotonic() + fast())
    machine.on_freeze = lambda: frozen_at.append(time.monotonic())
    machine.harm("uniform", harm, 8)
    retries = 1 if state == "FAILED" else 0
    spec = labs.write_study(tmp_path, runs=RUNS, resources={"retries": retries})
    assert launched(root, spec) == 0
    assert results(root) == undisturbed
    attempts = rows(root, "SELECT state, reason FROM v_attempts WHERE run = 'uniform' ORDER BY number")
    assert [found for found, _ in attempts] == [state, "COMPLETED"]
    assert attempts[0][1].startswith(reason)
    resumed_at = 8 if harm == "interrupt" else 5  # a job that is asked to stop saves
    assert [step for _, step in labs.starts(root, "uniform")] == [0, resumed_at]
    assert not [thread for thread in machine.threads.values() if thread.is_alive()]


class Signaled(Listener):
    """Sends a signal to this process once a run has made progress."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number: int | None = number

    def progress(self, found: Mapping[str, RunProgress]) -> None:
        if self.number is not None and any(progress.step for progress in found.values()):
            os.kill(os.getpid(), self.number)
            self.number = None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_runs_and_the_next_launch_goes_on(root, tmp_path, machine, undisturbed, number):
    spec = slow_study(tmp_path)
    assert launched(root, spec, listener=Signaled(number)) == 130
    assert states(root) == {"joint": "CANCELLED", "uniform": "CANCELLED"}
    assert rows(root, "SELECT exit_code FROM attempt") == [(143,)]  # it was given time to save
    assert_goes_on(root, spec, undisturbed)


@pytest.mark.parametrize("reads", [True, False])
def test_with_a_full_disk_one_signal_ends_the_launcher(root, tmp_path, machine, monkeypatch, reads):
    """Its jobs can't write how they end, whether or not the store can still be read."""
    monkeypatch.setattr(Threads, "grace_seconds", 600.0)
    monkeypatch.setattr(controller, "MAX_STOP_SECONDS", 0.0)
    machine.harm("long", "ignore", 1)
    listener = Signaled(signal.SIGTERM)

    def standings(*given: Any) -> Any:
        if not reads and listener.number is None:
            raise StoreUnreachable("store results.db: the disk is full: make room")
        return known(*given)

    known = leases.standings
    monkeypatch.setattr(leases, "standings", standings)
    monkeypatch.setattr(controller, "is_full", lambda folder: listener.number is None)
    spec = labs.write_study(tmp_path, runs=LONG)
    assert launched(root, spec, listener=listener) == 130
    assert sum("disk full" in note and str(root) in note for note in listener.notes) == 1
    assert sum(note.startswith("attempt 1 may still run: local ") for note in listener.notes) == 1
    assert states(root)["long"] == "RUNNING"


def test_ctrl_c_before_any_run_has_begun(root, tmp_path, machine, monkeypatch):
    def interrupted(record: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        labs.wait_until(lambda: record._launcher.stopping)

    monkeypatch.setattr(XManagerRecord, "open", interrupted)
    assert launched(root, labs.write_study(tmp_path, runs=RUNS)) == 130
    assert set(states(root).values()) == {"CANCELLED"}
    assert machine.jobs == []


def test_the_first_failure_stops_all_where_that_is_wanted(root, tmp_path, machine):
    spec = labs.write_study(tmp_path, runs={"bad": {"fail_at": 3}, **LONG})
    assert launched(root, spec, fail_fast=True, parallel=2) == 1
    assert states(root) == {"bad": "FAILED", "long": "CANCELLED", "next": "CANCELLED"}


def test_retry_runs_what_failed_and_what_waited_for_it_and_nothing_else(root, tmp_path, machine):
    after = {"needs": ["flaky"], "steps": 3}
    runs = {"flaky": {"steps": 10}, "after": after, "stopped": {"steps": 4}, "done": {"steps": 5}}
    machine.harm("flaky", "kill", 7)
    assert launched(root, labs.write_study(tmp_path, runs=runs)) == 1
    with sqlite3.connect(root / "results.db") as database:
        database.execute("UPDATE run SET state = 'CANCELLED' WHERE directory LIKE 'runs/stopped%'")
    before = {"flaky": "FAILED", "after": "SKIPPED", "stopped": "CANCELLED", "done": "COMPLETED"}
    assert states(root) == before
    again = labs.here("retry", "toy", root=root)
    assert again.returncode == 0, again.stdout + again.stderr
    assert states(root) == before | {"flaky": "COMPLETED", "after": "COMPLETED"}
    assert "nothing to retry" in labs.here("retry", "toy", root=root).stdout


# ---- jobs are processes


def test_a_killed_launcher_leaves_its_workers_to_the_next_one(root, tmp_path):
    spec = slow_study(tmp_path, steps=600)
    launchers = "SELECT launcher FROM attempt"

    def hurry_when_found() -> None:
        labs.wait_until(lambda: rows(root, launchers) not in ([], first))
        (tmp_path / "hurry").touch()

    with labs.started("launch", spec, root=root) as launcher:
        wait_until_under_way(root)
        launcher.kill()
        launcher.wait()
        first = rows(root, launchers)
        with labs.meanwhile(hurry_when_found):
            assert launched(root, spec) == 0
    assert len(labs.starts(root, "uniform")) == 1
    completed = "SELECT run FROM v_runs WHERE state = 'COMPLETED' AND attempts = 1 ORDER BY run"
    assert rows(root, completed) == [("joint",), ("uniform",)]


def test_ctrl_c_ends_all_processes(root, tmp_path, undisturbed):
    """Also where the launcher was started with SIGINT ignored, as shells do in the background."""
    spec = slow_study(tmp_path)
    with labs.started("launch", spec, root=root, ignoring_sigint=True) as launcher:
        wait_until_under_way(root)
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait() == 130
        labs.wait_until_ended(root)
    assert states(root) == {"joint": "CANCELLED", "uniform": "CANCELLED"}
    assert_goes_on(root, spec, undisturbed)


def test_a_second_ctrl_c_ends_processes_that_do_not_stop(root, tmp_path):
    runs = {"deaf": {"program": "toy_programs:stubborn"}, "next": {"steps": 3}}
    spec = labs.write_study(tmp_path, runs=runs)
    with labs.started("launch", spec, "--parallel", 1, root=root) as launcher:
        labs.wait_until(lambda: list(root.glob("runs/deaf-*/deaf")))
        os.killpg(launcher.pid, signal.SIGINT)
        assert any("again to kill them" in line for line in launcher.stdout)
        assert len(labs.processes_of(root)) == 3  # launcher, worker, the worker's child
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait() == 130
        assert labs.processes_of(root) == []
    assert states(root) == {"deaf": "CANCELLED", "next": "CANCELLED"}
    assert rows(root, "SELECT exit_code, state FROM attempt") == [(-signal.SIGKILL, "CANCELLED")]


def test_cancel_ends_runs_that_another_launcher_looks_after(root, tmp_path):
    """That launcher does not start them again, even if it ignores SIGINT as in `nohup jestlab launch … &`."""
    spec = labs.write_study(tmp_path, runs=LONG)
    with labs.started("launch", spec, root=root, ignoring_sigint=True) as launcher:
        wait_until_under_way(root, "long")
        cancelled = labs.here("cancel", "toy", root=root)
        assert cancelled.returncode == 0, cancelled.stdout + cancelled.stderr
        assert "2 runs cancelled" in cancelled.stdout
        assert launcher.wait() == 1
        labs.wait_until_ended(root)
    assert set(states(root).values()) == {"CANCELLED"}
    assert labs.here("cancel", "toy", root=root).returncode == 0


def test_two_launchers_at_once_train_nothing_twice(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root) as first, labs.started("launch", spec, root=root) as second:
        said = first.communicate()[0] + second.communicate()[0]
        assert (first.returncode, second.returncode) == (0, 0), said
    assert "in the lab at" not in said  # both are in one lab
    assert results(root) == undisturbed
    assert {run: len(labs.starts(root, run)) for run in RUNS} == dict.fromkeys(RUNS, 1), said
