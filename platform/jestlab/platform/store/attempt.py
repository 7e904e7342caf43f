"""What a worker writes: one attempt at a run, from its beginning to its end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, func, select, update

from jestlab.models.training.phases import ResumePoint, Spent
from jestlab.platform.client import as_count, as_name
from jestlab.platform.errors import StoreError, StoreUnreachable
from jestlab.platform.store.engine import database_message
from jestlab.platform.store.leases import finish, move
from jestlab.platform.store.provenance import Provenance, device
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now, to_json
from jestlab.platform.store.spool import LAST_STEP, Batch, Points, Spool, as_number
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt as AttemptRow
from jestlab.platform.store.tables import Run

FLUSH_POINTS = 1_000
"""Points that are written at once, without waiting for the next tick."""

TICK_SECONDS = 1.0
"""How often buffered points are written."""

HEARTBEAT_SECONDS = 5.0
"""How often an attempt sends a heartbeat when it has nothing else to write."""

SURE_SHARE = 2 / 3
"""Share of its lease for which an attempt that cannot reach the store may assume that the run is its own."""

END_SECONDS = 600.0
"""How long the end of an attempt, or one whose lab is not there, waits for a store that cannot be reached."""


# Built once: building a statement takes as long as executing it.
_BEAT = (
    update(AttemptRow)
    .where(AttemptRow.id == bindparam("its_id"), AttemptRow.state == RunState.RUNNING)
    .values(heartbeat_at=bindparam("at"))
)
_SPENT = tuple(field.name for field in fields(Spent))
_BEAT_SPENT = _BEAT.values(**{name: bindparam(f"new_{name}") for name in _SPENT})
_STOP_REASON = select(Run.stop_reason).where(Run.id == bindparam("its_id"))


class AttemptLost(Exception):
    """The attempt was revoked: another one may have the run, and this one can no longer write."""


class ValueRefused(ValueError):
    """The database refused a value that was recorded. Everything else was written."""


class Attempt:
    """One worker's attempt at a run. Points are buffered and written in bulk; the last write of a step wins.

    An attempt replaces what earlier attempts recorded after the step from which it goes on: all of it, also
    artifacts and what holds for the whole run, if it starts over. See `ResumePoint`.

    A background thread writes the buffer every second. While the store cannot be reached, points go to a file
    in the run's folder and are replayed later, each once. A value that the database refuses is left out; the
    program hears of it at its next call, and the run fails. All methods may be called from any thread.
    """

    def __init__(
        self,
        store: Store,
        fingerprint: str,
        row: Any,
        directory: Path,
        disk_lasts: bool,
        spent: Callable[[], Spent] | None,
        resumed: ResumePoint,
    ) -> None:
        """Use `begin`; `row` is the attempt's in the store."""
        self.number = row.number
        self.ended_before = False
        """Whether an earlier attempt completed the run and could not write that."""
        self._store = store
        self._fingerprint = fingerprint
        self._id = row.id
        self._run_id = row.run_id
        self._directory = directory
        self._refused: ValueRefused | None = None  # the first one
        self._spent = spent
        self._points = Points(row.run_id)
        self._spool = Spool(directory, row.id)
        self._sure_seconds = row.lease_seconds * SURE_SHARE
        self._disk_lasts = disk_lasts
        self._spooled = False
        self._buffer = Batch()
        self._resumed = resumed
        self._replaced_after: int | None = None  # what earlier attempts recorded after it is replaced
        self._early = None if row.number == 1 else Batch()  # until the step from which it goes on is final
        self._buffering = threading.Lock()  # held for moments only: the program never waits for the store
        self._writing = threading.Lock()
        self._heard_at = time.monotonic()
        self._retry_at = 0.0
        self._lost: AttemptLost | None = None
        self._stop_reason: str | None = None
        self._ended = False
        self._told = False  # whether the store knows how it ended
        self._wake = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="store-writer", daemon=True)

    @classmethod
    def begin(
        cls,
        store: Store,
        fingerprint: str,
        number: int,
        *,
        directory: Path,
        provenance: Provenance,
        handle: str,
        again: bool = False,
        disk_lasts: bool = True,
        spent: Callable[[], Spent] | None = None,
        resumed: ResumePoint | None = None,
    ) -> Attempt:
        """Take up an attempt that a launcher has claimed; `catch_up` is to follow.

        Args:
            store: The store.
            fingerprint: The run.
            number: Number of the attempt.
            directory: The run's folder on this machine.
            provenance: What runs where.
            handle: Of this process, for a local job whose launcher died before it could store the handle.
            again: Whether this process has tried before, and cannot know whether it succeeded.
            disk_lasts: Whether later attempts will find the folder. If not, nothing is durable before the
                store has it.
            spent: Says where the attempt's time went until now, from the start of its process on. The store
                is told with every write. None: unknown.
            resumed: Where the attempt resumes. The clock of the program has the same one, and notes the same
                reports, which change nothing the second time.

        Raises:
            AttemptLost: The attempt was revoked, or another worker has taken it up.
        """
        with store.writing() as connection:
            row = connection.execute(
                select(AttemptRow.__table__)
                .join(Run, Run.id == AttemptRow.run_id)
                .where(Run.fingerprint == fingerprint, AttemptRow.number == number)
                .with_for_update()
            ).one_or_none()
            own = again and row is not None and (row.host, row.pid) == (provenance.host, os.getpid())
            if row is None or not (row.state == RunState.PENDING or (own and row.state == RunState.RUNNING)):
                state = "unknown" if row is None else row.state
                raise AttemptLost(f"attempt {number} at run {fingerprint[:8]} is {state}: not taken up")
            move(connection, fingerprint, RunState.RUNNING, None)
            columns = vars(provenance) | {
                name: None if (value := getattr(provenance, name)) is None else to_json(value)
                for name in ("versions", "environment", "sources", "inputs")
            }
            until_now = None if spent is None else spent()
            took = timedelta(seconds=0.0 if until_now is None else until_now.whole_seconds)
            connection.execute(
                update(AttemptRow)
                .where(AttemptRow.id == row.id)
                .values(
                    state=RunState.RUNNING,
                    handle=row.handle or (handle if row.executor == "local" else None),
                    started_at=now() - took,
                    heartbeat_at=now(),
                    pid=os.getpid(),
                    **columns,
                    **({} if until_now is None else vars(until_now)),
                )
            )
        attempt = cls(store, fingerprint, row, directory, disk_lasts, spent, resumed or ResumePoint())
        attempt._ticker.start()
        return attempt

    def catch_up(self) -> None:
        """Write what earlier attempts left in their spools; on StoreUnreachable, call it again."""
        with self._store.reading() as connection:
            numbers = select(AttemptRow.id, AttemptRow.number).where(AttemptRow.run_id == self._run_id)
            known = dict(connection.execute(numbers).tuples().all())
        for left in Spool.left_in(self._directory, before=self._id):
            if left.attempt_id in known:  # else it is another store's
                with self._writing:
                    self.ended_before |= self._replay(left, known[left.attempt_id])

    # ---- while it runs

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics at a step. NaN is kept as NULL, infinities as they are.

        Raises:
            ValueError: A step or name that no database takes.
            ValueRefused: The database refused a value that was recorded before.
            AttemptLost: The attempt was revoked.
        """
        step = as_count("step", step)
        points = [(step, as_name(name), as_number(value)) for name, value in metrics.items()]
        self._add(Batch(points=points))

    def evaluation(
        self,
        step: int,
        examples_seen: int | None,
        flops_total: float | None,
        scores: Mapping[str, float],
        *,
        seconds: float | None = None,
    ) -> None:
        """Record scores named `dataset/metric`; raises as `log`."""
        self._add(Batch.of_scores(step, examples_seen, flops_total, scores, seconds))

    def progress(self, step: int, total_steps: int) -> None:
        """Record how far the run is, in steps."""
        self._add(Batch(progress=(as_count("step", step), as_count("total_steps", total_steps))))

    def artifact(self, name: str, path: Path, root: Path) -> None:
        """Record a file or folder of the lab with its size and digest; the same name again replaces it.

        Raises:
            ValueError: It lies outside the lab, or does not exist.
        """
        self._add(Batch.of_artifact(name, path, root))

    def flush(self) -> None:
        """Make durable all that was recorded: in the store, or else in the spool.

        Call it before changing what later attempts start from (a checkpoint). The attempt must then be sure
        that the run is still its own: if the store has been out of reach for longer than `SURE_SHARE` of the
        lease, this waits for it; at once, if the spool may be lost with its machine. It also waits while the
        run's folder is not there, because the lab was moved away, but not for ever: it may have been deleted.

        Raises:
            AttemptLost: The attempt was revoked; nothing was written.
            ValueRefused: The database refused a value; everything else was written.
            StoreUnreachable: Store and folder were not there for `END_SECONDS`.
            UserError: Neither the store nor the spool can be written; everything stays buffered.
        """
        said, deadline = False, time.monotonic() + END_SECONDS
        while True:
            try:
                if self._write(keep=True):
                    break
            except StoreError:
                if self._directory.is_dir():
                    raise
            is_there = self._directory.is_dir()
            sure = self._disk_lasts and time.monotonic() - self._heard_at <= self._sure_seconds
            if sure and is_there:
                return
            if not is_there and time.monotonic() > deadline:
                raise StoreUnreachable(f"neither the store nor {self._directory} is there any more")
            if not said:
                _say("waiting for the store: it was moved away, or another worker may have the run by now")
                said = True
            time.sleep(TICK_SECONDS)
        if self._refused is not None:
            raise self._refused

    def stop_requested(self) -> str | None:
        """Return why the user stops the run, as last read from the store; None to go on."""
        return self._stop_reason

    # ---- how it ends

    def complete(self) -> None:
        """Write the last points and set the run COMPLETED, in one transaction.

        Raises:
            ValueRefused: The database refused a value; the run is FAILED.
            AttemptLost: The attempt was revoked.
            StoreUnreachable: The store could not be reached for `END_SECONDS`; the end is in the spool.
        """
        self._end(RunState.COMPLETED, None, 0)

    def fail(self, reason: str, exit_code: int = 1) -> None:
        """Write the last points and set the run FAILED."""
        self._end(RunState.FAILED, reason, exit_code)

    def interrupt(self, reason: str) -> None:
        """Write the last points and set the run PREEMPTED, or CANCELLED if its user stopped it."""
        self._end(RunState.PREEMPTED, reason, 143)

    def _end(self, state: RunState, reason: str | None, exit_code: int) -> None:
        """Write the end, waiting for a store that cannot be reached; until then the spool has the end."""
        if reason is not None:
            reason = reason.replace("\0", "?").encode(errors="replace").decode()  # what every database takes
        self._add(Batch(end=(state, reason, exit_code)))
        deadline = time.monotonic() + END_SECONDS
        try:
            while True:
                with contextlib.suppress(StoreError):  # nor does the disk take anything
                    if self._write(keep=True):
                        break
                if time.monotonic() > deadline:
                    raise StoreUnreachable(
                        f"the store cannot be reached: how the run ended is kept in {self._spool.path}"
                    )
                time.sleep(TICK_SECONDS)
        finally:
            self._ended = True
            self._wake.set()
            self._ticker.join()
        if self._refused is not None and state != RunState.FAILED:
            raise self._refused

    # ---- within

    def _add(self, batch: Batch) -> None:
        if self._lost:
            raise self._lost
        if self._refused and batch.end is None:
            raise self._refused
        with self._buffering:
            self._buffer.add(self._replacing(batch))
            if len(self._buffer) >= FLUSH_POINTS:
                self._wake.set()

    def _replacing(self, batch: Batch) -> Batch:
        """Return a batch with the removal of what it newly tells that this attempt replaces.

        It then also holds what was recorded before, which may be in the store and is removed as well.
        """
        for step in {point[0] for point in batch.points} | {score["step"] for score in batch.scores}:
            self._resumed.reports(step, is_value=True)
        if batch.progress is not None:
            self._resumed.reports(batch.progress[0], is_value=False)
        if batch.end is not None and batch.end[0] == RunState.COMPLETED:
            self._resumed.completes()
        if (early := self._early) is None:
            return batch
        early.add(batch)
        self._early = None if self._resumed.is_final else early
        before, after = self._replaced_after, self._resumed.step
        if after is None or after == before:
            return batch
        self._replaced_after = after
        steps = (after and after + 1, LAST_STEP if before is None else before)
        return Batch.joined([early, Batch(replaced=[steps])])

    def _write(self, keep: bool) -> bool:
        """Write the buffer and the heartbeat in one transaction; return whether the store has it now.

        With `keep`, it has to be durable even if the store cannot be reached. Without, a store that could not
        be reached a moment ago is not asked again.
        """
        with self._writing:
            if self._lost:
                raise self._lost
            began = time.monotonic()
            if not keep and began < self._retry_at:
                return False
            with self._buffering:
                batch, self._buffer = self._buffer, Batch()
            if self._spent is not None:
                batch.spent = vars(self._spent())
            try:
                if self._spooled:
                    self._replay(self._spool, self.number)
                    self._spooled = False
                if not self._told:
                    self._commit(batch, self.number)
            except AttemptLost as lost:
                self._lost = lost
                raise
            except StoreError:
                spooled = keep and self._keep(batch)
                if not spooled:
                    with self._buffering:
                        self._buffer = Batch.joined([batch, self._buffer])
                self._retry_at = time.monotonic() + TICK_SECONDS
                if keep and not spooled and batch:
                    raise
                return False
            self._heard_at, self._retry_at = began, 0.0
            return True

    def _keep(self, batch: Batch) -> bool:
        """Keep a batch in the spool; False if the disk does not take it."""
        if not batch:
            return True
        try:
            self._spool.append(batch)
        except OSError as error:
            _say(f"{error} (kept in memory)")
            return False
        self._spooled = True
        return True

    def _replay(self, spool: Spool, number: int) -> bool:
        """Write the batches of an attempt's spool; return whether the run had been completed in it."""
        completed, own = False, number == self.number
        batches = list(spool.batches())
        if own and batches and batches[-1].end is not None:
            with self._store.reading() as connection:
                self._told = self._is_told(connection, batches[-1].end[0])
            batches = [] if self._told else batches
        until = LAST_STEP if own else self._replaced_since(number)
        for batch in batches:
            if not own and batch.end is not None:
                completed = batch.end[0] == RunState.COMPLETED
                batch.end = None  # this attempt decides how the run ends
            self._commit(batch if own else batch.until(until), number)
        spool.clear()
        return completed

    def _replaced_since(self, number: int) -> int:
        """Return the last step at which what an attempt recorded still counts, next to later attempts."""
        of_run = AttemptRow.run_id == self._run_id
        between = (of_run, AttemptRow.number > number, AttemptRow.number < self.number)
        with self._store.reading() as connection:
            step = connection.scalar(select(func.min(AttemptRow.resumed_step)).where(*between))
        return LAST_STEP if step is None else int(step)

    def _commit(self, batch: Batch, number: int) -> None:
        """Write a batch in one transaction; if the database refuses a value of it, all but that value."""
        try:
            self._commit_whole(batch, number)
        except (AttemptLost, StoreError):
            raise
        except Exception as error:
            if parts := batch.parts():
                for part in parts:
                    self._commit(part, number)
                return
            if not batch or batch.end is not None:
                raise  # no value was refused: a bug of ours
            refused = ValueRefused(f"the store refused {batch}: {database_message(error)}")
            _say(str(refused))
            self._refused = self._refused or refused

    def _commit_whole(self, batch: Batch, number: int) -> None:
        with self._store.writing() as connection:
            if batch.end is not None and self._is_told(connection, batch.end[0]):
                self._told = True  # the transaction before this one was committed, and its answer lost
                return
            own = number == self.number
            stop_reason = self._beat(connection, batch.spent if own else None)
            if batch.spent is not None and not own:  # what an earlier attempt could not write
                earlier = (AttemptRow.run_id == self._run_id, AttemptRow.number == number)
                connection.execute(update(AttemptRow).where(*earlier).values(**batch.spent))
            removed = self._points.write(connection, batch, number, late=not own)
            if batch.end is not None:
                self._write_end(connection, batch.end, stop_reason)
        self._stop_reason = stop_reason
        self._told = batch.end is not None
        if removed:
            first = min(first for first, _ in batch.replaced)
            _say(f"replaces {removed:,} values that earlier attempts reported from step {first:,} on")

    def _is_told(self, connection: Connection, state: str) -> bool:
        """Whether the store has this attempt's end."""
        known = connection.scalar(select(AttemptRow.state).where(AttemptRow.id == self._id))
        cancelled = state == RunState.PREEMPTED and known == RunState.CANCELLED
        refused = self._refused is not None and known == RunState.FAILED
        return known == state or cancelled or refused

    def _beat(self, connection: Connection, spent: Mapping[str, float | int | None] | None) -> str | None:
        """Send a heartbeat, and return why the run shall stop, if it shall; AttemptLost if it is over."""
        values: dict[str, Any] = {"its_id": self._id, "at": now()}
        if spent is None:
            alive = connection.execute(_BEAT, values).rowcount
        else:
            values |= {f"new_{name}": spent.get(name) for name in _SPENT}
            alive = connection.execute(_BEAT_SPENT, values).rowcount
        if not alive:
            raise AttemptLost(
                f"attempt {self.number} at run {self._fingerprint[:8]} was given up by its launcher"
            )
        return connection.scalar(_STOP_REASON, {"its_id": self._run_id})

    def _write_end(
        self, connection: Connection, end: tuple[str, str | None, int], stop_reason: str | None
    ) -> None:
        state, (_, reason, exit_code) = RunState(end[0]), end
        if self._refused is not None and state != RunState.FAILED:
            state, reason, exit_code = RunState.FAILED, str(self._refused), 1
        elif state == RunState.PREEMPTED and stop_reason is not None:
            state, reason = RunState.CANCELLED, stop_reason
        finish(connection, self._fingerprint, self._id, state, reason, exit_code, device=device())

    def _tick(self) -> None:
        """Write every second what is buffered, and now and then a heartbeat."""
        complained_at, problem = -60.0, "the store cannot be reached"
        while not self._ended:
            self._wake.wait(TICK_SECONDS)
            self._wake.clear()
            if self._ended or (not self._buffer and time.monotonic() - self._heard_at < HEARTBEAT_SECONDS):
                continue
            try:
                reached = self._write(keep=len(self._buffer) >= FLUSH_POINTS)
            except AttemptLost as lost:
                _say(str(lost))
                return  # raised again in the program, at its next call
            except StoreError as error:
                reached, problem = False, str(error)
            except Exception as error:  # a bug: this thread goes on giving signs of life
                _say(f"{type(error).__name__}: {error}")
                continue
            if not reached and time.monotonic() - complained_at > 30:
                complained_at = time.monotonic()
                _say(f"{problem}: what is recorded is kept, and written later")


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk may be what there is to say
        sys.stderr.write(f"jestlab: {line}\n")
        sys.stderr.flush()
