"""For how long things have stayed as they are: by this process's own clock and no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable


class Silence:
    """What was seen last, and since when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing seen yet.

        Args:
            clock: Seconds.
        """
        self._clock = clock
        self._seen: dict[Hashable, tuple[object, float]] = {}

    def of(self, what: Hashable, sign: object) -> float:
        """Seconds since a thing was first seen with its present sign of life.

        Args:
            what: The thing.
            sign: Anything that changes while it lives, such as its last heartbeat.
        """
        before = self._seen.get(what)
        if before is None or before[0] != sign:
            self._seen[what] = (sign, self._clock())
            return 0.0
        return self._clock() - before[1]

    def forget(self) -> None:
        """Begin anew: nobody could be heard, which is not the same as silence."""
        self._seen.clear()
