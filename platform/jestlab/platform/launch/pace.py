"""How fast runs are: by the times at which they reported their progress, and not at which somebody looked."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime

from jestlab.platform.store.records import Progress

EXAMPLES = "examples_seen"
"""The metric whose growth is a run's speed."""

_REPORTS = 15  # the last ones, over which a speed is taken


@dataclass(frozen=True)
class Speeds:
    """How fast a run is; None where that is not known yet.

    Attributes:
        examples: Examples a second.
        steps: Steps a second.
        seconds_left: Until its last step, as of its last report.
    """

    examples: float | None = None
    steps: float | None = None
    seconds_left: float | None = None


class Pace:
    """Measures how fast one run is.

    By the first report that is seen, it is the speed since the attempt began, with the time to start and to
    compile. Two reports and more, which whoever goes on watching sees, give the speed between them.
    """

    def __init__(self) -> None:
        """Create it; nothing has been reported yet."""
        self._attempt: datetime | None = None
        self._reports: deque[tuple[datetime, int, float | None]] = deque(maxlen=_REPORTS)

    def add(self, progress: Progress) -> Speeds:
        """Take in how far the run is, which need not be news, and return how fast it is."""
        if progress.started_at is None or progress.reported_at is None:
            return Speeds()
        if progress.started_at != self._attempt:
            self._attempt = progress.started_at
            self._reports.clear()
        done = progress.step - progress.first_step
        if done and (not self._reports or progress.reported_at > self._reports[-1][0]):
            self._reports.append((progress.reported_at, progress.step, progress.latest.get(EXAMPLES)))
        if not self._reports:
            return Speeds()
        if len(self._reports) > 1:
            (began, first, before), (ended, last, after) = self._reports[0], self._reports[-1]
        else:
            ended, last, after = self._reports[-1]  # less than before: it went back to a checkpoint
            began, first = progress.started_at, progress.first_step
            before = None if after is None else after * first / last
        seconds = (ended - began).total_seconds()
        if seconds <= 0 or last <= first:
            return Speeds()
        steps = (last - first) / seconds
        grown = None if before is None or after is None or after <= before else after - before
        total = progress.total_steps
        left = None if total is None else max(0, total - progress.step) / steps
        return Speeds(None if grown is None else grown / seconds, steps, left)
