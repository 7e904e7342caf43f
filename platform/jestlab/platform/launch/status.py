"""Status of the runs of an experiment: the rows that `status`, `watch`, `attach`, and the server show."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from jestlab.analysis.units import duration
from jestlab.platform.launch.display import EXAMPLES, Pace, Speeds
from jestlab.platform.launch.liveness import any_launcher, doubts
from jestlab.platform.launch.options import Intervals
from jestlab.platform.launch.reconcile import SLOT, RetryRules, is_plain_wait
from jestlab.platform.logs import one_line
from jestlab.platform.programs import failures
from jestlab.platform.store import leases
from jestlab.platform.store.records import WAITING, Lease, RunState, RunSummary, Spending, Standing
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store
from jestlab.platform.words import counted, ordinal

LOSS, FLOPS = "loss", "flops_total"
"""Metrics in the rows."""

STARTING = "starting"
"""Reason of a run whose job was launched and has not reported yet."""

_MOST_REASONS = 5
_MOST_NAMES = 3

_FREE_SLOT = "the end of another run, or a higher `jestlab launch --parallel`"
_HIGHER_LIMIT = "a higher `jestlab launch --max-chip-hours`"


class WaitStatus(NamedTuple):
    """Why a run has not started."""

    state: RunState  # state to show: BLOCKED only while the run waits for a dependency
    reason: str | None  # why it is in this state; may be None
    place: str = ""  # place in line and estimated start; empty if unknown
    unblock: str = ""  # what would let it start; empty if unknown


@dataclass(frozen=True)
class RunStatus:
    """One run of an experiment. The two last attributes don't count when rows are compared."""

    run: RunSummary  # the run with its current state and reason, such as doubts whether it still runs
    cost: Spending = field(default_factory=Spending)  # cost so far and planned cost
    loss: float | None = None  # newest training loss; None before the first
    rate: float | None = None  # examples per second; None if unknown
    eta_seconds: float | None = None  # seconds until its end at this speed; None if unknown
    repeats: bool = False  # whether an earlier row shows the same run under another label
    wait: WaitStatus | None = field(default=None, compare=False)  # why it has not started; None if it has
    lease: Lease | None = field(default=None, compare=False)  # last attempt; None before the first

    def as_data(self) -> dict[str, Any]:
        """Return the row as JSON data."""
        run, lease, wait = self.run, self.lease, self.wait
        return {
            "run": run.name,
            "label": run.label,
            "seed": run.seed,
            "fingerprint": run.fingerprint,
            "state": run.state,
            "reason": run.reason,
            "waits": None
            if wait is None
            else {"reason": wait.reason, "place": wait.place or None, "unblock": wait.unblock or None},
            "step": run.step,
            "total_steps": run.total_steps,
            "loss": self.loss,
            "examples_per_second": self.rate,
            "eta_seconds": self.eta_seconds,
            "attempts": run.attempts,
            "executor": lease.executor if lease else None,
            "handle": lease.handle if lease else None,
            "directory": run.directory,
            "started_at": run.started_at.isoformat() if run.started_at else None,
            "ended_at": run.ended_at.isoformat() if run.ended_at else None,
            "cost": asdict(self.cost) | {"actual_dollars": self.cost.actual_dollars},
        }


def read_status(
    store: Store,
    experiment: str,
    costs: Mapping[str, Spending],
    runs: Sequence[RunSummary] | None = None,
    paces: dict[str, Pace] | None = None,
) -> list[RunStatus]:
    """Read the status of an experiment's runs.

    Args:
        costs: Fingerprint → cost.
        runs: Runs to read, with all or none of those that wait for a slot; None for all runs.
        paces: Fingerprint → speed measurement, updated in place, if the runs are read repeatedly.
    """
    runs = store.runs(experiment) if runs is None else runs
    paces = {} if paces is None else paces
    fingerprints = list({run.fingerprint for run in runs})
    standings, needs = leases.standings(store, fingerprints), store.needs(fingerprints)
    started = [fingerprint for fingerprint, run in standings.items() if run.state not in WAITING]
    progress = store.progress(started, (LOSS, EXAMPLES, FLOPS))
    titles = {run.fingerprint: f"{run.label}/{run.seed}" for run in reversed(runs)}
    intervals = Intervals.from_environment()
    rules = RetryRules(0, intervals.backoff, intervals.max_backoff)
    is_launched = any_launcher(leases.heartbeats(store), now())
    rows: list[RunStatus] = []
    seen: set[str] = set()
    for run in runs:
        standing = standings[run.fingerprint]
        dependencies = [
            (titles.get(fingerprint, f"run {fingerprint[:8]}"), state)
            for fingerprint, state in needs.get(run.fingerprint, {}).items()
        ]
        wait = wait_status(standing, dependencies, rules, now(), is_launched=is_launched)
        reason = doubts(standing.lease, now()) or wait.reason
        if standing.state == RunState.FAILED:
            reason = failures.reason_of(standing)
        shown = replace(run, state=wait.state, reason=None if reason is None else one_line(reason))
        cost, speeds, found = (
            costs.get(run.fingerprint) or Spending(),
            Speeds(),
            progress.get(run.fingerprint),
        )
        if found is not None and wait.state == RunState.RUNNING:
            speeds = paces.setdefault(run.fingerprint, Pace()).add(found)
            cost = replace(cost, actual_flops=found.latest.get(FLOPS, cost.actual_flops))
        rows.append(
            RunStatus(
                shown,
                cost,
                None if found is None else found.latest.get(LOSS),
                *speeds,
                repeats=run.fingerprint in seen,
                wait=wait if wait.state in WAITING else None,
                lease=standing.lease,
            )
        )
        seen.add(run.fingerprint)
    return _with_places(rows)


