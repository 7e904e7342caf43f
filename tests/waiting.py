"""Wait for a condition: the only way in which tests wait."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], seconds: float = 60.0) -> Value:
    """Call a condition until it returns something true, and return that.

    The deadline only ends a test that would hang: it's far longer than any machine needs.

    Raises:
        AssertionError: The condition didn't hold within so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"the condition didn't hold within {seconds:.0f} s"
        time.sleep(0.02)
    return value
