"""The life of a run, as states and the moves between them."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands."""

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

_WAITING = frozenset({RunState.PENDING, RunState.BLOCKED})
_ENDED_EARLY = frozenset({RunState.FAILED, RunState.CANCELLED, RunState.PREEMPTED, RunState.SKIPPED})

MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.PENDING: _WAITING | _ENDED_EARLY | {RunState.RUNNING},
    RunState.BLOCKED: _WAITING | _ENDED_EARLY | {RunState.RUNNING},
    # RUNNING → RUNNING: a new attempt after one whose process vanished without a word.
    RunState.RUNNING: frozenset(RunState) - _WAITING - {RunState.SKIPPED},
    RunState.COMPLETED: frozenset(),
    **{state: _WAITING | _ENDED_EARLY | {RunState.RUNNING} for state in _ENDED_EARLY},
}
"""Legal moves. Nothing leaves COMPLETED, and only a running attempt reaches it."""


class IllegalMove(Exception):
    """A run was asked to take a state that cannot follow the one it is in."""

    def __init__(self, fingerprint: str, current: RunState, wanted: RunState) -> None:
        super().__init__(f"run {fingerprint[:8]} is {current} and cannot become {wanted}")
        self.current = current


def check_move(fingerprint: str, current: RunState, wanted: RunState) -> None:
    """Raise IllegalMove unless `wanted` may follow `current`."""
    if wanted not in MOVES[current]:
        raise IllegalMove(fingerprint, current, wanted)
