"""The status of runs, and why a run has not started."""

from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from unittest.mock import Mock

import plans_support as plans
import pytest
from tests.waiting import wait_until

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.launch.reconcile import SLOT, is_plain_wait
from jestlab.platform.launch.retries import RetryRules
from jestlab.platform.launch.status import (
    RunStatus,
    WaitStatus,
    Watch,
    read_status,
    reason_lines,
    wait_status,
)
from jestlab.platform.store.claims import LIMIT
from jestlab.platform.store.records import Lease, RunState, RunSummary, Standing
from jestlab.platform.store.store import Store

NOW = datetime(2026, 11, 23, 12)
RULES = RetryRules(retries=2, backoff_seconds=2.0, max_backoff_seconds=300.0)
NEEDS = [("reference/0", RunState.COMPLETED)]
OPEN = [("reference/0", RunState.RUNNING)]
MORE = [*OPEN, ("cache/0", RunState.BLOCKED)]
BLOCKED, FAILED, PENDING = RunState.BLOCKED, RunState.FAILED, RunState.PENDING


def run(state: RunState, reason: str | None = None, lease: Lease | None = None, **changes) -> Standing:
    return replace(Standing("f" * 64, state, reason, 0, None, 0, 0, None, "runs/a", lease), **changes)


def attempt(state: RunState, seconds_ago: float = 0.0) -> Lease:
    ended = None if state == RunState.PENDING else NOW - timedelta(seconds=seconds_ago)
    return Lease(
        7, "f" * 64, 1, state, None, "host:1:0", "local", None, None, 90.0, NOW, ended, None, "log.txt"
    )


RETRIED = "failed: killed by SIGKILL; retry 2 of 2"


def failed(seconds_ago: float) -> Standing:
    """A run that failed twice, and is to be tried again."""
    return run(PENDING, RETRIED, attempt(FAILED, seconds_ago), failures=2)


@pytest.mark.parametrize(
    ("standing", "needs", "state", "reason"),
    [
        (run(BLOCKED), OPEN, BLOCKED, "waits for reference/0, which is RUNNING"),
        (run(BLOCKED), MORE, BLOCKED, "waits for reference/0, which is RUNNING, and 1 more"),
        (run(BLOCKED), [*OPEN, *NEEDS], BLOCKED, "waits for reference/0, which is RUNNING"),  # of one title
        (run(BLOCKED), NEEDS, PENDING, "waits for a slot"),
        (run(PENDING), [], PENDING, "waits for a slot"),
        (failed(seconds_ago=0.0), [], PENDING, f"{RETRIED}; in 8 s"),
        (failed(seconds_ago=9.0), [], PENDING, f"{RETRIED}; waits for a slot"),
        (run(PENDING, None, attempt(PENDING)), [], PENDING, "starting"),
        (run(PENDING, "ImagePullBackOff", attempt(PENDING)), [], PENDING, "ImagePullBackOff"),
        (run(FAILED, "because"), OPEN, FAILED, "because"),
        (run(PENDING, "because", stop_reason="me"), [], PENDING, "because"),
    ],
)
def test_each_case(standing, needs, state, reason):
    assert wait_status(standing, needs, RULES, NOW, is_launched=True)[:2] == (state, reason)


def test_a_plain_wait_may_get_another_reason():
    plain = {None: True, f"{SLOT}: 2 of 2": True, f"{LIMIT} of 5 chip-hours": True, RETRIED: False}
    assert {reason: is_plain_wait(reason) for reason in plain} == plain


def test_without_a_launcher_it_waits_for_one():
    found = wait_status(run(BLOCKED), NEEDS, RULES, NOW, is_launched=False)
    assert found[:2] == (PENDING, "not launched: no launcher is alive")
    assert "jestlab launch" in found.unblock
    assert wait_status(run(BLOCKED), OPEN, RULES, NOW, is_launched=False)[0] == BLOCKED


def test_the_reason_and_the_place_of_a_queued_job_are_told_apart():
    text = JobStatus(JobState.QUEUED, "wait,  or\nask", place="2nd of 3").waits
    found = wait_status(run(PENDING, text, attempt(PENDING)), [], RULES, NOW, is_launched=True)
    assert found[1:] == ("wait, or ask", "2nd of 3", "")


def test_counts_waiting_runs_whose_shown_names_agree():
    wait = WaitStatus(PENDING, "waits for a slot", unblock="a free slot")
    labels = [(letter, 300 * "a" + letter + 300 * "z") for letter in "12345"]
    summaries = [
        RunSummary(
            64 * letter, "a", label, 0, PENDING, wait.reason, 0, None, 0, "runs/a", None, None, "train"
        )
        for letter, label in [*labels, ("5", "another label of the last")]
    ]
    line, names, _ = reason_lines([RunStatus(summary, wait=wait) for summary in summaries])
    assert line == "5 runs waiting for a slot" and names.endswith(" and 1 more")


def test_logs_of_a_lab_in_a_bucket_have_their_address_unless_they_are_here(tmp_path):
    failed = RunSummary(64 * "f", "a", "a", 0, FAILED, "no", 0, None, 1, "runs/a", None, None, "train")
    lab = Lab(tmp_path, "postgresql://lab@db.example/results", remote="gs://bucket/lab")
    reason = ["1 run FAILED: no", "  a/0"]
    assert [*reason_lines([RunStatus(failed)], lab)] == [*reason, "  log: gs://bucket/lab/runs/a/log.txt"]
    log = tmp_path / "runs" / "a" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text("no")
    assert [*reason_lines([RunStatus(failed)], lab)] == [*reason, f"  log: {log}"]
    assert [*reason_lines([RunStatus(failed)])] == reason


def test_only_runs_that_may_have_changed_are_read_again(sqlite_url, tmp_path, monkeypatch):
    planned = plans.reference_and_two()
    with closing(Store.open(sqlite_url)) as store:
        plans.record(store, planned)
        plans.begun(store, planned.runs[0], tmp_path).complete()
        watch = Watch(store, "toy")
        before = watch.update()
        attempt = plans.begun(store, planned.runs[1], tmp_path)
        read = Mock(wraps=store.runs)
        monkeypatch.setattr(store, "runs", read)
        rows = wait_until(lambda: (rows := watch.update()) is not before and rows)
        assert rows == read_status(store, "toy") != before and rows[0] is before[0]
        assert read.call_args_list[0].args[1] == {run.fingerprint for run in planned.runs[1:]}
        attempt.complete()
        wait_until(lambda: watch.update()[1].run.state == RunState.COMPLETED)
