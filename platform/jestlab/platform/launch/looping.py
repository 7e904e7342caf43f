"""Run a coroutine to its end from anywhere: from a command, from a thread, or from a notebook's cell.

A notebook's kernel runs cells inside an event loop of its own, in which no other can run: there the coroutine
gets a thread, and Ctrl-C, which reaches the main thread alone, is passed on to it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

Value = TypeVar("Value")


def run(work: Callable[[], Coroutine[Any, Any, Value]], interrupt: Callable[[], None]) -> Value:
    """Run a coroutine to its end.

    Args:
        work: Makes the coroutine. Where no loop runs in this thread, it runs here, and is to install signal
            handlers itself if `receives_signals`.
        interrupt: Called in the coroutine's loop at each Ctrl-C, where the coroutine cannot see it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    loops: list[asyncio.AbstractEventLoop] = []

    async def noted() -> Value:
        loops.append(asyncio.get_running_loop())
        return await work()

    # In a copy of this context, from which a notebook knows to which cell the output belongs.
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "launch") as pool:
        ended = pool.submit(context.run, asyncio.run, noted())
        while True:
            try:
                return ended.result()
            except KeyboardInterrupt:
                for loop in loops:
                    with suppress(RuntimeError):  # it has just been closed
                        loop.call_soon_threadsafe(interrupt)


def receives_signals() -> bool:
    """Whether signal handlers can be installed here: Python allows it in the main thread alone."""
    return threading.current_thread() is threading.main_thread()
