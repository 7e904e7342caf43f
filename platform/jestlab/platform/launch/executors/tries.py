"""Calls to a cloud's API, tried again where another try may help."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Result = TypeVar("Result")

PAUSES_SECONDS: Sequence[float] = (0.5, 2.0)
"""Between tries. A launch or a poll is tried again later anyway: it must not hold up others for long."""


def call(
    function: Callable[[], Result],
    passes: Callable[[Exception], bool],
    pauses_seconds: Sequence[float] | None = None,
) -> Result:
    """Call a function that may safely be called twice.

    Args:
        function: The call.
        passes: Whether an error is one that passes: too many requests, a server's fault, no answer.
        pauses_seconds: Before each further try; None for `PAUSES_SECONDS`.

    Raises:
        Exception: The last error, or the first that does not pass.
    """
    for pause in PAUSES_SECONDS if pauses_seconds is None else pauses_seconds:
        try:
            return function()
        except Exception as error:
            if not passes(error):
                raise
        time.sleep(pause)
    return function()


def passing(status: int | None) -> bool:
    """Whether an HTTP status says that the same request may succeed soon."""
    return status is None or status in (408, 429) or status >= 500
