"""Intervals of the launcher: polls, heartbeats and waits before retries; and the event that wakes it up."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass

from jestlab.platform.errors import UserError


@dataclass(frozen=True)
class Intervals:
    """How often a launcher looks and how long it waits before it tries again, in seconds.

    Each can be set by an environment variable. The defaults suit runs of minutes and more; tests set them
    small.

    Attributes:
        poll: Between two looks at all runs, unless something wakes the controller (JESTLAB_POLL_SECONDS).
        heartbeat: Between the launcher's signs of life in the store (JESTLAB_HEARTBEAT_SECONDS).
        backoff: Before the first retry of a run; before each further one, four times as long
            (JESTLAB_BACKOFF_SECONDS).
        max_backoff: The longest wait before a retry of a run (JESTLAB_MAX_BACKOFF_SECONDS).
        api_pause: Before the first retry of a call to a cloud's API; before the second, four times as long
            (JESTLAB_API_PAUSE_SECONDS).
    """

    poll: float = 1.0
    heartbeat: float = 10.0
    backoff: float = 2.0
    max_backoff: float = 300.0
    api_pause: float = 0.5

    @classmethod
    def from_environment(cls) -> Intervals:
        """Read the intervals that the environment sets; UserError if one is not a number of seconds."""
        found = {}
        for name in cls.__dataclass_fields__:
            variable = f"JESTLAB_{name.upper()}_SECONDS"
            if value := os.environ.get(variable):
                try:
                    found[name] = float(value)
                except ValueError:
                    found[name] = -1.0
                if not 0 <= found[name] < float("inf"):
                    raise UserError(f"invalid {variable} {value!r}: expected a number of seconds, 0 or more")
        return cls(**found)


class Wakeup:
    """An event that any thread may set, and that one coroutine waits for."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the controller; callable from any thread, also when nobody waits."""
        loop = self._loop
        if loop is None:
            self._event.set()  # nobody has waited yet: who does returns at once
            return
        with suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Return when the event was set since the last call, or after so many seconds."""
        self._loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()
