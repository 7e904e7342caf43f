"""An attempt as the workers of its other machines see it: the worker of the first machine writes its results.

They read the attempt every few seconds, so that all machines stop together, and end it if they fail.
"""

import contextlib
import threading
import time

from sqlalchemy import select

from jestlab.platform.errors import StoreError
from jestlab.platform.store.leases import finish
from jestlab.platform.store.records import LIVE, AttemptLost, RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, RunRow, run_key

READ_SECONDS = 3.0
"""Time between two reads of the attempt. Connections aren't kept, since a run can have 64 machines."""

LEAVE_SECONDS = 10.0
"""How long a worker may continue after its attempt has ended: it may be saving."""


class AssistedAttempt:
    """A live attempt that another worker has. All methods can be called from any thread."""

    def __init__(self, store: Store, fingerprint: str, number: int | None) -> None:
        """Start to read the attempt.

        Args:
            store: The store.
            fingerprint: The run.
            number: Number of the attempt; None for the one that the first worker will claim.
        """
        self._store = store
        self._fingerprint = fingerprint
        self._this = AttemptRow.run_id == run_key(fingerprint)
        self._unclaimed = number is None
        if number is not None:
            self._this &= AttemptRow.number == number
        self._id: int | None = None
        self._state: RunState | None = None
        self._stop_reason: str | None = None
        self._over_at: float | None = None
        self._closed = threading.Event()
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read_repeatedly, name="attempt-reader", daemon=True)
        self._reader.start()

    def stop_requested(self) -> str | None:
        """Return why to stop: the user's reason, or that the attempt has ended early; None to continue.

        Raises:
            AttemptLost: The attempt ended `LEAVE_SECONDS` ago.
        """
        if self._over_at is None:
            return self._stop_reason
        if time.monotonic() > self._over_at + LEAVE_SECONDS:
            raise AttemptLost(self._ended)
        return None if self._state == RunState.COMPLETED else self._ended

    def wait(self) -> None:
        """Wait until the attempt has ended."""
        self._over.wait()

    def fail(self, reason: str, exit_code: int) -> None:
        """End the attempt as FAILED, unless it has ended. StoreError if the store can't be reached."""
        self._read()
        if self._id is not None:
            with self._store.writing() as connection:
                finish(connection, self._fingerprint, self._id, RunState.FAILED, reason, exit_code)

    def close(self) -> None:
        """Read no more, and close all connections."""
        self._closed.set()
        self._reader.join()
        self._store.close()

    @property
    def _ended(self) -> str:
        return f"the attempt at run {self._fingerprint[:8]} has ended: {self._state}"

    def _read_repeatedly(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(StoreError):  # it may be available again later
                self._read()
            self._store.close()
            if self._closed.wait(READ_SECONDS):
                return

    def _read(self) -> None:
        """Read the attempt, or find it."""
        row = AttemptRow
        known = self._this if self._id is None else row.id == self._id
        query = select(row.id, row.state, RunRow.stop_reason).join(RunRow, RunRow.id == row.run_id)
        with self._store.reading() as connection:
            found = connection.execute(query.where(known).order_by(row.number.desc()).limit(1)).one_or_none()
        if found is None or (self._unclaimed and found.state not in LIVE):
            return
        self._unclaimed = False
        self._id, self._stop_reason = found.id, found.stop_reason
        if found.state not in LIVE:
            self._state, self._over_at = RunState(found.state), time.monotonic()
            self._over.set()
