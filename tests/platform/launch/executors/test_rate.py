"""How fast requests are sent to an API, by a clock that the test moves."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from executor_harnesses import VertexHarness

from jestlab.platform.launch.executor import LaunchedJob
from jestlab.platform.launch.executors.rate import LONGEST_SECONDS, Rate, retry_after


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds


def rate(clock: Clock, per_second: float, at_once: int) -> Rate:
    return Rate(per_second, at_once, clock=clock.now, wait=clock.wait)


def times(of: Rate, clock: Clock, count: int) -> list[float]:
    """Return when each of so many requests was sent, in seconds after 100."""
    found = []
    for _ in range(count):
        of.take()
        found.append(round(clock.seconds - 100.0, 6))
    return found


def test_after_a_few_at_once_requests_are_evenly_spaced():
    clock = Clock()
    of = rate(clock, 10.0, 3)
    assert times(of, clock, 6) == [0.0, 0.0, 0.0, 0.0, 0.1, 0.2]
    clock.seconds = 200.0  # a pause saves up no more requests than there were in the beginning
    assert times(of, clock, 6) == [100.0, 100.0, 100.0, 100.0, 100.1, 100.2]


def test_a_pause_holds_for_all_and_the_longest_counts():
    clock = Clock()
    of = rate(clock, 1000.0, 100)
    of.pause(7.0)
    of.pause(2.0)
    assert times(of, clock, 2) == [7.0, 7.0]
    of.pause(1e9)
    assert times(of, clock, 1) == [7.0 + LONGEST_SECONDS]


def test_a_stop_ends_waiting():
    of = Rate(1000.0, 1)
    of.pause(LONGEST_SECONDS)
    waiting = threading.Thread(target=of.take)
    waiting.start()
    of.halt()
    waiting.join(60.0)
    assert not waiting.is_alive()
    assert of.halted


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "12"}, 12.0),
        ({"retry-after": "0"}, 0.0),
        ({"Retry-After": "Wed, 25 Nov 2026 00:00:30 GMT"}, 30.0),
        ({"Retry-After": "Tue, 24 Nov 2026 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Date": "Wed, 25 Nov 2026 00:00:30 GMT"}, None),
        (None, None),
    ],
)
def test_reads_the_pause_from_an_answer(headers, seconds):
    now = datetime(2026, 11, 25, tzinfo=UTC).timestamp()
    assert retry_after(headers, now) == seconds


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VertexHarness]:
    with closing(VertexHarness(tmp_path, monkeypatch)) as made:
        yield made


def test_too_many_requests_are_no_failure_and_pause_every_thread(harness):
    executor, clock = harness.executor(), Clock()
    executor._rate = rate(clock, 1000.0, 100)
    harness.api.retry_after = "5"
    harness.spoil(429, 429, 429)
    jobs = [harness.job(f"jestlab-0a1b2c3d-{number}") for number in range(1, 5)]
    found = executor.launch_all(jobs)
    assert all(isinstance(job, LaunchedJob) for job in found), found
    assert harness.count() == len(jobs)
    assert clock.seconds >= 105.0


def test_after_a_stop_nothing_more_is_sent(harness):
    executor = harness.executor()
    [first] = executor.launch_all([harness.job("jestlab-0a1b2c3d-1")])
    executor.halt()
    [second] = executor.launch_all([harness.job("jestlab-0a1b2c3d-2")])
    assert str(second) == "the launch was stopped"
    assert harness.count() == 1
    executor.stop(first, now=True)  # a job that was sent can still be stopped
