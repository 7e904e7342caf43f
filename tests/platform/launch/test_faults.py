"""What a launch survives: killed workers, killed launchers, Ctrl-C, and a second launcher beside it."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest

RUNS = {
    "reference": {"steps": 40, "pause": 0.02},
    "joint": {"needs": ["reference"], "steps": 12},
    "uniform": {"steps": 60, "pause": 0.02},
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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, list[tuple[Any, ...]]]:
    """The results of the study in a lab where nothing went wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    spec = labs.write_study(folder, runs=RUNS)
    assert labs.jestlab("launch", spec, root=folder / "lab").returncode == 0
    return results(folder / "lab")


def assert_goes_on(root: Path, spec: Path, undisturbed: dict[str, list[tuple[Any, ...]]]) -> None:
    """The same command completes the study, from a checkpoint, with the results of an undisturbed lab."""
    assert labs.processes_of(root) == []
    again = labs.jestlab("launch", spec, root=root)
    assert again.returncode == 0, again.stdout + again.stderr
    assert set(states(root).values()) == {"COMPLETED"}
    assert results(root) == undisturbed
    assert labs.starts(root, "uniform")[-1][1] > 0


def test_a_worker_killed_in_mid_run(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: step_of(root, "uniform") > 5)
        [(worker, _)] = labs.starts(root, "uniform")
        os.kill(worker, signal.SIGKILL)
        assert launcher.wait(60) == 1
    assert states(root) == {"reference": "COMPLETED", "joint": "COMPLETED", "uniform": "FAILED"}
    assert_goes_on(root, spec, undisturbed)


def test_a_launcher_killed_in_mid_run(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: step_of(root, "uniform") > 5)
        launcher.kill()
        launcher.wait()
        labs.wait_until(lambda: not labs.processes_of(root), seconds=10)
    assert states(root)["uniform"] == "PREEMPTED"
    assert_goes_on(root, spec, undisturbed)


def test_launcher_and_worker_killed_at_once(root, tmp_path, undisturbed):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: step_of(root, "uniform") > 5)
        launcher.kill()
        for pid in labs.processes_of(root):
            os.kill(pid, signal.SIGKILL)
        launcher.wait()
        labs.wait_until(lambda: not labs.processes_of(root))
    assert states(root)["uniform"] == "RUNNING"  # nobody was left to say otherwise
    status = labs.jestlab("status", "toy", root=root).stdout
    assert "its process has vanished: launch again to go on" in status
    assert_goes_on(root, spec, undisturbed)
    ended = sqlite3.connect(root / "results.db").execute(
        "SELECT DISTINCT reason FROM attempt WHERE state = 'PREEMPTED'"
    )
    assert ended.fetchall() == [("its process vanished",)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_launch_stopped_by_its_user(root, tmp_path, undisturbed, number):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: step_of(root, "uniform") > 5)
        os.killpg(launcher.pid, number)
        assert launcher.wait(15) == 130
        assert labs.processes_of(root) == []
    assert states(root) == {"reference": "CANCELLED", "joint": "CANCELLED", "uniform": "CANCELLED"}
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
    spec = labs.write_study(tmp_path, runs={"long": {"steps": 600, "pause": 0.01}})
    with labs.started("launch", spec, root=root) as first:
        labs.wait_until(lambda: step_of(root, "long") > 5)
        with labs.started("launch", spec, root=root) as second:
            assert second.stdout is not None
            lines = iter(second.stdout.readline, "")
            assert any("by another launch" in line for line in lines)
            os.killpg(first.pid, signal.SIGINT)
            assert first.wait(15) == 130
            said = second.communicate(timeout=60)[0]
            assert second.returncode == 0, said
    [(_, began), (_, resumed)] = labs.starts(root, "long")
    assert began == 0 < resumed
    assert states(root) == {"long": "COMPLETED"}
