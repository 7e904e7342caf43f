"""Run the controller in a thread while the main thread handles signals, and call executors in parallel."""

from __future__ import annotations

import contextvars
import functools
import queue
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")

AT_A_TIME = 16
"""Number of concurrent requests to an API."""


def run(work: Callable[[], Value], interrupt: Callable[[], None]) -> Value:
    """Call `work` in a thread; meanwhile, call `interrupt` in this one at each SIGINT and SIGTERM.

    Only the main thread of a process, and thus of a notebook, receives signals.
    """
    calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()  # signal handlers may add to it
    handlers = {}
    context = contextvars.copy_context()  # a notebook finds the cell of an output by the context
    with ThreadPoolExecutor(1, "launch") as pool:
        try:
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGINT, signal.SIGTERM):
                    handlers[number] = signal.signal(number, lambda *_: calls.put(interrupt))
            future = pool.submit(context.run, work)
            future.add_done_callback(lambda _: calls.put(None))
            while (call := calls.get()) is not None:
                call()
            return future.result()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def start(act: Callable[[Item], Value], items: Iterable[Item]) -> list[Future[Value]]:
    """Call a function for each item in parallel; don't wait. The function must not use this module."""
    return [_pool().submit(act, item) for item in items]


def each(act: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
    """Call a function for each item in parallel, and return the results in order; raise the first error."""
    futures = start(act, items)
    wait(futures)
    return [future.result() for future in futures]


@functools.cache  # starting threads is slower than most requests
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="launch")
