"""States of runs, and the plain records that the store returns. Doesn't import SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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

    PENDING = "PENDING"  # can start as soon as there is a slot
    BLOCKED = "BLOCKED"  # waits for a dependency
    RUNNING = "RUNNING"  # a worker holds it, or held it when its machine died
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"  # ended without a result
    CANCELLED = "CANCELLED"  # stopped by its user
    PREEMPTED = "PREEMPTED"  # stopped by the system, at a checkpoint
    SKIPPED = "SKIPPED"  # a dependency did not complete

    @property
    def is_terminal(self) -> bool:
        """Whether the run stays in this state until the next launch."""
        return self not in (RunState.PENDING, RunState.BLOCKED, RunState.RUNNING)


LIVE = (RunState.PENDING, RunState.RUNNING)
"""States of an attempt that has not ended: claimed, and started."""

WAITING = frozenset({RunState.PENDING, RunState.BLOCKED})
"""States of a run that has not started."""


class IllegalMove(Exception):
    """The new state of a run can't follow its present one."""

    def __init__(self, fingerprint: str, current: RunState, wanted: RunState) -> None:
        super().__init__(f"run {fingerprint[:8]} is {current} and cannot become {wanted}")


class AttemptLost(Exception):
    """The attempt was revoked: another one may hold the run, and this one can no longer write."""


def check_move(fingerprint: str, current: RunState, wanted: RunState) -> None:
    """Raise IllegalMove unless `wanted` may follow `current`.

    COMPLETED is final, and only reached from RUNNING. RUNNING can follow itself: a new attempt after one
    whose process vanished.
    """
    if current == RunState.RUNNING:
        allowed = wanted not in WAITING and wanted != RunState.SKIPPED
    else:
        allowed = RunState.COMPLETED not in (current, wanted)
    if not allowed:
        raise IllegalMove(fingerprint, current, wanted)


# ---- records


@dataclass(frozen=True)
class RunRecord:
    """A run with everything that its worker reads.

    Attributes:
        directory: Its folder, relative to the lab's root.
        reason: Reason for its state, if it did not complete.
        needs: Path in the config → the dependency, without indirect dependencies.
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
class RunSummary:
    """A run of an experiment in a list; only some lists have the fingerprints of its dependencies."""

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
    needs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentSummary:
    """An experiment with the number of its runs by state, and the archive that it was imported from."""

    name: str
    question: str
    scale: str | None
    updated_at: datetime
    counts: Mapping[RunState, int]
    imported_from: str | None = None
    owner: str | None = None
    active_at: datetime | None = None  # time of the last launch or report of a run


@dataclass(frozen=True)
class Lease:
    """The last attempt at a run.

    Attributes:
        id: The fencing token.
        fingerprint: Fingerprint of the run.
        number: 1, 2, … within the run.
        state: PENDING from the claim until its worker starts, then RUNNING, then a final state.
        launcher: Name of its launcher; None if the launcher has left.
        executor: Name of the executor.
        handle: The executor's name of the job; None before it is launched, and for jobs of another store.
        token: The secret of the job; None for jobs of another store.
        lease_seconds: Silence after which its worker counts as lost.
        heartbeat_at: Last heartbeat of its worker or, before it starts, of its launcher.
        log: Its log, relative to the lab's root.
        lab: ID of the lab with its files; None if unknown.
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
        """Whether the attempt holds the run."""
        return self.state in LIVE

    @property
    def is_submitted(self) -> bool:
        """Whether it is live, and an executor other than `local` has its job."""
        return self.is_live and self.handle is not None and self.executor != "local"


@dataclass(frozen=True)
class Standing:
    """The state of a run for launchers.

    Attributes:
        failures: Number of failed attempts since its user launched it last.
        stop_reason: Its user's reason to stop it; None if it may run.
        fruitless: Number of preempted attempts that made no progress beyond the present step.
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
class RunProgress:
    """The progress of a run.

    Attributes:
        step: Completed steps.
        total_steps: Total number of steps, if known.
        latest: Newest value of each requested metric.
        steps_per_second: Average speed of its RUNNING attempt, without start-up and compilation if the
            program reports them; None if unknown.
    """

    step: int
    total_steps: int | None
    latest: Mapping[str, float]
    steps_per_second: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last step at this speed; None if unknown."""
        if self.steps_per_second is None or self.total_steps is None:
            return None
        return max(0, self.total_steps - self.step) / self.steps_per_second

    def per_second(self, metric: str) -> float | None:
        """Return the average growth of a metric that counts; None if unknown."""
        value = self.latest.get(metric)
        if not value or not self.step or self.steps_per_second is None:
            return None
        return self.steps_per_second * value / self.step


@dataclass(frozen=True)
class Spending:
    """A run's planned and actual costs, as columns of `v_costs`; None if unknown."""

    total_flops: float | None = None
    actual_flops: float | None = None
    planned_chip_hours: float | None = None
    planned_dollars: float | None = None
    actual_chip_hours: float | None = None
    actual_hours: float | None = None
    chip: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the run was planned for a machine without accelerator chips: its chip-hours are hours."""
        return self.chip == "local"

    @property
    def actual_dollars(self) -> float | None:
        """Actual cost in dollars at the planned price."""
        if not self.planned_chip_hours or self.planned_dollars is None or self.actual_chip_hours is None:
            return None
        return self.actual_chip_hours * self.planned_dollars / self.planned_chip_hours


@dataclass(frozen=True)
class Speed:
    """The measured speed of a program.

    Attributes:
        flops_per_second: Rate after start-up.
        runs: Number of measured runs.
        start_seconds: Constant time of every run for start-up, compilation, and shutdown.
    """

    flops_per_second: float
    runs: int
    start_seconds: float = 0.0

    def hours(self, flops: float) -> float:
        """Return the expected hours of a run with this number of FLOPs."""
        return (self.start_seconds + flops / self.flops_per_second) / 3600
