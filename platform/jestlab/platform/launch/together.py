"""Do something about each of many jobs, several at a time: APIs take a while to answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Thing = TypeVar("Thing")
Value = TypeVar("Value")

AT_A_TIME = 16
"""Threads, and so requests to an API."""


def each(act: Callable[[Thing], Value], things: Sequence[Thing]) -> list[Value]:
    """Return what a function returns for each of some things, in their order; the first error is raised."""
    if len(things) < 2:
        return [act(thing) for thing in things]
    with ThreadPoolExecutor(min(len(things), AT_A_TIME), thread_name_prefix="launch") as pool:
        return list(pool.map(act, things))
