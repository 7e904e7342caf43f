"""Status of an experiment's runs, as shown by `jestlab status`, `watch`, `attach`, and `serve`."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from jestlab.analysis import units
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.display import EXAMPLES
from jestlab.platform.launch.liveness import any_launcher_alive, liveness_warning
from jestlab.platform.launch.options import Intervals
from jestlab.platform.launch.reconcile import SLOT, is_plain_wait, title
from jestlab.platform.launch.retries import RetryRules
from jestlab.platform.logs import NAME as LOG
from jestlab.platform.logs import one_line
from jestlab.platform.programs import failures
from jestlab.platform.store import leases
from jestlab.platform.store.records import (
    WAITING,
    Lease,
    RunProgress,
    RunState,
    RunSummary,
    Spending,
    Standing,
)
from jestlab.platform.store.rows import now
from jestlab.platform.store.spending import spending
from jestlab.platform.store.store import Store
from jestlab.platform.words import counted, few

LOSS, FLOPS = "loss", "flops_total"
"""Names of the metrics that `read_status` reads, in addition to `EXAMPLES`."""

_QUIET_UPDATES = 4  # consecutive updates without active runs after which a launch counts as ended
_PAUSE_SECONDS = 1.0  # between two updates
_LOOK_SECONDS = 10.0  # between two looks at jobs without a launcher
STARTING = "starting"
"""Reason of a run whose job was launched, but whose worker has not reported yet."""

_MAX_REASONS = 5
_MAX_NAMES = 4

_FREE_SLOT = "the end of another run, or a higher `jestlab launch --parallel`"
_HIGHER_LIMIT = "a higher `jestlab launch --max-chip-hours`"


class WaitStatus(NamedTuple):
    """Displayed state of a run, and why it has not started."""

    state: RunState  # displayed state: BLOCKED only while the run waits for a dependency
    reason: str | None  # reason for the state; None if unknown
    estimated_start: str = ""  # text from the executor; empty if unknown
    unblock: str = ""  # event or user action that would let the run start; empty if unknown


@dataclass(frozen=True)
class RunStatus:
    """One run of an experiment."""

    run: RunSummary  # the run with its displayed state and reason, such as a missing heartbeat
    cost: Spending = field(default_factory=Spending)  # cost so far and planned cost
    progress: RunProgress = field(default_factory=lambda: RunProgress(0, None, {}))
    is_repeat: bool = False  # whether an earlier row shows the same run, with another label
    wait: WaitStatus | None = None  # why the run has not started; None if it has
    lease: Lease | None = None  # last attempt; None before the first

    @property
    def is_settled(self) -> bool:
        """Whether the row stays as it is until the run is launched again."""
        return self.run.state.is_terminal and not (self.lease and self.lease.is_live)

    @property
    def loss(self) -> float | None:
        """Latest training loss; None before the first."""
        return self.progress.latest.get(LOSS)

    @property
    def rate(self) -> float | None:
        """Examples per second; None if unknown."""
        return self.progress.per_second(EXAMPLES)

    def as_data(self) -> dict[str, Any]:
        """Return the row as JSON data."""
        run, lease, wait = self.run, self.lease, self.wait
        waits = wait and {
            "reason": wait.reason,
            "place": wait.estimated_start or None,
            "unblock": wait.unblock or None,
        }
        return {
            "run": run.name,
            "label": run.label,
            "seed": run.seed,
            "fingerprint": run.fingerprint,
            "state": run.state,
            "reason": run.reason,
            "waits": waits,
            "step": run.step,
            "total_steps": run.total_steps,
            "loss": self.loss,
            "examples_per_second": self.rate,
            "eta_seconds": self.progress.seconds_left,
            "attempts": run.attempts,
            "executor": lease.executor if lease else None,
            "handle": lease.handle if lease else None,
            "directory": run.directory,
            "started_at": run.started_at.isoformat() if run.started_at else None,
            "ended_at": run.ended_at.isoformat() if run.ended_at else None,
            "cost": asdict(self.cost) | {"actual_dollars": self.cost.actual_dollars},
        }


def read_status(
    store: Store, experiment: str, known: Sequence[RunStatus] = (), changed: Collection[str] | None = None
) -> list[RunStatus]:
    """Read the status of an experiment's runs.

    Args:
        known: The status at an earlier moment, since which no run was added or removed.
        changed: Fingerprints of the runs to read again; the others are as in `known`.
    """
    runs, costs = store.runs(experiment, changed), spending(store, experiment, changed)
    unique = list({run.fingerprint for run in runs})
    standings, needs = leases.standings(store, unique), store.needs(unique)
    started = [fingerprint for fingerprint, run in standings.items() if run.state not in WAITING]
    running = [fingerprint for fingerprint in started if standings[fingerprint].state == RunState.RUNNING]
    progress = store.progress(started, (LOSS,)) | store.progress(running, (LOSS, EXAMPLES, FLOPS))
    titles = {
        run.fingerprint: f"{run.label}/{run.seed}" for run in reversed([row.run for row in known] or runs)
    }
    intervals = Intervals.from_environment()
    rules = RetryRules(0, intervals.backoff, intervals.max_backoff)
    moment = now()
    is_launched = any_launcher_alive(leases.heartbeats(store), moment)
    rows: list[RunStatus] = []
    seen: set[str] = set()
    for run in runs:
        standing, report = standings[run.fingerprint], progress.get(run.fingerprint, RunProgress(0, None, {}))
        dependencies = [
            (titles.get(fingerprint, f"run {fingerprint[:8]}"), state)
            for fingerprint, state in needs.get(run.fingerprint, {}).items()
        ]
        wait = wait_status(standing, dependencies, rules, moment, is_launched=is_launched)
        reason = liveness_warning(standing.lease, moment) or wait.reason
        if standing.state == RunState.FAILED:
            reason = failures.reason_of(standing)
        cost = costs.get(run.fingerprint) or Spending()
        if wait.state == RunState.RUNNING:
            cost = replace(cost, actual_flops=report.latest.get(FLOPS, cost.actual_flops))
        rows.append(
            RunStatus(
                replace(run, state=wait.state, reason=None if reason is None else one_line(reason)),
                cost,
                report,
                is_repeat=run.fingerprint in seen,
                wait=wait if wait.state in WAITING else None,
                lease=standing.lease,
            )
        )
        seen.add(run.fingerprint)
    fresh = {(row.run.label, row.run.fingerprint): row for row in rows}
    return [fresh.get((row.run.label, row.run.fingerprint), row) for row in known] or rows


class Watch:
    """Follows the status of an experiment.

    Runs that have changed or haven't ended are read again. If they are many, pauses between reads are longer,
    so that reads take at most 1/20 of the time.

    Attributes:
        launched_at: Time of the last launch, as of the last update.
    """

    def __init__(self, store: Store, experiment: str, look_after: Callable[[], bool] | None = None) -> None:
        """Prepare to follow an experiment.

        Args:
            store: The store.
            experiment: Name of the experiment.
            look_after: Function to call while no launcher is alive. It ends attempts whose jobs have ended,
                and returns whether a launcher waits in a queue.
        """
        self._look_after = look_after
        self._looked_at = -math.inf
        self._is_queued = False  # whether a launcher waited in a queue then
        self._store = store
        self._experiment = experiment
        self.launched_at = self._changed_at = datetime.min
        self._rows: list[RunStatus] = []
        self._read_at = self._read_seconds = 0.0  # end and duration of the last read

    def update(self) -> list[RunStatus]:
        """Return the status of all runs, in the order of the study. Can be called again after an error.

        Raises:
            UserError: The experiment doesn't exist any more.
        """
        began = time.monotonic()
        if began - self._read_at < 20 * self._read_seconds:
            return self._rows
        launched_at, changes = self._store.changes(self._experiment, self._changed_at)
        known = {row.run.fingerprint for row in self._rows}
        if launched_at != self.launched_at or not changes.keys() <= known:  # launched, or an adopted run
            self._rows = read_status(self._store, self._experiment)
        elif changed := changes.keys() | {row.run.fingerprint for row in self._rows if not row.is_settled}:
            self._rows = read_status(self._store, self._experiment, self._rows, changed)
        self.launched_at, self._changed_at = launched_at, max([self._changed_at, *changes.values()])
        self._read_at = time.monotonic()
        self._read_seconds = self._read_at - began
        return self._rows

    def follow(self) -> Iterator[list[RunStatus] | UserError]:
        """Yield the status of all runs until the launch has ended; if it can't be read, the error.

        The launch has ended if all runs are completed. It also counts as ended if in several consecutive
        updates all runs have ended, or no launcher is alive, and no run is running or has a job in a queue.
        One such update isn't enough, because a run that has ended may be retried soon.
        """
        quiet = 0
        while quiet < _QUIET_UPDATES:
            try:
                rows = self.update()
                states = {row.run.state for row in rows}
                is_submitted = any(row.lease is not None and row.lease.is_submitted for row in rows)
                is_launched = any_launcher_alive(leases.heartbeats(self._store), now())
                if not is_launched and states - {RunState.COMPLETED}:
                    self._look()
                is_expected = is_submitted or is_launched or self._is_queued
                may_run = any(not state.is_terminal for state in states) and (
                    RunState.RUNNING in states or is_expected
                )
            except UserError as error:
                yield error
            else:
                yield rows
                if states <= {RunState.COMPLETED}:
                    return
                quiet = 0 if may_run else quiet + 1
            time.sleep(_PAUSE_SECONDS)

    def _look(self) -> None:
        """Call `look_after` if enough time has passed since the last call; never again after an error."""
        if self._look_after is not None and time.monotonic() > self._looked_at + _LOOK_SECONDS:
            look_after, self._look_after = self._look_after, None
            self._is_queued = look_after()
            self._look_after, self._looked_at = look_after, time.monotonic()


# ---- waiting


def wait_status(
    run: Standing, needs: list[tuple[str, RunState]], rules: RetryRules, at: datetime, *, is_launched: bool
) -> WaitStatus:
    """Return the state to display for a run, and why it has not started.

    BLOCKED is derived from the dependencies: in the store, a run that was recorded as BLOCKED keeps this
    state until it is claimed, even if its dependencies have completed.

    Args:
        needs: Title and state of each dependency.
        at: Current time, by the clock of the store's rows.
        is_launched: Whether a launcher is alive, which may start the run.
    """
    if run.state not in WAITING or run.stop_reason is not None:
        return WaitStatus(run.state, run.reason)
    if run.is_live:  # the reason is `JobStatus.waits`, which has up to two lines
        reason, _, estimated_start = (run.reason or STARTING).partition("\n")
        return WaitStatus(run.state, reason, estimated_start)
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
        return WaitStatus(RunState.PENDING, f"{before}in {units.duration(left / 3600)}")
    return WaitStatus(RunState.PENDING, f"{before}{SLOT}", unblock=_FREE_SLOT)


def reason_lines(rows: Iterable[RunStatus], lab: Lab | None = None) -> Iterator[str]:
    """Yield the reasons of failures, and of other states of runs, such as waiting; with `lab`, also logs.

    Runs of the same state are grouped if their reasons differ only in numbers and paths. Lines of a group,
    indented except for the first one: the number of runs and the reason; the runs; and details of one of them
    (the log of a failure; the estimated start; the event or user action that would let it start).
    """
    groups: dict[tuple[RunState, str], dict[str, RunStatus]] = {}
    for run, row in ((row.run, row) for row in rows if row.run.reason):
        kind = "" if run.state == RunState.BLOCKED else failures.kind_of(run.reason or "")
        groups.setdefault((run.state, kind), {}).setdefault(run.fingerprint, row)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0] != RunState.FAILED, -len(group[1])))
    for _, group in ordered[:_MAX_REASONS]:
        reason, *details = _described(next(iter(group.values())), lab)
        names = few([one_line(title(row.run)) for row in group.values()], _MAX_NAMES)
        yield f"{counted(len(group), 'run')} {reason}"
        yield from (f"  {line}" for line in (names, *filter(None, details)))
    if rest := sum(len(group) for _, group in ordered[_MAX_REASONS:]):
        yield f"and {counted(rest, 'run')} for {len(ordered) - _MAX_REASONS} other reasons"


def _described(row: RunStatus, lab: Lab | None) -> tuple[str, ...]:
    """Return the reason of a run's state, and details."""
    run, reason = row.run, one_line(row.run.reason or "")
    if run.state == RunState.BLOCKED:
        return "waiting for other runs", f"{one_line(title(run))} {reason}"
    if row.wait is not None:
        is_plain = reason.startswith(("waits for", "not launched", STARTING))
        text = reason.replace("waits for", "waiting for", 1) if is_plain else f"{run.state}: {reason}"
        return text, one_line(row.wait.estimated_start), row.wait.unblock and f"to start: {row.wait.unblock}"
    text = f"{run.state}: {failures.headline(reason)}"
    return (text, f"log: {_log(lab, run.directory)}") if lab and run.state == RunState.FAILED else (text,)


def _log(lab: Lab, directory: str) -> str:
    """Return the path of a run's log; its address if the lab is in a bucket and the log isn't here."""
    path = lab.root / directory / LOG
    if lab.remote is not None and not path.exists():
        return f"{lab.remote}/{directory}/{LOG}"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
