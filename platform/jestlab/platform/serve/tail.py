"""What has changed in an experiment since somebody looked last, read once for all who look.

A cursor is a count of changes. Whoever shows it gets the rows that have changed after it, and the points that
have come to curves since: never what was there already, however much that is. Times are not compared, since
machines' clocks differ; what is new is what differs from what was read before.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import takewhile
from uuid import uuid4

from sqlalchemy import Connection, TextClause, text

from jestlab.platform.launch.status import LOSS, RunStatus, wait_lines
from jestlab.platform.launch.watch import Watch
from jestlab.platform.serve.rendering import whole
from jestlab.platform.serve.totals import Totals
from jestlab.platform.store.store import Store

LOOK_SECONDS = 1.0
"""Nobody makes the store be read more often than this."""

MOST_POINTS = 100_000
"""Points that are kept for those who look rarely; who has missed more gets the curves anew."""

_TOGETHER = 200
"""Runs whose points are read with one query."""


@dataclass(frozen=True)
class Point:
    """A point that has come to the loss of a run."""

    fingerprint: str
    step: int
    value: float | None


@dataclass(frozen=True)
class Snapshot:
    """All rows as they were read at one time.

    Attributes:
        cursor: To ask with for what has changed since.
        lines: In the order of the study.
        totals: Over all runs.
    """

    cursor: str
    lines: Sequence[RunStatus]
    totals: Totals = field(default_factory=Totals)

    @cached_property
    def why(self) -> list[str]:
        """Why runs wait, as lines."""
        return list(wait_lines(self.lines))


@dataclass(frozen=True)
class Changes:
    """What has changed since a cursor.

    Attributes:
        snapshot: How everything is now.
        lines: The rows that have changed, with their places; all of them in the beginning.
        points: New points of losses, in their order.
        anew: Whether the cursor was none of ours, or too old: what was known before counts no more.
    """

    snapshot: Snapshot
    lines: Sequence[tuple[int, RunStatus]]
    points: Sequence[Point]
    anew: bool


class Tail:
    """The rows and losses of one experiment. All methods may be called from any thread."""

    def __init__(self, store: Store, experiment: str) -> None:
        """Follow an experiment; nothing is read yet."""
        self._store = store
        self._watch = Watch(store, experiment)
        self._epoch = uuid4().hex[:8]  # cursors of another server, or of one that was restarted, mean nothing
        self._count = 0
        self._snapshot = Snapshot("", ())
        self._changed: dict[int, int] = {}  # place of each row → when it changed, as a count; the latest last
        self._points: deque[tuple[int, Point]] = deque(maxlen=MOST_POINTS)
        self._forgotten = 0  # the count of the newest point that is kept no more
        self._last_steps: dict[str, int] = {}  # of runs whose losses are followed
        self._looked = 0.0
        self._lock = threading.Lock()

    def snapshot(self) -> Snapshot:
        """Return all rows."""
        with self._lock:
            return self._look()

    def since(self, cursor: str) -> Changes:
        """Return what has changed since a cursor; everything if it is none of ours."""
        with self._lock:
            now = self._look()
            epoch, _, number = cursor.partition(".")
            asked = whole(number)
            known = epoch == self._epoch and asked is not None and asked >= self._forgotten
            count = asked or 0 if known else 0
            changed = takewhile(lambda pair: pair[1] > count, reversed(self._changed.items()))
            lines = [(place, now.lines[place]) for place in sorted(place for place, _ in changed)]
            come = list(takewhile(lambda pair: pair[0] > count, reversed(self._points))) if known else []
            return Changes(now, lines, [point for _, point in reversed(come)], not known)

    def _look(self) -> Snapshot:
        """Read the store, unless that was done just now."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return self._snapshot
        (lines, places), before = self._watch.update(), self._snapshot
        self._count += 1
        if len(places) == len(lines):  # others, or other places
            self._changed, totals = {}, Totals().changed((), lines)
        else:
            totals = before.totals.changed(
                (before.lines[place] for place in places), (lines[place] for place in places)
            )
        for place in places:
            self._changed.pop(place, None)  # to its end
            self._changed[place] = self._count
        self._snapshot = Snapshot(f"{self._epoch}.{self._count}", lines, totals)
        self._read_points()
        self._looked = time.monotonic()
        return self._snapshot

    def _read_points(self) -> None:
        """Read the points that have come to the losses of runs that train."""
        steps = self._watch.running()
        # One that has just begun is followed from where it is; one that has ended is read for the last time.
        asked = {
            run: min(self._last_steps.get(run, step), step)
            for run, step in {**self._last_steps, **steps}.items()
        }
        runs = list(asked)
        come: list[Point] = []
        with self._store.reading() as connection:
            for start in range(0, len(runs), _TOGETHER):
                come += _points(connection, {run: asked[run] for run in runs[start : start + _TOGETHER]})
        self._last_steps = steps
        for point in come:
            if len(self._points) == MOST_POINTS:
                self._forgotten = self._points[0][0]
            self._points.append((self._count, point))
            if point.fingerprint in steps:
                steps[point.fingerprint] = point.step


def _points(connection: Connection, asked: dict[str, int]) -> Sequence[Point]:
    """Read the losses of runs after a step of each, in the order of their steps."""
    if not asked:
        return []
    given: dict[str, str | int] = {"name": LOSS}
    for place, (run, step) in enumerate(asked.items()):
        given |= {f"run{place}": run, f"step{place}": step}
    return [Point(*row) for row in connection.execute(_query_of_points(len(asked)), given)]


@cache
def _query_of_points(runs: int) -> TextClause:
    rows = ", ".join(f"(:run{place}, CAST(:step{place} AS BIGINT))" for place in range(runs))
    return text(f"""
        WITH asked (fingerprint, step) AS (VALUES {rows})
        SELECT run.fingerprint, metric.step, metric.value
        FROM asked
        CROSS JOIN run
        CROSS JOIN metric
        WHERE run.fingerprint = asked.fingerprint AND metric.run_id = run.id
            AND metric.name_id = (SELECT id FROM metric_name WHERE name = :name) AND metric.step > asked.step
        ORDER BY metric.step""")
