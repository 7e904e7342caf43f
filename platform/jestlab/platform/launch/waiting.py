"""What a run that has not begun waits for: another run, a retry, a slot, or somebody to launch it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from jestlab.platform.launch.reconcile import RetryRules
from jestlab.platform.store.claims import LIMIT
from jestlab.platform.store.records import WAITING, RunState, Standing

SLOT = "waits for a slot"
"""How the reason of a run begins that could start if fewer others ran."""


def waits_for_slot(taken: int, slots: int, by_others: int) -> str:
    """Say that slots are taken, and how many of them by other launches."""
    others = f", {by_others} by another launch" if by_others else ""
    return f"{SLOT}: {taken} of {slots} taken{others}"


def is_wait(reason: str | None) -> bool:
    """Whether a reason says no more than that a run waits, so that another one may take its place."""
    return reason is None or reason.startswith((SLOT, LIMIT))


def waits_for(
    run: Standing, needs: Mapping[str, RunState], rules: RetryRules, now: datetime, *, is_launched: bool
) -> tuple[RunState, str | None]:
    """Return the state of a run and what it waits for, as people read them.

    In the store, a run that was planned as BLOCKED stays so until it is claimed, also when what it needs has
    completed. Here it is BLOCKED only while it waits for another run.

    Args:
        run: How it stands.
        needs: Runs that it needs, by their titles, and their states.
        rules: When runs are tried again.
        now: The time, as the store has it.
        is_launched: Whether a launcher is alive that may start it.
    """
    if run.state not in WAITING or run.stop_reason is not None:
        return run.state, run.reason
    if run.is_live:
        return run.state, run.reason or "starting"
    open_needs = [
        f"{title}, which is {state}" for title, state in needs.items() if state != RunState.COMPLETED
    ]
    if open_needs:
        others = f", and {len(open_needs) - 1} more" if len(open_needs) > 1 else ""
        return RunState.BLOCKED, f"waits for {open_needs[0]}{others}"
    if not is_launched:
        return RunState.PENDING, "waits to be launched: no launcher is alive"
    if run.reason is not None and is_wait(run.reason):
        return RunState.PENDING, run.reason
    before = f"{run.reason}; " if run.reason else ""
    if left := _seconds_left(run, rules, now):
        return RunState.PENDING, f"{before}in {left:.0f} s"
    return RunState.PENDING, f"{before}{SLOT}"


def _seconds_left(run: Standing, rules: RetryRules, now: datetime) -> float:
    """Return how long a run still waits after its last attempt; 0 if it does not."""
    if run.lease is None or run.lease.ended_at is None:
        return 0.0
    wait = rules.wait_seconds(max(run.failures, run.fruitless - 1))
    waited = (now - run.lease.ended_at).total_seconds()
    return max(0.0, wait - waited) if waited >= 0 else 0.0
