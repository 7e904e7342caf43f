"""Hundreds of runs: they are claimed, launched and recorded together, and nothing of a batch is lost."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from sqlalchemy import event

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.claiming import TOGETHER
from jestlab.platform.launch.controller import Outcome, launch
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executor import (
    Executor,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.options import Options
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store


class Counting(Executor):
    """An executor that is asked for many jobs at once; none of them does anything, and then it is over.

    Attributes:
        batches: How many jobs each call launched.
        asked: How many calls asked for states.
        stopped: Handles of jobs that were asked to stop.
        before: Called before each batch.
    """

    name = "kubernetes"
    chips = 0
    parallel: int | None = None

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.batches: list[int] = []
        self.asked = 0
        self.stopped: list[str] = []
        self.before = before
        self.halted = False
        self.launched: list[str] = []

    def launch(self, job: Job) -> LaunchedJob:
        raise AssertionError("one by one")

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        self.batches.append(len(jobs))
        self.before()
        if self.halted:
            return [ExecutorError("the launch was stopped") for _ in jobs]
        self.launched += [job.name for job in jobs]
        return [LaunchedJob(job.name, job.marks) for job in jobs]

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        self.asked += 1
        return dict.fromkeys(jobs, JobStatus(JobState.FAILED, "as the test wants it", 1))

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        self.stopped.append(job.handle)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        yield b""

    def halt(self) -> None:
        self.halted = True


class Ear(Listener):
    """Hears how many are launched.

    Attributes:
        heard: Done and total, each time.
    """

    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []

    def submitted(self, done: int, total: int) -> None:
        self.heard.append((done, total))


@pytest.fixture
def study(root: Path, tmp_path: Path) -> Plan:
    return plan(load(str(labs.write_study(tmp_path, runs={"uniform": {}}, seeds=300))))


def launched(root: Path, study: Plan, executor: Executor, listener: Listener | None = None) -> Outcome:
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    store.record(study)
    options = Options(executor="kubernetes", retries=0, keep_going=True)
    try:
        return launch(lab, store, "toy", study.runs, lambda _: executor, options=options, listener=listener)
    finally:
        store.close()


def rows(root: Path, sql: str) -> list[tuple[Any, ...]]:
    return sqlite3.connect(root / "results.db").execute(sql).fetchall()


def test_three_hundred_jobs_take_a_few_calls_and_transactions(root, study, monkeypatch):
    commits: list[int] = []
    opened = Store.open

    def counted(url: str, create: bool = True) -> Store:
        store = opened(url, create)
        event.listen(store.engine, "commit", lambda _: commits.append(1))
        return store

    monkeypatch.setattr(Store, "open", counted)
    executor, ear = Counting(), Ear()
    outcome = launched(root, study, executor, ear)
    assert set(outcome.states.values()) == {RunState.FAILED}
    assert executor.batches == [TOGETHER] * 6
    assert ear.heard == [(done, 300) for done in range(50, 301, 50)]
    # One pass a batch, one more that sees their ends: claims, handles, ends, and a few of the launcher's own.
    assert len(commits) <= 6 * 3 + 10
    assert executor.asked <= 10
    assert rows(root, "SELECT COUNT(*), COUNT(DISTINCT handle), MAX(number) FROM attempt") == [(300, 300, 1)]
    units = sqlite3.connect(root / "xmanager" / "experiments.db").execute("SELECT COUNT(*) FROM work_unit")
    assert units.fetchone() == (300,)


def test_a_stop_in_the_midst_of_a_batch_ends_what_was_claimed_and_starts_no_more(root, study):
    executor = Counting()

    def interrupt() -> None:
        if len(executor.batches) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            labs.wait_until(lambda: executor.halted)

    executor.before = interrupt
    outcome = launched(root, study, executor)
    assert outcome.exit_code == 130
    assert len(executor.launched) == TOGETHER
    assert rows(root, "SELECT COUNT(*) FROM attempt WHERE state IN ('PENDING', 'RUNNING')") == [(0,)]
    assert rows(root, "SELECT state, COUNT(*) FROM attempt WHERE handle IS NULL GROUP BY 1") == [
        ("CANCELLED", TOGETHER)
    ]
    counts = dict(rows(root, "SELECT state, COUNT(*) FROM run GROUP BY 1"))
    assert counts["CANCELLED"] >= 200 + TOGETHER
    assert counts.keys() <= {"CANCELLED", "FAILED"}


def test_a_store_that_is_away_in_the_midst_of_a_batch_learns_of_it_later(root, study, tmp_path):
    executor = Counting()
    files = [root / f"results.db{end}" for end in ("", "-wal", "-shm")]

    def move() -> None:
        if len(executor.batches) == 2:
            for file in files:
                if file.exists():
                    file.rename(tmp_path / file.name)

    def back() -> None:
        labs.wait_until(lambda: (tmp_path / "results.db").exists() and len(executor.launched) == 100)
        for file in files[::-1]:
            if (tmp_path / file.name).exists():
                (tmp_path / file.name).rename(file)

    executor.before = move
    with labs.meanwhile(back):
        launched(root, study, executor)
    assert len(executor.launched) == len(set(executor.launched)) == 300
    assert rows(root, "SELECT COUNT(*), COUNT(handle), MAX(number) FROM attempt") == [(300, 300, 1)]


def test_what_a_launcher_claimed_before_it_died_is_launched_by_the_next(root, study):
    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    with pytest.raises(Died):
        launched(root, study, Counting(die))
    held = "SELECT COUNT(*) FROM attempt WHERE state = 'PENDING'"
    assert rows(root, held) == [(TOGETHER,)]
    executor = Counting()
    launched(root, study, executor)
    assert len(set(executor.launched)) == 300
    assert rows(root, held) == [(0,)]
    ended = "SELECT state, reason, COUNT(*) FROM attempt WHERE handle IS NULL GROUP BY 1, 2"
    assert rows(root, ended) == [("PREEMPTED", "it was never launched", TOGETHER)]


def test_an_executor_that_refuses_a_whole_batch_fails_those_runs_alone(root, study):
    executor = Counting()

    def refuse() -> None:
        if len(executor.batches) == 1:
            raise ExecutorError("no such queue")

    executor.before = refuse
    launched(root, study, executor)
    assert len(executor.launched) == 250
    reasons = "SELECT reason, COUNT(*) FROM run GROUP BY 1 ORDER BY 2"
    assert rows(root, reasons) == [("no such queue", 50), ("as the test wants it", 250)]
