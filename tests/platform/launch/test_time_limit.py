"""`time` on this machine: runs save before the limit and resume, and end at the limit if they don't stop."""

import os
import signal

import labs_support as labs
import pytest
from in_process import rows
from tests.waiting import wait_until

from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.launch.retries import judge_end
from jestlab.platform.processes import EXIT_LATE
from jestlab.platform.spec.resources import Resources, stop_early_seconds
from jestlab.platform.store.records import RunState

ATTEMPTS = "SELECT state, COALESCE(reason, '') FROM attempt ORDER BY id"


@pytest.mark.parametrize(
    ("limit", "early"), [(4, 2), (60, 20), (600, 60), (86_400, 120), (float("inf"), 120)]
)
def test_a_run_is_asked_to_stop_early_enough_to_save(limit, early):
    assert stop_early_seconds(limit) == early


@pytest.mark.parametrize("on", ["local", "vertex"])
def test_executors_without_time_limits_of_their_own_accept_them(on):
    Resources(on=on, time="2h", tpu=None if on == "local" else "v5e-2x2")


@pytest.mark.full
def test_a_run_longer_than_the_limit_saves_before_it_and_resumes_without_using_a_retry(root, tmp_path):
    hurry = tmp_path / "hurry"
    one = {"steps": 400, "pause": 0.05, "save_every": 1000, "hurry": str(hurry)}
    study = labs.write_study(tmp_path, runs={"one": one}, resources={"retries": 0, "time": "16s"})
    with labs.started("launch", study, "--no-reports", root=root) as launcher:
        wait_until(lambda: len(rows(root, ATTEMPTS)) == 2)
        hurry.touch()
        said, _ = launcher.communicate()
    assert launcher.returncode == 0, said
    assert rows(root, ATTEMPTS) == [("PREEMPTED", "stopped before its time limit"), ("COMPLETED", "")]
    (_, first), (_, second) = labs.starts(root, "one")
    assert first == 0 < second


@pytest.mark.full
def test_the_limit_holds_without_the_launcher_also_for_a_run_that_does_not_stop(root, tmp_path):
    study = labs.write_study(
        tmp_path, runs={"deaf": {"program": "toy_programs:stubborn"}}, resources={"retries": 0, "time": "14s"}
    )
    with labs.started("launch", study, "--no-reports", root=root) as launcher:
        wait_until(lambda: list(root.glob("runs/*/deaf")))
        os.kill(launcher.pid, signal.SIGKILL)
        labs.wait_until_ended(root)  # the worker, and its child that ignores signals
    [log] = root.glob("runs/*/log.txt")
    assert "ended at its time limit" in log.read_text()


def test_a_worker_that_ends_itself_at_the_limit_is_preempted():
    late = JobStatus(JobState.FAILED, "exit code 124", EXIT_LATE)
    assert judge_end(late) == (RunState.PREEMPTED, "ended at its time limit")
