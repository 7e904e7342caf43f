"""One attempt at a run as its worker writes it, from its start to its end."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection, func, select

from jestlab.models.training.phases import ResumePoint, Spent
from jestlab.platform.client import Reporter, Totals
from jestlab.platform.errors import StoreError, StoreUnreachable
from jestlab.platform.store.batches import (
    LAST_STEP,
    Batch,
    artifact_record,
    as_number,
    records_until,
    write,
)
from jestlab.platform.store.engine import database_message, shared_folder
from jestlab.platform.store.leases import finish, heartbeat, start
from jestlab.platform.store.provenance import Provenance, device
from jestlab.platform.store.records import AttemptLost, RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.spool import Spool
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, RunRow

FLUSH_POINTS = 1_000  # buffered points that are written without waiting for the next tick
TICK_SECONDS = 1.0  # between writes of the buffer
SHARED_TICK_SECONDS = 3.0  # the same for a store in a shared folder, which takes fewer transactions
HEARTBEAT_SECONDS = 5.0  # between heartbeats of an attempt without new points
SURE_SHARE = 2 / 3  # of its lease: without the store, an attempt may assume for so long that it holds the run
END_SECONDS = 600.0  # limit of waiting until the store accepts the end, or until a missing lab is back


class ValueRefused(ValueError):
    """The database rejected a recorded value. Everything else was written."""


class WorkerAttempt(Reporter):
    """One worker's attempt at a run. Points are written in bulk; the last write of a step counts.

    An attempt replaces the records of earlier attempts after the step from which it continues. If it starts
    over, it replaces all of them, including artifacts. See `ResumePoint`.

    A background thread writes the buffer every second. While the store can't be reached, points go to a file
    in the run's folder, from which each is written once later. A value that the database rejects is left out;
    the program's next report raises ValueRefused, and the run fails. After the attempt was revoked, reports
    raise AttemptLost. All methods can be called from any thread.
    """

    def __init__(
        self,
        store: Store,
        fingerprint: str,
        number: int,
        *,
        root: Path,
        directory: Path,
        provenance: Provenance,
        handle: str,
        again: bool = False,
        disk_lasts: bool = True,
        spent: Callable[[], Spent] | None = None,
        resumed: ResumePoint | None = None,
    ) -> None:
        """Start an attempt that a launcher has claimed; call `catch_up` next.

        Args:
            store: The store.
            fingerprint: The run.
            number: Number of the attempt.
            root: Root of the lab, which contains the artifacts.
            directory: The run's folder on this machine.
            provenance: Provenance of this process.
            handle: Handle of this process, for a local job whose launcher died before it could store one.
            again: Whether this process has tried before, without learning whether it succeeded.
            disk_lasts: Whether later attempts will find the folder. If not, only the store is durable.
            spent: Returns how the time since the start of the process was spent. None: unknown.
            resumed: Where the attempt resumes. The clock of the program shares it.

        Raises:
            AttemptLost: The attempt was revoked, or another worker has started it.
        """
        values = provenance.columns() | {"started_at": now(), "pid": os.getpid()}
        if spent is not None:
            values |= vars(so_far := spent())
            values["started_at"] -= timedelta(seconds=so_far.whole_seconds)
        with store.writing() as connection:
            row = start(connection, fingerprint, number, again, handle, values)
        self.number = number
        self.ended_before = False
        """Whether an earlier attempt completed the run but couldn't write that."""
        self._store = store
        self._fingerprint = fingerprint
        self._id, self._run_id = row.id, row.run_id
        self._root, self._directory = root, directory
        self._refused: ValueRefused | None = None  # the first one
        self._spent = spent
        self._spool = Spool(directory, row.id)
        self._sure_seconds = row.lease_seconds * SURE_SHARE
        self._disk_lasts = disk_lasts
        self._spooled = False
        self._tick_seconds = TICK_SECONDS if shared_folder(store.engine) is None else SHARED_TICK_SECONDS
        self._buffer: Batch = []
        self._resumed = resumed or ResumePoint()
        self._early: Batch | None = None if number == 1 else []  # until the resumed step is known
        self._buffering = threading.Lock()  # never held during a transaction
        self._writing = threading.Lock()
        self._heard_at, self._retry_at = time.monotonic(), 0.0
        self._lost: AttemptLost | None = None
        self._stop_reason: str | None = None
        self._ended = self._end_stored = False
        self._wake = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="store-writer", daemon=True)
        self._ticker.start()

    def catch_up(self) -> None:
        """Write the spools of earlier attempts; if this raises StoreUnreachable, call it again."""
        with self._store.reading() as connection:
            numbers = select(AttemptRow.id, AttemptRow.number).where(AttemptRow.run_id == self._run_id)
            known = dict(connection.execute(numbers).tuples().all())
        for left in Spool.left_in(self._directory, before=self._id):
            if left.attempt_id in known:  # otherwise it belongs to another store
                with self._writing:
                    self.ended_before |= self._replay(left, known[left.attempt_id])

    # ---- while it runs

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        self._add([("point", step, name, as_number(value)) for name, value in metrics.items()])

    def _evaluation(self, step: int, scores: dict[str, float], totals: Totals) -> None:
        batch: Batch = []
        for name, value in scores.items():
            dataset, _, metric = name.rpartition("/")
            batch.append(("score", step, dataset, metric, as_number(value), *totals))
        self._add(batch)

    def _progress(self, step: int, total_steps: int) -> None:
        self._add([("progress", step, total_steps)])

    def _artifact(self, name: str, path: Path) -> None:
        self._add([artifact_record(name, path, self._root)])

    def flush(self) -> None:
        """Make all records durable, in the store or in the spool.

        Call it before changing the files from which later attempts resume, such as a checkpoint. The attempt
        must then hold the run. So this waits for a store that has been unreachable for longer than
        `SURE_SHARE` of the lease, or at all if the spool may be lost with its machine. For a limited time it
        also waits while the run's folder is missing, because the lab may have been moved.

        Raises:
            AttemptLost: The attempt was revoked; nothing was written.
            ValueRefused: The database rejected a value; everything else was written.
            StoreUnreachable: Both the store and the folder were missing for `END_SECONDS`.
            UserError: Neither the store nor the spool can be written; everything remains buffered.
        """
        reported, deadline = False, time.monotonic() + END_SECONDS
        while True:
            try:
                if self._write(keep=True):
                    break
            except StoreError:
                if self._directory.is_dir():
                    raise
            has_folder = self._directory.is_dir()
            sure = self._disk_lasts and time.monotonic() - self._heard_at <= self._sure_seconds
            if sure and has_folder:
                return
            if not has_folder and time.monotonic() > deadline:
                raise StoreUnreachable(f"both the store and {self._directory} are missing")
            if not reported:
                _warn("waiting for the store: it was moved, or another worker may have started the run")
                reported = True
            time.sleep(TICK_SECONDS)
        if self._refused is not None:
            raise self._refused

    def stop_requested(self) -> str | None:
        """Return the user's reason to stop the run, as last read from the store; None to continue.

        Raises:
            AttemptLost: The attempt was revoked, or has failed on another machine.
        """
        if self._lost:
            raise self._lost
        return self._stop_reason

    # ---- the end

    def complete(self) -> None:
        """Write the last points and set the run COMPLETED, in one transaction.

        Raises:
            ValueRefused: The database rejected a value; the run is FAILED.
            AttemptLost: The attempt was revoked.
            StoreUnreachable: The store couldn't be reached for `END_SECONDS`; the end is in the spool.
        """
        self._end(RunState.COMPLETED, None, 0)

    def fail(self, reason: str, exit_code: int = 1) -> None:
        """Write the last points and set the run FAILED."""
        self._end(RunState.FAILED, reason, exit_code)

    def interrupt(self, reason: str) -> None:
        """Write the last points and set the run PREEMPTED, or CANCELLED if its user stopped it."""
        self._end(RunState.PREEMPTED, reason, 143)

    def _end(self, state: RunState, reason: str | None, exit_code: int) -> None:
        """Write the end, waiting for an unreachable store; meanwhile the spool has the end."""
        if reason is not None:  # valid in every database
            reason = reason.replace("\0", "?").encode(errors="replace").decode()
        self._add([("end", state, reason, exit_code)])
        deadline = time.monotonic() + END_SECONDS
        try:
            while True:
                with contextlib.suppress(StoreError):  # the spool can't be written either
                    if self._write(keep=True):
                        break
                if time.monotonic() > deadline:
                    raise StoreUnreachable(
                        f"the store can't be reached: {self._spool.path} has the end of the run"
                    )
                time.sleep(TICK_SECONDS)
        finally:
            self._ended = True
            self._wake.set()
            self._ticker.join()
        if self._refused is not None and state != RunState.FAILED:
            raise self._refused

    # ---- writing

    def _add(self, batch: Batch) -> None:
        if self._lost:
            raise self._lost
        if self._refused and not _end_of(batch):
            raise self._refused
        with self._buffering:
            self._buffer += self._replacing(batch)
            if len(self._buffer) >= FLUSH_POINTS:
                self._wake.set()

    def _replacing(self, batch: Batch) -> Batch:
        """Add the removal of earlier attempts' records to a batch, once the resumed step is known.

        The batch then repeats this attempt's earlier records, which the removal may delete from the store.
        """
        for kind, value, *_ in batch:
            if kind in ("point", "score", "progress"):
                self._resumed.reports(value, is_value=kind != "progress")
            elif kind == "end" and value == RunState.COMPLETED:
                self._resumed.completes()
        if (early := self._early) is None:
            return batch
        early += batch
        if (step := self._resumed.step) is None:
            return batch
        self._early = None
        return [("replace", step and step + 1, LAST_STEP), *early]

    def _write(self, keep: bool) -> bool:
        """Write the buffer and the heartbeat in one transaction; return whether that succeeded.

        With `keep`, the buffer becomes durable even if the store can't be reached. Without, a store that was
        unreachable a moment ago is not tried again.
        """
        with self._writing:
            if self._lost:
                raise self._lost
            began = time.monotonic()
            if not keep and began < self._retry_at:
                return False
            with self._buffering:
                batch, self._buffer = self._buffer, []
            spent: Batch = [] if self._spent is None else [("spent", vars(self._spent()))]
            try:
                if self._spooled:
                    self._replay(self._spool, self.number)
                    self._spooled = False
                if not self._end_stored:
                    self._commit(spent + batch, self.number)
            except AttemptLost as lost:
                self._lost = lost
                raise
            except StoreError:
                spooled = keep and (not batch or self._keep(spent + batch))
                if not spooled:
                    with self._buffering:
                        self._buffer = batch + self._buffer
                self._retry_at = time.monotonic() + TICK_SECONDS
                if keep and not spooled and batch:
                    raise
                return False
            self._heard_at, self._retry_at = began, 0.0
            return True

    def _keep(self, batch: Batch) -> bool:
        """Append a batch to the spool; return False if the disk doesn't accept it."""
        try:
            self._spool.append(batch)
        except OSError as error:
            _warn(f"{error} (kept in memory)")
            return False
        self._spooled = True
        return True

    def _replay(self, spool: Spool, number: int) -> bool:
        """Write the batches of an attempt's spool; return whether they completed the run."""
        batches, own = list(spool.batches()), number == self.number
        state = _end_of(batches[-1]) if batches else None
        if own and state:
            with self._store.reading() as connection:
                self._end_stored = self._has_end(connection, state)
        until = LAST_STEP if own else self._replaced_since(number)
        for batch in [] if self._end_stored else batches:
            # This attempt decides how the run ends.
            self._commit(batch if own else records_until(batch, until), number)
        spool.clear()
        return not own and state == RunState.COMPLETED

    def _replaced_since(self, number: int) -> int:
        """Return the last step up to which the records of an attempt still count."""
        of_run = AttemptRow.run_id == self._run_id
        later = (of_run, AttemptRow.number > number, AttemptRow.number < self.number)
        with self._store.reading() as connection:
            step = connection.scalar(select(func.min(AttemptRow.resumed_step)).where(*later))
        return LAST_STEP if step is None else int(step)

    def _commit(self, batch: Batch, number: int) -> None:
        """Write a batch in one transaction; if the database rejects a value, write everything else."""
        try:
            self._commit_whole(batch, number)
        except (AttemptLost, StoreError):
            raise
        except Exception as error:
            if len(batch) > 1:
                middle = (len(batch) + 1) // 2
                self._commit(batch[:middle], number)
                self._commit(batch[middle:], number)
                return
            if not batch or batch[0][0] in ("spent", "end"):
                raise  # not caused by a value: a bug
            [(kind, *values)] = batch
            refused = ValueRefused(f"the store rejected {kind} {values}: {database_message(error)}")
            _warn(str(refused))
            self._refused = self._refused or refused

    def _commit_whole(self, batch: Batch, number: int) -> None:
        state, removed = _end_of(batch), 0
        with self._store.writing() as connection:
            if state and self._has_end(connection, state):
                self._end_stored = True  # an earlier transaction was committed, but its answer was lost
                return
            if not heartbeat(connection, self._id):
                raise AttemptLost(
                    f"attempt {self.number} at run {self._fingerprint[:8]} was revoked by its launcher, "
                    "or failed on another machine"
                )
            reason = connection.scalar(select(RunRow.stop_reason).where(RunRow.id == self._run_id))
            removed = write(connection, self._run_id, number, batch, late=number != self.number)
            if state:
                _, state, why, exit_code = batch[-1]
                if self._refused is not None and state != RunState.FAILED:
                    state, why, exit_code = RunState.FAILED, str(self._refused), 1
                elif state == RunState.PREEMPTED and reason is not None:
                    state, why = RunState.CANCELLED, reason
                finish(connection, self._fingerprint, self._id, state, why, exit_code, device=device())
        self._stop_reason = reason
        self._end_stored = state is not None
        if removed:
            first = min(record[1] for record in batch if record[0] == "replace")
            _warn(f"replaces {removed:,} values that earlier attempts reported from step {first:,} on")

    def _has_end(self, connection: Connection, state: str) -> bool:
        """Return whether the store has this attempt's end."""
        known = connection.scalar(select(AttemptRow.state).where(AttemptRow.id == self._id))
        cancelled = state == RunState.PREEMPTED and known == RunState.CANCELLED
        return known == state or cancelled or (self._refused is not None and known == RunState.FAILED)

    def _tick(self) -> None:
        """Write the buffer every second, and a heartbeat every few seconds."""
        warned_at, problem = -60.0, "the store can't be reached"
        while not self._ended:
            self._wake.wait(self._tick_seconds)
            self._wake.clear()
            if self._ended or (not self._buffer and time.monotonic() - self._heard_at < HEARTBEAT_SECONDS):
                continue
            try:
                reached = self._write(keep=len(self._buffer) >= FLUSH_POINTS)
            except AttemptLost as lost:
                _warn(str(lost))
                return  # the program's next call raises it
            except StoreError as error:
                reached, problem = False, str(error)
            except Exception as error:  # a bug: heartbeats have to continue
                _warn(f"{type(error).__name__}: {error}")
                continue
            if not reached and time.monotonic() - warned_at > 30:
                warned_at = time.monotonic()
                _warn(f"{problem}: records are kept and will be written later")


def _end_of(batch: Batch) -> str | None:
    """Return the state in which a batch ends the attempt; None if it doesn't."""
    return batch[-1][1] if batch and batch[-1][0] == "end" else None


def _warn(line: str) -> None:
    with contextlib.suppress(OSError):  # the disk may be full
        sys.stderr.write(f"jestlab: {line}\n")
        sys.stderr.flush()
