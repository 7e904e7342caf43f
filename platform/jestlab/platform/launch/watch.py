"""Read the status of an experiment repeatedly: all of it first, then only the runs that changed."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from jestlab.platform.launch.display import Pace
from jestlab.platform.launch.status import RunStatus, read_status
from jestlab.platform.store.marks import NOTHING, Marks, marks
from jestlab.platform.store.records import WAITING, RunState, Spending
from jestlab.platform.store.spending import spending
from jestlab.platform.store.store import Store

_WAITS_SECONDS = 5.0
"""How often the waiting runs are read if no run has changed its state."""

_SHARE = 20
"""Costs and waiting runs are read at most this fraction (1/20) of the time."""


class WatchUpdate(NamedTuple):
    """Status of all runs at one time.

    Attributes:
        rows: Rows in the order of the study.
        changed: Indices of the rows that changed since the last update; all rows after a new launch.
    """

    rows: Sequence[RunStatus]
    changed: Collection[int]


class Watch:
    """Follows the runs of one experiment."""

    def __init__(self, store: Store, experiment: str) -> None:
        self._store = store
        self._experiment = experiment
        self._marks = NOTHING
        self._rows: list[RunStatus] = []
        self._index: dict[tuple[str, int], int] = {}  # label and seed → index of the row
        self._paces: dict[str, Pace] = {}
        self._costs: dict[str, Spending] = {}
        self._costs_due = self._waits_due = 0.0

    def update(self) -> WatchUpdate:
        """Read the rows that changed.

        Raises:
            UserError: The experiment doesn't exist any more.
        """
        before, self._marks = self._marks, NOTHING  # after an error, read everything again
        new = marks(self._store, self._experiment, before)
        changed = self._read(before, new)
        self._marks = new
        return WatchUpdate(list(self._rows), changed)

    def running(self) -> dict[str, int]:
        """Return the step of each run that was running at the last update, by fingerprint."""
        return {run: mark.step for run, mark in self._marks.states.get(RunState.RUNNING, {}).items()}

    def _read(self, before: Marks, new: Marks) -> set[int]:
        """Read what differs between two marks; return the indices of the changed rows."""
        began = time.monotonic()
        different, moved = _compare(before, new)
        count = sum(map(len, new.states.values()))
        is_new = new.launched != before.launched or count != len({row.run.fingerprint for row in self._rows})
        if is_new or not self._costs or (moved and began >= self._costs_due):
            self._costs = spending(self._store, self._experiment)
            self._costs_due = began + _SHARE * (time.monotonic() - began)
        if is_new:
            rows = self._store.runs(self._experiment)
            self._rows = read_status(self._store, self._experiment, self._costs, rows, self._paces)
            self._index = {(row.label, row.seed): index for index, row in enumerate(rows)}
            return set(range(len(rows)))
        wanted, waiting = different.union(new.of((RunState.RUNNING,))), set(new.of(WAITING))
        if reads_waits := moved or began >= self._waits_due:
            wanted |= waiting
        else:  # the place in line depends on all waiting runs
            wanted -= waiting
        if not wanted:
            return set()
        rows = self._store.runs(self._experiment, wanted)
        changed = set()
        for row in read_status(self._store, self._experiment, self._costs, rows, self._paces):
            index = self._index.get((row.run.label, row.run.seed))
            if index is not None:  # otherwise it was added just now
                if row != self._rows[index]:
                    changed.add(index)
                self._rows[index] = row
        if reads_waits:
            self._waits_due = began + max(_WAITS_SECONDS, _SHARE * (time.monotonic() - began))
        return changed


def _compare(before: Marks, new: Marks) -> tuple[set[str], bool]:
    """Return the runs with different marks, and whether any of them is in another state."""
    old = {
        run: mark
        for state in before.states
        if state in new.read or state not in new.states
        for run, mark in before.states[state].items()
    }
    pairs = {
        run: (mark, old.get(run))
        for state in new.read
        for run, mark in new.states[state].items()
        if mark != old.get(run)
    }
    return set(pairs), any(was is None or was.state != mark.state for mark, was in pairs.values())
