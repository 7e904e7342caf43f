"""Ending jobs: asked first, ended once their grace is over."""

from __future__ import annotations

import time
from collections.abc import Callable

from jestlab.platform.errors import UserError
from jestlab.platform.launch.executor import Executor
from jestlab.platform.spec.resources import Place
from jestlab.platform.store.records import Lease


class Stops:
    """Which jobs have been asked to stop, and when."""

    def __init__(self, executors: Callable[[Place], Executor], complain: Callable[[str], None]) -> None:
        """Nothing is stopped yet.

        Args:
            executors: Executors by name.
            complain: Told, once a job, why it cannot be stopped.
        """
        self._executors = executors
        self._complain = complain
        self._asked: dict[int, float] = {}  # attempt → when
        self._failed: set[int] = set()
        self.at_once = False
        """Whether jobs are given no time to save."""

    def stop(self, lease: Lease) -> None:
        """Ask an attempt's job to stop; when that was longer ago than its executor's grace, end it."""
        asked = self._asked.get(lease.id)
        if asked is None and not self.at_once:
            self._asked[lease.id] = time.monotonic()
            self._tell(lease, now=False)
        elif (
            self.at_once or time.monotonic() - (asked or 0.0) > self._executors(lease.executor).grace_seconds
        ):
            self.end(lease)

    def end(self, lease: Lease) -> None:
        """End an attempt's job now."""
        self._tell(lease, now=True)

    def _tell(self, lease: Lease, now: bool) -> None:
        if lease.handle is None:
            return
        try:
            self._executors(lease.executor).stop(lease.handle, now=now)
        except UserError as error:
            if lease.id not in self._failed:
                self._complain(f"attempt {lease.number} cannot be stopped from here: {error}")
            self._failed.add(lease.id)
