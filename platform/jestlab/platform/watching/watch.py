"""Look at the runs of an experiment again and again: the whole of it first, then only what has changed."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jestlab.platform.launch.pace import EXAMPLES, Pace, Speeds
from jestlab.platform.launch.waiting import Waits
from jestlab.platform.store.marks import NOTHING, Mark, Marks, marks
from jestlab.platform.store.records import WAITING, Progress, RunRow, RunState, Spending
from jestlab.platform.store.spending import spending
from jestlab.platform.store.store import Store
from jestlab.platform.watching.standing import Stands, standing

LOSS, FLOPS = "loss", "flops_total"
"""Metrics that are shown of every run."""

_STANDS_SECONDS = 5.0
"""How often it is asked anew what runs wait for and whether they live, where none has moved."""

_SHARE = 20
"""What takes long is read again only after so many times as long."""


@dataclass(frozen=True)
class Line:
    """What is shown of a run: its last loss, and its cost so far and planned.

    Attributes:
        run: With the state and reason that are true now.
        loss: The newest; None before the first.
        rate: Examples per second: see `Pace`.
        eta_seconds: Until its end, at this speed.
        cost: So far, and planned.
        waits: What it waits for; None if it does not wait. Its place in line changes with every run that
            begins, and so does not count where lines are compared.
        repeats: Whether an earlier line is of the same run, under another label.
    """

    run: RunRow
    loss: float | None
    rate: float | None
    eta_seconds: float | None
    cost: Spending
    waits: Waits | None = field(default=None, compare=False)
    repeats: bool = False


class Look(NamedTuple):
    """All runs as they were at one moment.

    Attributes:
        lines: In the order of the study.
        changed: Places of the lines that say something else than at the look before; all at the first look,
            and when the study was launched anew.
    """

    lines: Sequence[Line]
    changed: Collection[int]


class Watch:
    """The runs of an experiment, which knows how fast they are since it reads them repeatedly."""

    def __init__(self, store: Store, experiment: str) -> None:
        """Watch an experiment; nothing is read yet."""
        self._store = store
        self._experiment = experiment
        self._marks = NOTHING
        self._rows: list[RunRow] = []
        self._places: dict[str, list[int]] = {}  # of each run among the rows, one for each of its labels
        self._lines: list[Line] = []  # of the rows
        self._changed: set[int] = set()  # places of lines that this look has changed
        self._stands: dict[str, Stands] = {}
        self._paces: dict[str, Pace] = {}
        self._costs: dict[str, Spending] = {}
        self._costs_due = self._stands_due = 0.0

    def look(self) -> Look:
        """Read what has changed.

        Raises:
            UserError: There is no such experiment any more.
        """
        try:
            return self._look()
        except Exception:
            self._marks = NOTHING  # what was read by halves is read anew
            raise

    def _look(self) -> Look:
        before = self._marks
        self._changed = set()
        self._marks = marks(self._store, self._experiment, before)
        went_on, others, moved = self._changes(before)
        self._read_costs(moved)
        running = set(self._marks.of((RunState.RUNNING,)))
        began = time.monotonic()
        if moved or began >= self._stands_due:
            self._read_rows(running - others)  # one that was lost and began anew has another attempt
            stands = self._read_stands(running.union(others, self._marks.of(WAITING)))
            self._stands_due = began + max(_STANDS_SECONDS, _SHARE * (time.monotonic() - began))
        else:  # which place in line runs have is only known of all that wait together
            doubted = {run for run in went_on if self._stands[run].run.reason}
            stands = self._read_stands(others.union(doubted).difference(self._marks.of(WAITING)))
        self._write(running | went_on | stands)
        return Look(list(self._lines), self._changed)

    def running(self) -> dict[str, int]:
        """Return the steps of the runs that ran when somebody looked, by their fingerprints."""
        return {run: mark.step for run, mark in self._marks.states.get(RunState.RUNNING, {}).items()}

    def _changes(self, before: Marks) -> tuple[set[str], set[str], bool]:
        """Take the rows of runs that have changed.

        Returns:
            Runs that have only gone on, others that have changed, and whether any is in another state.
        """
        now = self._marks
        old = {
            run: mark
            for state in before.states
            if state in now.read or state not in now.states
            for run, mark in before.states[state].items()
        }
        if now.launched != before.launched or sum(map(len, now.states.values())) != len(self._places):
            self._take(self._store.runs(self._experiment))
            return set(), set(self._places), True
        pairs = [(run, mark, old.get(run)) for state in now.read for run, mark in now.states[state].items()]
        changed = {run: (mark, was) for run, mark, was in pairs if mark != was}
        went_on = {run for run, (mark, was) in changed.items() if was and _but_steps(mark) == _but_steps(was)}
        for run in went_on:
            for place in self._places[run]:
                self._rows[place] = replace(self._rows[place], step=changed[run][0].step)
        others = changed.keys() - went_on
        self._read_rows(others)
        return (
            went_on,
            set(others),
            any(was is None or was.state != mark.state for mark, was in changed.values()),
        )

    def _read_rows(self, runs: Collection[str]) -> None:
        """Read rows of some runs again."""
        for row in self._store.runs(self._experiment, runs) if runs else ():
            for place in self._places.get(row.fingerprint, ()):  # else it has just come
                if self._rows[place].label == row.label:
                    self._rows[place] = row

    def _take(self, rows: Sequence[RunRow]) -> None:
        """Take the rows of an experiment that was launched anew, or for the first time."""
        self._rows, self._places = list(rows), {}
        for place, row in enumerate(rows):
            self._places.setdefault(row.fingerprint, []).append(place)
        self._lines = [Line(row, None, None, None, Spending()) for row in rows]
        self._changed = set(range(len(rows)))

    def _read_costs(self, moved: bool) -> None:
        """Read costs again when a run has begun or ended, unless they were read just now."""
        began = time.monotonic()
        if (moved and began >= self._costs_due) or not self._costs:
            self._costs = spending(self._store, self._experiment)
            self._costs_due = began + _SHARE * (time.monotonic() - began)

    def _read_stands(self, wanted: Collection[str]) -> set[str]:
        """Read how some runs stand; return those that the experiment still has."""
        first = sorted(self._places[run][0] for run in wanted if run in self._places)
        rows = [self._rows[at] for at in first]
        stands = standing(self._store, self._experiment, self._costs, rows) if rows else []
        self._stands |= {each.run.fingerprint: each for each in stands}
        return {row.fingerprint for row in rows}

    def _write(self, runs: Collection[str]) -> None:
        """Read how far runs are, and write their lines anew."""
        stands = [self._stands[run] for run in runs if run in self._places]
        begun = [each.run.fingerprint for each in stands if each.run.state not in WAITING]
        progress = self._store.progress(begun, (LOSS, EXAMPLES, FLOPS))
        for each in stands:
            for place in self._places[each.run.fingerprint]:
                run = self._rows[place]
                if (run.state, run.reason) != (each.run.state, each.run.reason):
                    run = replace(run, state=each.run.state, reason=each.run.reason)
                new = self._line(run, each.waits, progress.get(run.fingerprint))
                if place != self._places[run.fingerprint][0]:
                    new = replace(new, repeats=True)
                if new != self._lines[place]:
                    self._changed.add(place)
                self._lines[place] = new

    def _line(self, run: RunRow, waits: Waits | None, progress: Progress | None) -> Line:
        latest: Mapping[str, float] = progress.latest if progress is not None else {}
        cost, speeds = self._costs.get(run.fingerprint, Spending()), Speeds()
        if run.state == RunState.RUNNING and progress is not None:
            speeds = self._paces.setdefault(run.fingerprint, Pace()).add(progress)
            cost = replace(cost, actual_flops=latest.get(FLOPS, cost.actual_flops))
        return Line(run, latest.get(LOSS), speeds.examples, speeds.seconds_left, cost, waits)


def _but_steps(mark: Mark) -> Mark:
    """Return what a mark says besides how far the run is."""
    return mark._replace(step=0, updated_at=None)
