"""Stop jobs: ask first, and kill them once their grace period is over."""

from __future__ import annotations

import time
from collections.abc import Callable

from jestlab.platform.errors import UserError
from jestlab.platform.launch.executors import Executors
from jestlab.platform.store.records import Lease


class Termination:
    """Remembers which jobs were asked to stop, and when.

    Attributes:
        at_once: Whether jobs are given no time to save.
    """

    def __init__(self, executors: Executors, complain: Callable[[str], None], *, at_once: bool) -> None:
        """Create it; nothing is stopped yet.

        Args:
            executors: Executors by name.
            complain: Told, once a job, why it cannot be stopped.
            at_once: Whether jobs are given no time to save.
        """
        self._executors = executors
        self._complain = complain
        self._asked: dict[int, float] = {}  # attempt → when
        self._failed: set[int] = set()
        self.at_once = at_once

    def stop(self, lease: Lease) -> None:
        """Ask an attempt's job to stop; once its executor's grace period is over, kill it."""
        asked = self._asked.get(lease.id)
        if self.at_once:
            self.kill(lease)
        elif asked is None:
            self._asked[lease.id] = time.monotonic()
            self._send(lease, now=False)
        elif time.monotonic() - asked > self._executors(lease.executor).grace_seconds:
            self.kill(lease)

    def kill(self, lease: Lease) -> None:
        """Kill an attempt's job now."""
        self._send(lease, now=True)

    def _send(self, lease: Lease, now: bool) -> None:
        if lease.handle is None:
            return
        try:
            self._executors(lease.executor).stop(lease.handle, now=now)
        except UserError as error:
            if lease.id not in self._failed:
                self._complain(f"attempt {lease.number} cannot be stopped from here: {error}")
            self._failed.add(lease.id)
