"""The states of a run, and the records that the store returns: plain frozen data, without SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jestlab.platform.spec.resources import ExecutorName

ADOPTED = "adopted"
"""The program of runs that `jestlab adopt` imported from other tools. jestlab can't run them."""

ADOPTED_FROM = "adopted_from"
"""The config key with the origin of an adopted run, such as `wandb:ENTITY/PROJECT/ID`: its identity."""

# ---- states


class RunState(StrEnum):
    """The state of a run, or of an attempt at one."""

    PENDING = "PENDING"  # may start as soon as there is a place
    BLOCKED = "BLOCKED"  # waits for a run that it needs
    RUNNING = "RUNNING"  # a worker has it, or had it when its machine died
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"  # ended by itself, without a result
    CANCELLED = "CANCELLED"  # ended by its user
    PREEMPTED = "PREEMPTED"  # stopped by something else, at a checkpoint
    SKIPPED = "SKIPPED"  # a run that it needs did not complete

    @property
    def is_terminal(self) -> bool:
        """Whether nothing happens any more until the next launch."""
        return self not in (RunState.PENDING, RunState.BLOCKED, RunState.RUNNING)


LIVE = (RunState.PENDING, RunState.RUNNING)
"""States of an attempt that is not over: claimed, and taken up."""

WAITING = frozenset({RunState.PENDING, RunState.BLOCKED})
"""States of a run that has not begun."""

_ENDED_EARLY = frozenset({RunState.FAILED, RunState.CANCELLED, RunState.PREEMPTED, RunState.SKIPPED})

MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.PENDING: WAITING | _ENDED_EARLY | {RunState.RUNNING},
    RunState.BLOCKED: WAITING | _ENDED_EARLY | {RunState.RUNNING},
    # RUNNING → RUNNING: a new attempt after one whose process vanished without a word.
    RunState.RUNNING: frozenset(RunState) - WAITING - {RunState.SKIPPED},
    RunState.COMPLETED: frozenset(),
    **{state: WAITING | _ENDED_EARLY | {RunState.RUNNING} for state in _ENDED_EARLY},
}
"""Legal moves. Nothing leaves COMPLETED, and only a running attempt reaches it."""


class IllegalMove(Exception):
    """A run was asked to take a state that cannot follow the one it is in."""

    def __init__(self, fingerprint: str, current: RunState, wanted: RunState) -> None:
        super().__init__(f"run {fingerprint[:8]} is {current} and cannot become {wanted}")
        self.current = current


class AttemptLost(Exception):
    """The attempt was revoked: another one may hold the run, and this one can no longer write."""


def check_move(fingerprint: str, current: RunState, wanted: RunState) -> None:
    """Raise IllegalMove unless `wanted` may follow `current`."""
    if wanted not in MOVES[current]:
        raise IllegalMove(fingerprint, current, wanted)


# ---- records


@dataclass(frozen=True)
class RunRecord:
    """A run as its worker needs it.

    Attributes:
        directory: Its folder, relative to the lab's root.
        reason: Why it is in its state, if it did not complete.
        needs: Path in the config → the needed run, without its own needs.
    """

    fingerprint: str
    program: str
    config: dict[str, Any]
    seed: int
    directory: str
    state: RunState
    reason: str | None
    needs: Mapping[str, RunRecord]


@dataclass(frozen=True)
class FinishedRun:
    """A completed run; `needs` is role → fingerprint of each run that it needed."""

    fingerprint: str
    program: str
    config: dict[str, Any]
    directory: str
    needs: Mapping[str, str]


@dataclass(frozen=True)
class RunRow:
    """A run of an experiment as people see it."""

    fingerprint: str
    name: str
    label: str
    seed: int
    state: RunState
    reason: str | None
    step: int
    total_steps: int | None
    attempts: int
    directory: str
    started_at: datetime | None
    ended_at: datetime | None
    program: str


@dataclass(frozen=True)
class ExperimentRow:
    """An experiment and how its runs stand, with the name of the archive that it came from, if any."""

    name: str
    question: str
    scale: str | None
    updated_at: datetime
    counts: Mapping[RunState, int]
    imported_from: str | None = None


@dataclass(frozen=True)
class Lease:
    """The last attempt at a run.

    Attributes:
        id: The fencing token.
        fingerprint: The run's.
        number: 1, 2, … within the run.
        state: PENDING from the claim until its worker begins, RUNNING, then how it ended.
        launcher: Name of the launcher that looks after it; None if that has gone without a word.
        executor: Where its job runs.
        handle: The executor's name of the job; None until it is launched, and where the attempt is of another
            store.
        token: The secret that its job bears; None where no job of this store does.
        lease_seconds: How long its worker may be silent.
        heartbeat_at: Last sign of life: its worker's, or before that its launcher's.
        log: Its log, relative to the lab's root.
        lab: Which lab its files are in, by its id; None where that is unknown.
    """

    id: int
    fingerprint: str
    number: int
    state: RunState
    reason: str | None
    launcher: str | None
    executor: ExecutorName
    handle: str | None
    token: str | None
    lease_seconds: float
    heartbeat_at: datetime
    ended_at: datetime | None
    exit_code: int | None
    log: str
    lab: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether it holds the run."""
        return self.state in LIVE


@dataclass(frozen=True)
class Standing:
    """The state of a run, as far as launching is concerned.

    Attributes:
        failures: Attempts that failed since its user launched it last.
        stop_reason: Why its user wants it to stop; None if it may run.
        fruitless: Attempts that were taken away before they got beyond the step at which the run is.
        directory: Its folder, relative to the lab's root.
        lease: Its last attempt; None before the first.
    """

    fingerprint: str
    state: RunState
    reason: str | None
    failures: int
    stop_reason: str | None
    fruitless: int
    step: int
    total_steps: int | None
    directory: str
    lease: Lease | None

    @property
    def is_live(self) -> bool:
        """Whether an attempt holds the run."""
        return self.lease is not None and self.lease.is_live


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        step: Steps done.
        total_steps: Steps to do in all, where known.
        latest: Newest value of each metric asked for.
        first_step: Where it was when its attempt was claimed.
        started_at: When its attempt began; None where none is RUNNING.
        reported_at: When it reported this, by the same clock, or changed its state since.
    """

    step: int
    total_steps: int | None
    latest: Mapping[str, float]
    first_step: int = 0
    started_at: datetime | None = None
    reported_at: datetime | None = None


@dataclass(frozen=True)
class Spending:
    """A run's planned and actual cost; None where it is not known. Attributes are columns of `v_costs`."""

    total_flops: float | None = None
    actual_flops: float | None = None
    planned_chip_hours: float | None = None
    planned_dollars: float | None = None
    actual_chip_hours: float | None = None
    actual_hours: float | None = None
    chip: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether it was planned for a machine without chips to count: its chip-hours are hours."""
        return self.chip == "local"

    @property
    def actual_dollars(self) -> float | None:
        """At the price that was planned with."""
        if not self.planned_chip_hours or self.planned_dollars is None or self.actual_chip_hours is None:
            return None
        return self.actual_chip_hours * self.planned_dollars / self.planned_chip_hours


@dataclass(frozen=True)
class Speed:
    """How fast a program has been on this machine.

    Attributes:
        flops_per_second: Rate, start-up aside.
        runs: Number of runs that it was measured with.
        start_seconds: What every run takes, however little it computes: to start, to compile, to end.
    """

    flops_per_second: float
    runs: int
    start_seconds: float = 0.0

    def hours(self, flops: float) -> float:
        """Return the hours that a run of so many FLOPs takes."""
        return (self.start_seconds + flops / self.flops_per_second) / 3600
