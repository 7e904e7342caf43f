"""The lock of a run: its holder may work in the run's folder. The kernel frees it when its holder dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

_NAME = "worker.lock"
_SLICE_SECONDS = 0.2


def acquire(directory: Path, seconds: float, give_up: Callable[[], bool]) -> FileLock | None:
    """Take a run's lock.

    Args:
        directory: The run's folder; it exists.
        seconds: How long to wait for another holder.
        give_up: Asked while waiting; True ends the wait.

    Returns:
        The lock, held until it is released or this process ends; None if it was not to be had.
    """
    lock = FileLock(directory / _NAME)
    deadline = time.monotonic() + seconds
    while not give_up():
        try:
            lock.acquire(timeout=min(_SLICE_SECONDS, max(deadline - time.monotonic(), 0.0)))
        except Timeout:
            if time.monotonic() >= deadline:
                return None
        else:
            return lock
    return None


def is_held(directory: Path) -> bool:
    """Whether some process holds a run's lock now."""
    if not (directory / _NAME).exists():
        return False
    lock = FileLock(directory / _NAME)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False