# ---- waiting


def wait_status(
    run: Standing, needs: list[tuple[str, RunState]], rules: RetryRules, at: datetime, *, is_launched: bool
) -> WaitStatus:
    """Return the state to show for a run, and why it has not started.

    In the store, a run that was planned as BLOCKED stays BLOCKED until it is claimed.

    Args:
        needs: Title and state of each dependency.
        at: Current time, by the clock of the store's rows.
        is_launched: Whether a launcher is alive that could start it.
    """
    if run.state not in WAITING or run.stop_reason is not None:
        return WaitStatus(run.state, run.reason)
    if run.is_live:  # `JobStatus.waits` has up to two lines
        reason, _, place = (run.reason or STARTING).partition("\n")
        return WaitStatus(run.state, reason, place)
    unfinished = [f"{title}, which is {state}" for title, state in needs if state != RunState.COMPLETED]
    if unfinished:
        others = f", and {len(unfinished) - 1} more" if len(unfinished) > 1 else ""
        unblock = "the completion of its dependencies"
        return WaitStatus(RunState.BLOCKED, f"waits for {unfinished[0]}{others}", unblock=unblock)
    if not is_launched:
        reason = "not launched: no launcher is alive"
        return WaitStatus(RunState.PENDING, reason, unblock="`jestlab launch` of its study")
    if run.reason is not None and is_plain_wait(run.reason):
        unblock = _FREE_SLOT if SLOT in run.reason else _HIGHER_LIMIT
        return WaitStatus(RunState.PENDING, run.reason, unblock=unblock)
    before = f"{run.reason}; " if run.reason else ""
    if left := rules.seconds_left(run, at):
        return WaitStatus(RunState.PENDING, f"{before}in {left:.0f} s")
    return WaitStatus(RunState.PENDING, f"{before}{SLOT}", unblock=_FREE_SLOT)


def _with_places(rows: Sequence[RunStatus]) -> list[RunStatus]:
    """Add the place in line and the estimated start to the runs that wait for a slot."""
    line = {
        row.run.fingerprint: _planned_seconds(row.cost)
        for row in rows
        if row.wait is not None and SLOT in (row.wait.reason or "")
    }
    running = {row.run.fingerprint: row for row in rows if row.run.state == RunState.RUNNING}
    starts = start_times([row.eta_seconds for row in running.values()], list(line.values()))
    places = {
        fingerprint: f"{ordinal(position)} of {len(line)} in line"
        + ("" if seconds is None else f", estimated start in {duration(seconds / 3600)}")
        for position, (fingerprint, seconds) in enumerate(zip(line, starts, strict=True), 1)
    }
    return [
        row
        if row.wait is None or row.run.fingerprint not in places
        else replace(row, wait=row.wait._replace(place=places[row.run.fingerprint]))
        for row in rows
    ]


def start_times(running: Iterable[float | None], planned: Sequence[float | None]) -> list[float | None]:
    """Estimate the seconds until each run in line starts.

    Args:
        running: Seconds until each running run ends; None if unknown.
        planned: Planned duration of each run in line, in seconds; None if unknown.
    """
    ends = list(running)
    if not ends or any(end is None for end in ends):
        return [None] * len(planned)
    slots = [float(end) for end in ends if end is not None]
    heapq.heapify(slots)
    starts: list[float | None] = []
    for seconds in planned:
        starts.append(slots[0])
        if seconds is None:
            break
        heapq.heapreplace(slots, slots[0] + seconds)
    return starts + [None] * (len(planned) - len(starts))


def _planned_seconds(cost: Spending) -> float | None:
    """Return the planned duration on this machine; None if unknown."""
    if not cost.is_local or cost.planned_chip_hours is None:
        return None
    return cost.planned_chip_hours * 3600


def wait_lines(rows: Iterable[RunStatus]) -> Iterator[str]:
    """Yield why runs wait: per reason, up to three lines, the most frequent reason first.

    The lines are the reason with the names of the runs, the place in line of the first one, and what would
    let them start. Runs that wait for a dependency are left out.
    """
    groups: dict[tuple[str, str], list[tuple[RunSummary, WaitStatus]]] = {}
    for row in rows:
        if (wait := row.wait) is None or wait.state == RunState.BLOCKED:
            continue
        if wait.place or wait.unblock:
            groups.setdefault((wait.reason or "", wait.unblock), []).append((row.run, wait))
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    for (reason, unblock), waiting in ordered[:_MOST_REASONS]:
        runs = {run.fingerprint: f"{run.label}/{run.seed}" for run, _ in reversed(waiting)}
        names = [one_line(name) for name in reversed(runs.values())]
        more = f", … {len(names)} in all" if len(names) > _MOST_NAMES else ""
        yield f"{', '.join(names[:_MOST_NAMES])}{more}: {one_line(reason)}"
        if place := waiting[0][1].place:
            yield f"  {one_line(place)}"
        if unblock:
            yield f"  to start: {one_line(unblock)}"
    if rest := sum(len(waiting) for _, waiting in ordered[_MOST_REASONS:]):
        yield f"and {counted(rest, 'run')} for {len(ordered) - _MOST_REASONS} other reasons"
