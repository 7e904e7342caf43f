"""Stores filled without a launch, for tests of the code that reads them."""

import functools
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection, delete, insert, update

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store import tables
from jestlab.platform.store.batches import write_points
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

START = datetime(2026, 11, 20, 12, 0, 0)


@functools.cache
def _empty_store() -> bytes:
    """Return the file of an empty SQLite store, so that only one per process is created."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        Store.open(f"sqlite:///{path}").close()
        return path.read_bytes()


def empty_store(path: Path) -> str:
    """Write the file of an empty SQLite store, and return its URL."""
    path.write_bytes(_empty_store())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE identity SET id = ?, place = NULL", (uuid.uuid4().hex,))
    return f"sqlite:///{path}"


def empty_lab(root: Path) -> Lab:
    root.mkdir(parents=True)
    return Lab.find(root, empty_store(root / "results.db"))


def run_id(store: Store, run: PlannedRun) -> int:
    return tables.run_key(run.fingerprint)


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.reading() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def attempt(
    store: Store,
    run: PlannedRun,
    state: RunState = RunState.COMPLETED,
    *,
    number: int = 1,
    scores: dict[str, float] | None = None,
    loss: tuple[float, ...] = (),
    started: datetime = START,
    **columns: Any,
) -> int:
    """Insert an attempt and its results, set the state of the run, and return the attempt's ID."""
    over = state not in (RunState.PENDING, RunState.RUNNING)
    ended = started + timedelta(minutes=2)
    values: dict[str, Any] = {
        "run_id": run_id(store, run),
        "number": number,
        "state": state,
        "executor": "local",
        "chips": 0,
        "claimed_at": started,
        "started_at": started,
        "heartbeat_at": started,
        "ended_at": ended if over else None,
        "host": "host",
        "pid": 17,
        "exit_code": 0 if over else None,
        "log": f"{run.directory}/log.txt",
        "versions": json.dumps({"python": "3.11.7"}),
        "device": "2 cores",
    }
    with store.writing() as connection:
        made = insert(tables.AttemptRow).values(**(values | columns)).returning(tables.AttemptRow.id)
        attempt_id = connection.execute(made).scalar_one()
        connection.execute(
            update(tables.RunRow)
            .where(tables.RunRow.id == values["run_id"])
            .values(state=state, reason=columns.get("reason"), step=len(loss), updated_at=ended)
        )
        of_run = {"run_id": values["run_id"]}
        cost = {"step": 10, "examples_seen": 640, "flops_total": 1e9, "attempt": number}
        if scores is not None:  # the last write wins
            connection.execute(delete(tables.EvaluationRow).filter_by(**of_run))
        for name, value in (scores or {}).items():
            dataset, _, metric = name.rpartition("/")
            score = {"dataset": dataset, "metric": metric, "value": value}
            connection.execute(insert(tables.EvaluationRow).values(**of_run, **score, **cost))
        if loss:
            points = [(step, "loss", value) for step, value in enumerate(loss, start=1)]
            write_points(connection, values["run_id"], points)
    return attempt_id


def folder(lab: Lab, run: PlannedRun, size: int = 1000) -> Path:
    path = lab.root / run.directory
    (path / "checkpoints" / "10").mkdir(parents=True)
    (path / "checkpoints" / "10" / "state").write_bytes(b"x" * size)
    (path / "log.txt").write_text(f"--- attempt 1\n{run.label} {run.seed}\n")
    return path


class Unreliable:
    """A store whose transactions can fail; otherwise it's the real one.

    Attributes:
        refusals: Number of transactions that fail before the store can be reached again.
        loses_answer: Called after each commit; whether its answer gets lost.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.engine = store, store.engine
        self.refusals: float = 0
        self.loses_answer: Callable[[], bool] = lambda: False

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnreachable("no answer")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        self._refuse()
        with self.store.reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        self._refuse()
        with self.store.writing() as connection:
            yield connection
        if self.loses_answer():
            raise StoreUnreachable("committed, but the answer was lost")
