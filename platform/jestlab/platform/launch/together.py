"""Do something about each of many jobs, several at a time: APIs take a while to answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

Thing = TypeVar("Thing")
Value = TypeVar("Value")

AT_A_TIME = 16
"""Threads, and so requests to an API."""


def each(act: Callable[[Thing], Value], things: Sequence[Thing]) -> list[Value]:
    """Return what a function returns for each of some things, in their order; the first error is raised.

    The function does not call this one.
    """
    if len(things) < 2:
        return [act(thing) for thing in things]
    done = [_pool().submit(act, thing) for thing in things]
    wait(done)
    return [one.result() for one in done]


@functools.cache  # a launcher asks often, and to start threads takes longer than most answers
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="launch")
