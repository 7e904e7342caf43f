"""What a worker writes: one attempt at a run, from its beginning to its end."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select, update

from jestlab.platform.errors import UserError
from jestlab.platform.store.provenance import Provenance, device
from jestlab.platform.store.sql import insert, now, to_json
from jestlab.platform.store.states import RunState
from jestlab.platform.store.store import Store, move
from jestlab.platform.store.tables import Artifact, Evaluation, Metric, MetricName, Run
from jestlab.platform.store.tables import Attempt as AttemptRow

FLUSH_POINTS = 1_000
"""Points that are written at once, without waiting for the second to end."""

TICK_SECONDS = 1.0
"""How often buffered points are written."""

HEARTBEAT_SECONDS = 10.0
"""How often an attempt says that it lives when it has nothing else to write."""


class AttemptLost(Exception):
    """Another worker has taken the run over: this one may write no more."""


class Attempt:
    """One worker's go at a run. Points are buffered and written in bulk; the last write of a step wins.

    A background thread writes what is buffered every second. All methods may be called from any thread.
    """

    def __init__(self, store: Store, fingerprint: str, run_id: int, attempt_id: int, number: int) -> None:
        """Use `begin`."""
        self.number = number
        self._store = store
        self._fingerprint = fingerprint
        self._run_id = run_id
        self._id = attempt_id
        self._lock = threading.Lock()
        self._names: dict[str, int] = {}
        self._points: list[tuple[int, str, float | None]] = []
        self._scores: list[dict[str, Any]] = []
        self._progress: tuple[int, int] | None = None
        self._written_at = time.monotonic()
        self._ended = threading.Event()
        self._lost: AttemptLost | None = None
        self._ticker = threading.Thread(target=self._tick, name="store-writer", daemon=True)

    @classmethod
    def begin(cls, store: Store, fingerprint: str, *, log: str, provenance: Provenance) -> Attempt:
        """Enter a new attempt and set its run RUNNING; an earlier one that never ended has vanished.

        The caller holds the run's lock, so that no other attempt lives.

        Args:
            store: Where to write.
            fingerprint: The run.
            log: Path of its log, relative to the lab's root.
            provenance: What runs where.
        """
        with store.writing() as connection:
            run_id = connection.execute(select(Run.id).where(Run.fingerprint == fingerprint)).scalar_one()
            move(connection, fingerprint, RunState.RUNNING, None)
            connection.execute(
                update(AttemptRow)
                .where(AttemptRow.run_id == run_id, AttemptRow.state == RunState.RUNNING)
                .values(
                    state=RunState.PREEMPTED, reason="its process vanished", ended_at=AttemptRow.heartbeat_at
                )
            )
            last = connection.scalar(select(func.max(AttemptRow.number)).where(AttemptRow.run_id == run_id))
            number = (last or 0) + 1
            started = now()
            attempt_id = connection.execute(
                insert(connection, AttemptRow)
                .values(
                    run_id=run_id,
                    number=number,
                    state=RunState.RUNNING,
                    started_at=started,
                    heartbeat_at=started,
                    host=provenance.host,
                    pid=os.getpid(),
                    log=log,
                    git_commit=provenance.git_commit,
                    git_patch=provenance.git_patch,
                    versions=to_json(provenance.versions),
                    device=provenance.device,
                )
                .returning(AttemptRow.id)
            ).scalar_one()
        attempt = cls(store, fingerprint, run_id, attempt_id, number)
        attempt._ticker.start()
        return attempt

    # ---- while it runs

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics at a step. NaN is kept as NULL, infinities as they are."""
        points = [(int(step), name, _number(value)) for name, value in metrics.items()]
        with self._lock:
            self._points += points
            full = len(self._points) >= FLUSH_POINTS
        if full or self._lost:
            self.flush()

    def evaluation(
        self, step: int, examples_seen: int, flops_total: float, scores: Mapping[str, float]
    ) -> None:
        """Record scores named `dataset/metric`.

        Raises:
            ValueError: A name without a slash.
        """
        rows = []
        for name, value in scores.items():
            dataset, slash, metric = name.rpartition("/")
            if not slash:
                raise ValueError(f"score {name!r} must be named dataset/metric")
            rows.append(
                {
                    "run_id": self._run_id,
                    "dataset": dataset,
                    "metric": metric,
                    "step": int(step),
                    "value": _number(value),
                    "examples_seen": int(examples_seen),
                    "flops_total": float(flops_total),
                    "attempt_id": self._id,
                }
            )
        with self._lock:
            self._scores += rows

    def progress(self, step: int, total_steps: int) -> None:
        """Say how far the run is."""
        with self._lock:
            self._progress = (int(step), int(total_steps))

    def artifact(self, name: str, path: Path, root: Path) -> None:
        """Record a file or folder with its size and digest, a folder's over its files' names and bytes.

        Args:
            name: What to call it; the same name again replaces it.
            path: Where it lies, inside the lab.
            root: The lab's root.

        Raises:
            ValueError: It lies outside the lab, or does not exist.
        """
        path, root = path.resolve(), root.resolve()
        if not path.is_relative_to(root):
            raise ValueError(f"artifact {name!r} at {path} lies outside the lab {root}")
        if not path.exists():
            raise ValueError(f"artifact {name!r}: nothing at {path}")
        size, sha256 = _digest(path)
        values = {"uri": path.relative_to(root).as_posix(), "size": size, "sha256": sha256}
        with self._store.writing() as connection:
            self._beat(connection)
            connection.execute(
                insert(connection, Artifact)
                .values(run_id=self._run_id, name=name, **values)
                .on_conflict_do_update(index_elements=["run_id", "name"], set_=values)
            )

    def flush(self) -> None:
        """Write what is buffered, and the heartbeat, in one transaction.

        Raises:
            AttemptLost: Another worker has the run; nothing was written.
            UserError: The store cannot be written; everything stays buffered.
        """
        if self._lost:
            raise self._lost
        with self._lock:
            with self._store.writing() as connection:
                self._write(connection)
            self._written()

    # ---- how it ends

    def complete(self) -> None:
        """Write the last points and set the run COMPLETED, in one transaction."""
        self._end(RunState.COMPLETED, None, 0)

    def fail(self, reason: str) -> None:
        """Write the last points and set the run FAILED."""
        self._end(RunState.FAILED, reason, 1)

    def interrupt(self, reason: str) -> None:
        """Write the last points and set the run PREEMPTED."""
        self._end(RunState.PREEMPTED, reason, 143)

    def _end(self, state: RunState, reason: str | None, exit_code: int) -> None:
        with self._lock:
            with self._store.writing() as connection:
                self._write(connection)
                connection.execute(
                    update(AttemptRow)
                    .where(AttemptRow.id == self._id)
                    .values(state=state, reason=reason, exit_code=exit_code, ended_at=now(), device=device())
                )
                move(connection, self._fingerprint, state, reason)
            self._written()
        self._ended.set()
        self._ticker.join()

    # ---- within

    def _write(self, connection: Connection) -> None:
        """Write the buffers. They are emptied by `_written`, once the transaction has been committed."""
        self._beat(connection)
        if self._points:
            names = self._metric_names(connection)
            statement = insert(connection, Metric)
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["run_id", "name_id", "step"],
                    set_={"value": statement.excluded.value, "attempt_id": statement.excluded.attempt_id},
                ),
                [
                    {
                        "run_id": self._run_id,
                        "name_id": names[name],
                        "step": step,
                        "value": value,
                        "attempt_id": self._id,
                    }
                    for step, name, value in self._points
                ],
            )
        if self._scores:
            statement = insert(connection, Evaluation)
            changed = {
                c: statement.excluded[c] for c in ("value", "examples_seen", "flops_total", "attempt_id")
            }
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["run_id", "dataset", "metric", "step"], set_=changed
                ),
                self._scores,
            )
        if self._progress:
            step, total_steps = self._progress
            connection.execute(
                update(Run).where(Run.id == self._run_id).values(step=step, total_steps=total_steps)
            )

    def _written(self) -> None:
        self._points, self._scores, self._progress = [], [], None
        self._written_at = time.monotonic()

    def _beat(self, connection: Connection) -> None:
        """Say that this attempt lives; refuse to go on if it has been replaced."""
        alive = connection.execute(
            update(AttemptRow)
            .where(AttemptRow.id == self._id, AttemptRow.state == RunState.RUNNING)
            .values(heartbeat_at=now())
        ).rowcount
        if not alive:
            self._lost = AttemptLost(f"another worker has taken run {self._fingerprint[:8]} over")
            raise self._lost

    def _metric_names(self, connection: Connection) -> dict[str, int]:
        """Ids of the buffered metrics' names; only those that were committed before are remembered."""
        names = {name for _, name, _ in self._points}
        new = names - self._names.keys()
        if not new:
            return self._names
        found = dict(
            connection.execute(select(MetricName.name, MetricName.id).where(MetricName.name.in_(new)))
            .tuples()
            .all()
        )
        self._names |= found
        missing = new - found.keys()
        if not missing:
            return self._names
        connection.execute(
            insert(connection, MetricName).on_conflict_do_nothing(),
            [{"name": name} for name in sorted(missing)],
        )
        made = connection.execute(select(MetricName.name, MetricName.id).where(MetricName.name.in_(missing)))
        return self._names | dict(made.tuples().all())

    def _tick(self) -> None:
        """Write every second what there is, and now and then that there is nothing."""
        while not self._ended.wait(TICK_SECONDS):
            waiting = self._points or self._scores or self._progress
            if not waiting and time.monotonic() - self._written_at < HEARTBEAT_SECONDS:
                continue
            try:
                self.flush()
            except AttemptLost:
                return  # raised again in the program, at its next call
            except UserError as error:
                sys.stderr.write(f"jestlab: {error} (kept, and tried again)\n")


def _number(value: float) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


def _digest(path: Path) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a file, or of a folder's relative names and contents in sorted order."""
    total, digest = 0, hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        if file != path:
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
                total += len(block)
    return total, digest.hexdigest()
