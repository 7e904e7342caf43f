"""Clusters start slowly, and many tests use them: a cluster lasts until a test follows that needs none."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar, cast

import pytest

T = TypeVar("T")

_running: dict[str, object] = {}
_ends = ExitStack()


def lasting(name: str, start: Callable[[], AbstractContextManager[T]]) -> T:
    """Return the cluster that an earlier test of this process has started by this name, or start it."""
    if name not in _running:
        _running[name] = _ends.enter_context(start())
    return cast(T, _running[name])


def end_after(test: pytest.Item, following: pytest.Item | None) -> None:
    """End all of them after a test, unless the next one is in the same file or needs a cluster as well.

    A fixture of the session would last as long as all tests, and idle daemons take their share of two cores.
    """
    if following is not None and (
        following.path == test.path or following.get_closest_marker("cluster") is not None
    ):
        return
    _running.clear()
    _ends.close()
