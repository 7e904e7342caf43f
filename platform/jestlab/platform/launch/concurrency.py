"""Run the controller in any context, wake it from any thread, and call an executor for many jobs at once."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")

AT_A_TIME = 16
"""Number of concurrent requests to an API."""


def run(work: Callable[[], Coroutine[Any, Any, Value]], interrupt: Callable[[], None]) -> Value:
    """Run a coroutine to completion, also inside the event loop of a notebook.

    A loop that already runs in this thread cannot run another one. There the coroutine gets a thread, and
    Ctrl-C, which only reaches the main thread, is forwarded to it.

    Args:
        work: Creates the coroutine. It installs signal handlers itself if `receives_signals`.
        interrupt: Called in the coroutine's loop at each Ctrl-C that the coroutine cannot receive.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    loops: list[asyncio.AbstractEventLoop] = []

    async def with_loop() -> Value:
        loops.append(asyncio.get_running_loop())
        return await work()

    # A notebook finds the cell of an output by the context.
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "launch") as pool:
        future = pool.submit(context.run, asyncio.run, with_loop())
        while True:
            try:
                return future.result()
            except KeyboardInterrupt:
                for loop in loops:
                    with suppress(RuntimeError):  # just closed
                        loop.call_soon_threadsafe(interrupt)


def receives_signals() -> bool:
    """Return whether this thread can install signal handlers: only the main thread can."""
    return threading.current_thread() is threading.main_thread()


def each(act: Callable[[Item], Value], items: Sequence[Item]) -> list[Value]:
    """Call a function for each item in parallel, and return the results in order; raise the first error.

    The function must not call `each`.
    """
    if len(items) < 2:
        return [act(item) for item in items]
    futures = [_pool().submit(act, item) for item in items]
    wait(futures)
    return [future.result() for future in futures]


@functools.cache  # starting threads is slower than most requests
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="launch")


class Wakeup:
    """An event that any thread can set and one coroutine waits for."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiting coroutine, or make its next wait return immediately; callable from any thread."""
        if self._loop is None:
            self._event.set()
            return
        with suppress(RuntimeError):  # the loop was just closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Return once the event is set, or after a number of seconds; then clear it."""
        self._loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()
