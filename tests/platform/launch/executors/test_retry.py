"""Calls that fail for a passing reason are repeated; other errors are raised at once."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from executor_harnesses import VertexHarness

from jestlab.platform.launch.executors import retry
from jestlab.platform.launch.executors.base import ExecutorError, ExecutorUnavailable, LaunchedJob
from jestlab.platform.launch.executors.retry import ATTEMPTS, LONGEST_SECONDS, Transient, retried, retry_after


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses in seconds, which take no time."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: found.append(timeout))
    return found


def failing(*errors: Exception):
    """Return a function that raises these errors, one per call, and then returns 7."""
    left = list(errors)

    def act() -> int:
        if left:
            raise left.pop(0)
        return 7

    return act


def test_a_transient_error_is_repeated_with_growing_pauses(pauses):
    transient = Transient(ExecutorUnavailable("busy"))
    assert retried(failing(*[transient] * (ATTEMPTS - 1))) == 7
    assert len(pauses) == ATTEMPTS - 1
    assert pauses == sorted(pauses) and pauses[0] > 0
    with pytest.raises(ExecutorUnavailable, match="busy"):
        retried(failing(*[transient] * ATTEMPTS))


def test_other_errors_are_raised_at_once(pauses):
    for error in (ExecutorError("no"), ExecutorUnavailable("later"), KeyError("bug")):
        with pytest.raises(type(error)):
            retried(failing(error))
    assert pauses == []


def test_the_pause_that_a_service_asks_for_is_kept_within_bounds(pauses):
    asked = [Transient(ExecutorUnavailable("busy"), seconds) for seconds in (7.0, 0.0, 1e9)]
    assert retried(failing(*asked)) == 7
    assert pauses == [7.0, 0.0, LONGEST_SECONDS]


def test_a_stop_ends_pauses():
    halted = threading.Event()

    def act() -> None:
        halted.set()
        raise Transient(ExecutorUnavailable("busy"), LONGEST_SECONDS)

    with pytest.raises(ExecutorUnavailable):
        retried(act, halted)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "12"}, 12.0),
        ({"retry-after": "0"}, 0.0),
        ({"Retry-After": format_datetime(datetime.now(UTC) - timedelta(days=1))}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Date": format_datetime(datetime.now(UTC))}, None),
        (None, None),
    ],
)
def test_reads_the_pause_from_an_answer(headers, seconds):
    assert retry_after(headers) == seconds


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VertexHarness]:
    with closing(VertexHarness(tmp_path, monkeypatch)) as made:
        yield made


def test_too_many_requests_are_no_failure(harness, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(retry, "LONGEST_SECONDS", 0.01)
    executor = harness.executor()
    monkeypatch.setattr(executor._halted, "wait", lambda timeout: slept.append(timeout))
    harness.api.retry_after = "5"
    harness.spoil(429, 429, 429)
    jobs = [harness.job(f"jestlab-0a1b2c3d-{number}") for number in range(1, 5)]
    found = executor.launch_all(jobs)
    assert all(isinstance(job, LaunchedJob) for job in found), found
    assert harness.count() == len(jobs)
    assert slept == [0.01] * 3


def test_after_a_stop_nothing_more_is_sent(harness):
    executor = harness.executor()
    [first] = executor.launch_all([harness.job("jestlab-0a1b2c3d-1")])
    executor.halt()
    [second] = executor.launch_all([harness.job("jestlab-0a1b2c3d-2")])
    assert isinstance(second, ExecutorError)
    assert harness.count() == 1
    executor.stop(first, now=True)  # a job that was sent can still be stopped
