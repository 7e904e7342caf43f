"""What a run that has not begun waits for, its place in line, and what would let it begin."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from jestlab.analysis.units import duration
from jestlab.platform.launch.reconcile import RetryRules
from jestlab.platform.store.claims import LIMIT
from jestlab.platform.store.records import WAITING, RunState, Standing
from jestlab.platform.words import ordinal

SLOT = "waits for a slot"
"""How the reason of a run begins that could start if fewer others ran."""

_SLOT = "the end of another run, or more at a time: `jestlab launch --parallel`"
_LIMIT = "a higher limit: `jestlab launch --max-chip-hours`"


def waits_for_slot(taken: int, slots: int, by_others: int) -> str:
    """Say that slots are taken, and how many of them by other launches."""
    others = f", {by_others} by another launch" if by_others else ""
    return f"{SLOT}: {taken} of {slots} taken{others}"


def is_wait(reason: str | None) -> bool:
    """Whether a reason says no more than that a run waits, so that another one may take its place."""
    return reason is None or reason.startswith((SLOT, LIMIT))


class Waits(NamedTuple):
    """The state of a run, and what it waits for, as people read them.

    Attributes:
        state: As in the store; BLOCKED only while it waits for another run.
        reason: Why it is in this state; None if there is nothing to say.
        place: Its place in line and when it will begin, as far as that is known; may be empty.
        unblock: What would let it begin; may be empty.
    """

    state: RunState
    reason: str | None
    place: str = ""
    unblock: str = ""


def waits_for(
    run: Standing, needs: list[tuple[str, RunState]], rules: RetryRules, now: datetime, *, is_launched: bool
) -> Waits:
    """Return the state of a run and what it waits for.

    In the store, a run that was planned as BLOCKED stays so until it is claimed, also when what it needs has
    completed. Here it is BLOCKED only while it waits for another run.

    Args:
        run: How it stands.
        needs: The title and the state of each run that it needs.
        rules: When runs are tried again.
        now: The time, as the store has it.
        is_launched: Whether a launcher is alive that may start it.
    """
    if run.state not in WAITING or run.stop_reason is not None:
        return Waits(run.state, run.reason)
    if run.is_live:
        return _told(run.state, run.reason or "starting")
    open_needs = [f"{title}, which is {state}" for title, state in needs if state != RunState.COMPLETED]
    if open_needs:
        others = f", and {len(open_needs) - 1} more" if len(open_needs) > 1 else ""
        what = "the completion of the runs that it needs" if others else "its completion"
        return Waits(RunState.BLOCKED, f"waits for {open_needs[0]}{others}", unblock=what)
    if not is_launched:
        reason = "waits to be launched: no launcher is alive"
        return Waits(RunState.PENDING, reason, unblock="launch its study again: `jestlab launch`")
    if run.reason is not None and is_wait(run.reason):
        return Waits(RunState.PENDING, run.reason, unblock=_SLOT if SLOT in run.reason else _LIMIT)
    before = f"{run.reason}; " if run.reason else ""
    if left := rules.seconds_left(run, now):
        return Waits(RunState.PENDING, f"{before}in {left:.0f} s")
    return Waits(RunState.PENDING, f"{before}{SLOT}", unblock=_SLOT)


def _told(state: RunState, lines: str) -> Waits:
    """Return what an executor has told, as `JobStatus.waits` writes it."""
    reason, place, unblock = [*lines.split("\n"), "", ""][:3]
    return Waits(state, reason, place, unblock)


def place_in_line(position: int, count: int, seconds: float | None) -> str:
    """Write the place of a run that waits for a slot: "2nd of 7 in line, to begin in about 4.0 min".

    Args:
        position: From 1.
        count: Runs in line.
        seconds: Until it begins; None if that is not known.
    """
    begins = "" if seconds is None else f", to begin in about {duration(seconds / 3600)}"
    return f"{ordinal(position)} of {count} in line{begins}"


def begin_in(running: Iterable[float | None], planned: Sequence[float | None]) -> list[float | None]:
    """Estimate in how many seconds each run in line begins, when runs that end make place for them.

    Args:
        running: Seconds until each run with a slot ends; None where that is not known.
        planned: Seconds that each run in line is planned to take, in their order; None where unknown.

    Returns:
        Seconds for each of `planned`; None from the first on that cannot be known.
    """
    ends = list(running)
    if not ends or any(end is None for end in ends):
        return [None] * len(planned)
    slots = [float(end) for end in ends if end is not None]
    heapq.heapify(slots)
    begins: list[float | None] = []
    for seconds in planned:
        begins.append(slots[0])
        if seconds is None:
            break
        heapq.heapreplace(slots, slots[0] + seconds)
    return begins + [None] * (len(planned) - len(begins))
