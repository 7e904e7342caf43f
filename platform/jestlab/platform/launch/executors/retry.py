"""The retry policy of all executors: short repetitions of calls that fail for a passing reason.

A launch or a poll is repeated later anyway, so one call must not hold up others for long.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    wait_exponential,
)

from jestlab.platform.launch.executors.base import ExecutorError
from jestlab.platform.launch.options import Intervals

Result = TypeVar("Result")

ATTEMPTS = 4
LONGEST_SECONDS = 60.0
"""Longest pause between two attempts, whatever the service asks for."""


class Transient(Exception):
    """An error that may pass within seconds.

    Attributes:
        error: Error to raise if it does not pass.
        wait_seconds: Pause that the service asks for; None if it doesn't.
    """

    def __init__(self, error: ExecutorError, wait_seconds: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait_seconds = wait_seconds


def retried(act: Callable[[], Result], halted: threading.Event | None = None) -> Result:
    """Call a function again while it raises `Transient`, with growing pauses.

    Args:
        act: The function, which must be safe to repeat.
        halted: Ends the pauses of calls that began before it was set.

    Raises:
        ExecutorError: The error of the last attempt.
    """
    backoff = wait_exponential(multiplier=Intervals.from_environment().api_pause)

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, Transient) and error.wait_seconds is not None:
            return min(error.wait_seconds, LONGEST_SECONDS)
        return backoff(state) * random.uniform(1.0, 1.5)

    retrying = Retrying(
        retry=retry_if_exception_type(Transient),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait,
        sleep=time.sleep if halted is None or halted.is_set() else sleep_using_event(halted),
        reraise=True,
    )
    try:
        return retrying(act)
    except Transient as error:
        raise error.error from None


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Return the pause that the header `Retry-After` asks for, in seconds; None without a valid one."""
    from urllib3.exceptions import InvalidHeader
    from urllib3.util import Retry

    value = next((value for name, value in (headers or {}).items() if name.lower() == "retry-after"), None)
    try:
        return None if value is None else Retry().parse_retry_after(value)
    except InvalidHeader:
        return None
