"""Memory that a process keeps for itself."""

from __future__ import annotations

import ctypes
import sys

# Parameters of mallopt(3), from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_NEVER = 2**31 - 1


def keep_memory() -> None:
    """Let glibc's malloc keep what is freed: called before the first computation of a process that trains.

    XLA allocates the temporary arrays of each training step on CPU anew. By default glibc returns blocks of
    this size to the system when they are freed, so that every step touches every page for the first time. The
    process never shrinks below its peak, and its threads share one heap: nothing for a process that serves
    many small requests. Elsewhere than on Linux with glibc it does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # Heaps of other threads than the first one are too small to hold such blocks.
        for parameter, value in ((_ARENA_MAX, 1), (_TRIM_THRESHOLD, _NEVER), (_MMAP_THRESHOLD, _NEVER)):
            mallopt(parameter, value)
