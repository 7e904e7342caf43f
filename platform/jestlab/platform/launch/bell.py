"""A bell that any thread may ring, and that one coroutine waits for."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Bell:
    """Wakes a controller when there is something to see before its next look."""

    def __init__(self) -> None:
        """Nobody listens yet."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Ring; from any thread, whether anybody listens or not."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        """Return when it has rung since the last time, or after a while."""
        self._loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds)
        self._rung.clear()
