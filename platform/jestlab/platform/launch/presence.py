"""A launcher as others see it in the store: that it is alive, and from which lab it launches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from jestlab.platform.errors import StoreError
from jestlab.platform.lab import identity
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import leases
from jestlab.platform.store.identity import enter_lab, lab_places
from jestlab.platform.store.records import Lease
from jestlab.platform.store.store import Store

Value = TypeVar("Value")


class Presence:
    """Enters a launcher and its lab in the store when they are first needed, and keeps the entry fresh.

    Attributes:
        name: The launcher's.
    """

    def __init__(self, lab: Lab, store: Store, name: str, heartbeat_seconds: float) -> None:
        """Create it; nothing is written yet.

        Args:
            lab: From which the launcher launches.
            store: The lab's store.
            name: The launcher's, by which others find it.
            heartbeat_seconds: Between two signs of life.
        """
        self._lab = lab
        self._store = store
        self.name = name
        self._heartbeat_seconds = heartbeat_seconds
        self._beaten_at = 0.0
        self._entered = False
        self._lab_id: str | None = None
        self._labs: Mapping[str, str] = {}  # where the labs of the store are

    def launcher(self) -> str:
        """Return the launcher's name, after entering it in the store."""
        if not self._entered:
            leases.enter_launcher(self._store, self.name, self.lab())
            self._entered, self._beaten_at = True, time.monotonic()
        return self.name

    def lab(self) -> str:
        """Return the lab's id, after entering it in the store."""
        if self._lab_id is None:
            uid, address, host = identity.identify(self._lab)
            enter_lab(self._store.engine, uid, address, host)
            self._lab_id = uid
        return self._lab_id

    def beat(self) -> None:
        """Give a sign of life, if the launcher has been entered and the last one is old."""
        if self._entered and time.monotonic() - self._beaten_at > self._heartbeat_seconds:
            leases.beat(self._store, self.name)
            self._beaten_at = time.monotonic()

    async def beating(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Wait for work that may take long, and give signs of life meanwhile."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait([task], timeout=self._heartbeat_seconds))[0]:
            with suppress(StoreError):  # the work has to be done all the same
                await asyncio.to_thread(self.beat)
        return task.result()

    def leave(self) -> None:
        """Take the launcher out of the store, if it has been entered."""
        if self._entered:
            leases.leave(self._store, self.name)

    def elsewhere(self, lease: Lease | None) -> str | None:
        """Say which other lab has the files of an attempt; None if this one has, or if it is unknown."""
        if lease is None or lease.lab in (None, self._lab_id):
            return None
        if lease.lab not in self._labs:
            self._labs = lab_places(self._store.engine)
        return self._labs.get(lease.lab or "")
