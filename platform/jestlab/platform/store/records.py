"""What the store hands out: plain frozen data, no sessions behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jestlab.platform.store.states import RunState


@dataclass(frozen=True)
class RunRecord:
    """A run as its worker needs it.

    Attributes:
        fingerprint: Identity.
        program: What it executes.
        config: Resolved config.
        seed: Replicate.
        directory: Its folder, relative to the lab's root.
        state: Where it stands.
        reason: Why, if it did not complete.
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
    """A completed run of the store.

    Attributes:
        fingerprint: Its identity.
        program: What it executed.
        config: Resolved config.
        directory: Its folder, relative to the lab's root.
        needs: Role → fingerprint of each run that it needed.
    """

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


@dataclass(frozen=True)
class ExperimentRow:
    """An experiment and how its runs stand."""

    name: str
    question: str
    scale: str | None
    updated_at: datetime
    counts: Mapping[RunState, int]


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        step: Steps done.
        total_steps: Steps in all, where known.
        latest: Newest value of each asked metric.
    """

    step: int
    total_steps: int | None
    latest: Mapping[str, float]
