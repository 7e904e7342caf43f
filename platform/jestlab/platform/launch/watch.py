"""Follow the status of an experiment: read all rows first, then only those of changed and running runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from jestlab.platform.launch.display import Pace
from jestlab.platform.launch.status import RunStatus, read_status
from jestlab.platform.store.records import WAITING, RunSnapshot, RunState, Spending
from jestlab.platform.store.spending import spending
from jestlab.platform.store.store import Store

_WAITS_SECONDS = 5.0
"""How often the waiting runs are read if no run has changed its state."""

_SHARE = 20
"""Costs and waiting runs are read for at most 1/20 of the time."""


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
        self._launched_at: datetime | None = None
        self._runs: Mapping[str, RunSnapshot] = {}
        self._rows: list[RunStatus] = []
        self._index: dict[tuple[str, int], int] = {}  # label and seed → index of the row
        self._paces: dict[str, Pace] = {}
        self._costs: dict[str, Spending] = {}
        self._costs_due = self._waits_due = 0.0

    def update(self) -> WatchUpdate:
        """Read the rows that changed. If this fails, the next update reads them.

        Raises:
            UserError: The experiment doesn't exist any more.
        """
        launched_at, runs = self._store.snapshot(self._experiment)
        is_new = launched_at != self._launched_at or runs.keys() != self._runs.keys()
        different = {run for run, new in runs.items() if self._runs.get(run) != new}
        moved = is_new or any(self._runs[run].state != runs[run].state for run in different)
        began = time.monotonic()
        if is_new or (moved and began >= self._costs_due):
            self._costs = spending(self._store, self._experiment)
            self._costs_due = began + _SHARE * (time.monotonic() - began)
        changed = self._read_all() if is_new else self._read(runs, different, moved)
        self._launched_at, self._runs = launched_at, runs
        return WatchUpdate(list(self._rows), changed)

    def _read_all(self) -> set[int]:
        """Read all rows; return their indices."""
        self._rows = read_status(self._store, self._experiment, self._costs, paces=self._paces)
        self._index = {(row.run.label, row.run.seed): index for index, row in enumerate(self._rows)}
        return set(range(len(self._rows)))

    def _read(self, runs: Mapping[str, RunSnapshot], different: set[str], moved: bool) -> set[int]:
        """Read the rows of running runs and of different ones; return the indices of the changed rows."""
        began = time.monotonic()
        waiting = {run.fingerprint for run in runs.values() if run.state in WAITING}
        wanted = different.union(run.fingerprint for run in runs.values() if run.state == RunState.RUNNING)
        # The place in line depends on all waiting runs.
        reads_waits = moved or began >= self._waits_due
        wanted = wanted | waiting if reads_waits else wanted - waiting
        changed = set()
        if wanted:
            rows = self._store.runs(self._experiment, wanted)
            for row in read_status(self._store, self._experiment, self._costs, rows, self._paces):
                index = self._index.get((row.run.label, row.run.seed))
                if index is None:  # added just now, so the next update reads all rows
                    continue
                if row != self._rows[index]:
                    changed.add(index)
                self._rows[index] = row
        if reads_waits:
            self._waits_due = began + max(_WAITS_SECONDS, _SHARE * (time.monotonic() - began))
        return changed
