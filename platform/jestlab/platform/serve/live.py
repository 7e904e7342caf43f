"""The changes to an experiment since a cursor, read once for all viewers.

A cursor counts updates. A viewer gets the rows that have changed since its cursor, and new points of curves.
Times aren't compared, because the clocks of machines differ.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from typing import NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, TextClause, text

from jestlab.analysis import units
from jestlab.platform.launch.status import LOSS, RunStatus, wait_lines
from jestlab.platform.launch.watch import Watch
from jestlab.platform.serve.rendering import whole
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

INTERVAL_SECONDS = 1.0
"""Minimum time between two reads of the store."""

MOST_POINTS = 100_000
"""Points kept for slow viewers; a viewer that has missed more reloads its curves."""

_PER_QUERY = 200
"""Runs whose points one query reads."""


@dataclass(frozen=True)
class Totals:
    """Sums over the runs of an experiment."""

    counts: Counter[RunState] = field(default_factory=Counter)
    planned: float = 0.0  # FLOPs
    spent: float = 0.0  # FLOPs so far, of runs with planned FLOPs
    hours: float = 0.0  # chip-hours so far

    @classmethod
    def of(cls, rows: Iterable[RunStatus]) -> Totals:
        """Sum up the runs of some rows, each run once."""
        unique = [row for row in rows if not row.repeats]
        priced = [row.cost for row in unique if row.cost.total_flops]
        return cls(
            Counter(row.run.state for row in unique),
            sum(cost.total_flops or 0.0 for cost in priced),
            sum(cost.actual_flops or 0.0 for cost in priced),
            sum(row.cost.actual_hours or 0.0 for row in unique),
        )

    def states(self) -> dict[str, int]:
        """Return the number of runs in each state that has any."""
        return {state.value: self.counts[state] for state in RunState if self.counts[state]}

    def __str__(self) -> str:
        """Write the cost so far, of the planned cost, in one line; empty if unknown."""
        parts = []
        if self.planned:
            share = f"{self.spent / self.planned:.0%}"
            parts.append(f"{units.flops(self.spent)} of {units.flops(self.planned)}, {share}")
        if self.hours:
            parts.append(f"{units.hours(self.hours)} h")
        return "; ".join(parts)


@dataclass(frozen=True)
class Snapshot:
    """All rows at one time, in the order of the study."""

    cursor: str  # for the changes since then
    rows: Sequence[RunStatus]
    totals: Totals = Totals()
    waits: Sequence[str] = ()  # lines


class Point(NamedTuple):
    """A new point of a run's loss."""

    fingerprint: str
    step: int
    value: float | None


class LiveChanges(NamedTuple):
    """The changes since a cursor."""

    snapshot: Snapshot  # the current status
    rows: Sequence[tuple[int, RunStatus]]  # index and content of each changed row; all rows at first
    points: Sequence[Point]  # new points of losses, in order
    is_reset: bool  # whether the cursor was unknown or too old, so that the viewer has to start again


class Live:
    """The rows and losses of one experiment. Methods are thread-safe."""

    def __init__(self, store: Store, experiment: str) -> None:
        self._store = store
        self._watch = Watch(store, experiment)
        self._epoch = uuid4().hex[:8]  # distinguishes cursors of other servers
        self._count = 0
        self._snapshot = Snapshot("", ())
        self._changed: dict[int, int] = {}  # index of a row → count of its last change
        self._points: deque[tuple[int, Point]] = deque(maxlen=MOST_POINTS)
        self._dropped = 0  # count of the newest dropped point
        self._last_steps: dict[str, int] = {}  # of the runs whose losses are read
        self._read_at = 0.0
        self._lock = threading.Lock()

    def snapshot(self) -> Snapshot:
        """Return all rows."""
        with self._lock:
            return self._read()

    def since(self, cursor: str) -> LiveChanges:
        """Return the changes since a cursor; everything for an unknown cursor."""
        with self._lock:
            now = self._read()
            epoch, _, number = cursor.partition(".")
            count = whole(number)
            if epoch != self._epoch or count is None or count < self._dropped:
                return LiveChanges(now, [*enumerate(now.rows)], [], True)
            changed = sorted(index for index, last in self._changed.items() if last > count)
            points = [point for _, point in takewhile(lambda pair: pair[0] > count, reversed(self._points))]
            return LiveChanges(now, [(index, now.rows[index]) for index in changed], points[::-1], False)

    def _read(self) -> Snapshot:
        """Read the store, unless it has just been read."""
        if time.monotonic() - self._read_at < INTERVAL_SECONDS:
            return self._snapshot
        rows, changed = self._watch.update()
        self._count += 1
        if len(changed) == len(rows):  # the experiment may have other rows
            self._changed = {}
        self._changed |= dict.fromkeys(changed, self._count)
        cursor = f"{self._epoch}.{self._count}"
        self._snapshot = Snapshot(cursor, rows, Totals.of(rows), [*wait_lines(rows)])
        self._read_points()
        self._read_at = time.monotonic()
        return self._snapshot

    def _read_points(self) -> None:
        """Read new points of the losses of running runs, and the last points of ended runs."""
        steps = self._watch.running()
        # A run is followed from the step at which it was first seen running.
        after = {
            run: min(self._last_steps.get(run, step), step)
            for run, step in {**self._last_steps, **steps}.items()
        }
        runs = list(after)
        points: list[Point] = []
        with self._store.reading() as connection:
            for start in range(0, len(runs), _PER_QUERY):
                some = {run: after[run] for run in runs[start : start + _PER_QUERY]}
                points += read_points(connection, some)
        self._last_steps = steps
        for point in points:
            if len(self._points) == MOST_POINTS:
                self._dropped = self._points[0][0]
            self._points.append((self._count, point))
            if point.fingerprint in steps:
                steps[point.fingerprint] = point.step


def read_points(connection: Connection, after: dict[str, int]) -> Sequence[Point]:
    """Read the losses of runs after a step of each, in the order of steps."""
    given: dict[str, str | int] = {"name": LOSS}
    for place, (run, step) in enumerate(after.items()):
        given |= {f"run{place}": run, f"step{place}": step}
    return [Point(*row) for row in connection.execute(_points_query(len(after)), given)]


@cache
def _points_query(runs: int) -> TextClause:
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
