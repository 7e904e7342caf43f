"""`--parallel` and `--max-chip-hours` limit all launchers of a store together."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
from in_process import Scripted
from stores_support import rows

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.controller import launch
from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.launch.options import ControllerOptions
from jestlab.platform.launch.outcome import LaunchOutcome
from jestlab.platform.planning.plan import RunBudget
from jestlab.platform.store import claims, leases
from jestlab.platform.store.store import Store

LAUNCHERS = 4


class Launchers:
    """Launchers in threads, each of another study; their jobs run until `release`."""

    def __init__(self, store_url: str, root: Path) -> None:
        self.executor = Scripted(JobStatus(JobState.RUNNING))
        self.outcomes: list[Future[LaunchOutcome]] = []
        self._lab = Lab.find(root, store_url)
        self._store = Store.open(store_url)
        self._pool = ThreadPoolExecutor(LAUNCHERS)

    def start(self, count: int = LAUNCHERS, runs: int = 2, **options: Any) -> None:
        self.outcomes += [self._pool.submit(self._launch, f"study{i}", runs, options) for i in range(count)]

    def record(self, study: str, count: int) -> list[Any]:
        """Record runs of which each is planned to take 2.5 chip-hours."""
        runs = [plans.run(f"run{i}", config={"of": study, "run": i}) for i in range(count)]
        planned = [replace(run, budget=RunBudget("v5e", 1, 2.5)) for run in runs]
        plans.record(self._store, plans.plan(*planned, name=study))
        return planned

    def release(self) -> list[LaunchOutcome]:
        """Let all jobs end; return how the launches ended."""
        self.executor.status = JobStatus(JobState.SUCCEEDED)
        return [outcome.result(60) for outcome in self.outcomes]

    def reasons(self) -> list[str]:
        return [reason for (reason,) in rows(self._store, "SELECT reason FROM run WHERE reason IS NOT NULL")]

    def attempts(self) -> tuple[int, int]:
        """Count all attempts, and the most at once."""
        spans = [(str(a), str(b)) for a, b in rows(self._store, "SELECT claimed_at, ended_at FROM attempt")]
        return len(spans), max(sum(a <= claimed < b for a, b in spans) for claimed, _ in spans)

    def close(self) -> None:
        self.release()
        self._pool.shutdown()
        self._store.close()

    def _launch(self, study: str, count: int, options: dict[str, Any]) -> LaunchOutcome:
        how = ControllerOptions(on="kubernetes", retries=0, keep_going=True, **options)
        with closing(Store.open(self._lab.store_url)) as store:
            runs = self.record(study, count)
            return launch(self._lab, store, study, runs, lambda _: self.executor, options=how)


@pytest.fixture
def launchers(store_url: str, root: Path, unrecorded: None, own_names: None) -> Iterator[Launchers]:
    with closing(Launchers(store_url, root)) as made:
        yield made


@pytest.mark.both_databases
def test_launchers_share_their_slots(launchers):
    launchers.start(parallel=2)
    labs.wait_until(lambda: len(launchers.reasons()) == 2 * LAUNCHERS - 2)
    assert launchers.attempts() == (2, 2)
    assert all(reason.startswith("waits for a slot: 2 of 2 taken") for reason in launchers.reasons())
    assert any(reason.endswith("by another launch") for reason in launchers.reasons())
    assert [outcome.stopped for outcome in launchers.release()] == [None] * LAUNCHERS
    assert launchers.attempts() == (2 * LAUNCHERS, 2)


def test_launchers_stay_below_one_limit_of_chip_hours(launchers):
    """Those that can start nothing end at once and report why; the others end when their runs have ended."""
    launchers.start(max_chip_hours=5.0)
    labs.wait_until(lambda: sum(outcome.done() for outcome in launchers.outcomes) >= LAUNCHERS - 2)
    assert launchers.attempts() == (2, 2)
    outcomes = launchers.release()
    assert launchers.attempts()[1] == 2
    assert {outcome.exit_code for outcome in outcomes} == {1}
    stopped = [outcome.stopped for outcome in outcomes if outcome.stopped is not None]
    assert len(stopped) >= LAUNCHERS - 2
    assert all(reason.startswith("the limit of 5 chip-hours is reached") for reason in stopped)


def test_the_slot_of_a_launcher_that_died_before_it_launched_its_job_is_free(launchers):
    """No other launcher of its study is there to end the attempt."""
    [run] = launchers.record("gone", 1)
    launcher = leases.enter_launcher(launchers._store, "elsewhere:1:0")
    terms = claims.ClaimTerms(launcher, "kubernetes", 0)
    assert claims.claim(launchers._store, run.fingerprint, "log.txt", terms)
    leases.remove_launcher(launchers._store, launcher)
    launchers.start(1, runs=1, parallel=1)
    labs.wait_until(lambda: launchers.executor.launched)
    assert [outcome.stopped for outcome in launchers.release()] == [None]
