"""Many runs: they are claimed, launched, and recorded in batches, and nothing of a batch is lost."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import labs_support as labs
import pytest
from in_process import Scripted, launch_by, rows
from sqlalchemy import event

from jestlab.platform.errors import StoreError
from jestlab.platform.launch import claiming
from jestlab.platform.launch.executors.base import ExecutorError, JobState, JobStatus
from jestlab.platform.planning.plan import Plan
from jestlab.platform.store import claims
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

BATCH, BATCHES = 5, 6
RUNS = BATCH * BATCHES


@pytest.fixture
def study(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrecorded: None) -> Plan:
    monkeypatch.setattr(claiming, "BATCH", BATCH)
    return labs.planned(labs.write_study(tmp_path, runs={"uniform": {}}, seeds=RUNS))


def failing(before_launch: Callable[[], object] = lambda: None) -> Scripted:
    return Scripted(JobStatus(JobState.FAILED, "as the test wants it", 1), before_launch)


def test_many_jobs_take_a_few_calls_and_transactions(root, study, monkeypatch):
    commits: list[int] = []
    opened = Store.open

    def counted(url: str, create: bool = True) -> Store:
        store = opened(url, create)
        event.listen(store.engine, "commit", lambda _: commits.append(1))
        return store

    monkeypatch.setattr(Store, "open", counted)
    executor = failing()
    outcome = launch_by(executor, root, study, keep_going=True)
    assert set(outcome.states.values()) == {RunState.FAILED}
    assert executor.batches == [BATCH] * BATCHES
    # One pass for each batch and one more that sees their ends: claims, handles, ends, and a few others.
    assert len(commits) <= BATCHES * 3 + 10
    assert executor.asked <= BATCHES + 4
    counts = "SELECT COUNT(*), COUNT(DISTINCT handle), MAX(number) FROM attempt"
    assert rows(root, counts) == [(RUNS, RUNS, 1)]


def test_a_stop_within_a_batch_ends_what_was_claimed_and_starts_no_more(root, study):
    def interrupt() -> None:
        if len(executor.batches) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            labs.wait_until(lambda: executor.halted)

    executor = failing(interrupt)
    outcome = launch_by(executor, root, study, keep_going=True)
    assert outcome.exit_code == 130
    assert len(executor.launched) == BATCH
    assert rows(root, "SELECT COUNT(*) FROM attempt WHERE state IN ('PENDING', 'RUNNING')") == [(0,)]
    never_launched = "SELECT state, COUNT(*) FROM attempt WHERE handle IS NULL GROUP BY 1"
    assert rows(root, never_launched) == [("CANCELLED", BATCH)]
    # The first batch had failed before or is stopped with the others.
    counts = dict(rows(root, "SELECT state, COUNT(*) FROM run GROUP BY 1"))
    assert counts["CANCELLED"] >= RUNS - BATCH
    assert counts.keys() <= {"CANCELLED", "FAILED"}


def test_a_store_that_is_away_during_a_batch_is_updated_later(root, study, monkeypatch):
    store_handles = claims.store_handles
    away = root.with_name("elsewhere")

    def noted(store: Store, handles: dict[int, str]) -> None:
        try:
            store_handles(store, handles)
        except StoreError:
            away.rename(root)
            raise

    executor = failing(lambda: root.rename(away) if len(executor.batches) == 2 else None)
    monkeypatch.setattr(claims, "store_handles", noted)
    launch_by(executor, root, study, keep_going=True)
    assert not away.exists()
    assert len(executor.launched) == len(set(executor.launched)) == RUNS
    assert rows(root, "SELECT COUNT(*), COUNT(handle), MAX(number) FROM attempt") == [(RUNS, RUNS, 1)]


def test_what_a_launcher_claimed_before_it_died_is_launched_by_the_next(root, study):
    def die() -> None:
        raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        launch_by(failing(die), root, study, keep_going=True)
    held = "SELECT COUNT(*) FROM attempt WHERE state = 'PENDING'"
    assert rows(root, held) == [(BATCH,)]
    executor = failing()
    launch_by(executor, root, study, keep_going=True)
    assert len(set(executor.launched)) == RUNS
    assert rows(root, held) == [(0,)]
    ended = "SELECT state, reason, COUNT(*) FROM attempt WHERE handle IS NULL GROUP BY 1, 2"
    assert rows(root, ended) == [("PREEMPTED", "it was never launched", BATCH)]


def test_an_executor_that_refuses_a_whole_batch_fails_those_runs_alone(root, study):
    def refuse() -> None:
        if len(executor.batches) == 1:
            raise ExecutorError("no such queue")

    executor = failing(refuse)
    launch_by(executor, root, study, keep_going=True)
    assert len(executor.launched) == RUNS - BATCH
    reasons = "SELECT reason, COUNT(*) FROM run GROUP BY 1 ORDER BY 2"
    assert rows(root, reasons) == [("no such queue", BATCH), ("as the test wants it", RUNS - BATCH)]
