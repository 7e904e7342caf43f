"""Run the controller in a thread while the main thread handles signals, and call executors in parallel."""

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

MAX_CONCURRENT = 16
"""Maximum number of concurrent requests to an API."""


def run_in_thread(work: Callable[[], Value], interrupt: Callable[[], None]) -> Value:
    """Call `work` in another thread and return its result; call `interrupt` here at each SIGINT or SIGTERM.

    Python handles signals only in the main thread: called in another thread, this function ignores them.
    """
    # A signal handler may interrupt `get` in this thread: unlike a Queue, a SimpleQueue allows `put` then.
    calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
    handlers = {}
    context = contextvars.copy_context()  # Jupyter uses it to assign output to a cell
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


def submit_each(act: Callable[[Item], Value], items: Iterable[Item]) -> list[Future[Value]]:
    """Start calls of a function for all items in parallel, and don't wait.

    All calls share one pool of threads. `act` must not use this module: it could wait forever for a thread.
    """
    return [_pool().submit(act, item) for item in items]


def map_parallel(act: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
    """Call a function for all items in parallel; return the results in order, or raise the first error."""
    futures = submit_each(act, items)
    wait(futures)
    return [future.result() for future in futures]


@functools.cache  # starting new threads would be slower than most requests
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_CONCURRENT, thread_name_prefix="launch")
