"""How fast requests are sent to an API: so many a second, and none while it asks for a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

LONGEST_SECONDS = 60.0
"""The longest pause that an API is granted; whoever asks for more is asked again after it."""


class Rate:
    """Lets the threads of one executor send their requests, in turn.

    Requests come evenly, after a few at once: each has a moment of its own, and takes the next that is free.
    """

    def __init__(
        self,
        per_second: float,
        at_once: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Create it; nothing has been sent yet.

        Args:
            per_second: Requests a second.
            at_once: How many may come together after a silence.
            clock: Seconds of a clock that only goes forward.
            wait: Waits so many seconds, or until `halt`; None to wait indeed.
        """
        self._seconds = 1 / per_second
        self._credit = at_once * self._seconds
        self._clock = clock
        self._halted = threading.Event()
        self._wait = wait or self._halted.wait
        self._lock = threading.Lock()
        self._next = -float("inf")
        self._paused_until = -float("inf")

    def take(self) -> None:
        """Wait for this thread's turn; at once after `halt`, so that what runs can be stopped."""
        while not self._halted.is_set():
            with self._lock:
                now = self._clock()
                if now >= self._paused_until:
                    self._next = max(self._next, now - self._credit) + self._seconds
                    left = self._next - self._seconds - now
                    break
                left = self._paused_until - now
            self._wait(left)
        else:
            return
        if left > 0:
            self._wait(left)

    def pause(self, seconds: float) -> None:
        """Let no thread send anything for so long, as an API has asked; a longer pause stays."""
        with self._lock:
            until = self._clock() + min(max(seconds, 0.0), LONGEST_SECONDS)
            self._paused_until = max(self._paused_until, until)

    def halt(self) -> None:
        """Let whoever waits go on, now and from now on."""
        self._halted.set()

    @property
    def halted(self) -> bool:
        """Whether `halt` has been called."""
        return self._halted.is_set()


def retry_after(headers: Mapping[str, str] | None, now: float) -> float | None:
    """Return for how many seconds an answer asks to be left alone; None if it does not say.

    Args:
        headers: Of the answer, whose `Retry-After` is a number of seconds or a date (RFC 9110, 10.2.3).
        now: Seconds since 1970.
    """
    said = next((value for name, value in (headers or {}).items() if name.lower() == "retry-after"), None)
    if said is None:
        return None
    if said.strip().isdigit():
        return float(said)
    try:
        return max(parsedate_to_datetime(said).timestamp() - now, 0.0)
    except ValueError:
        return None
