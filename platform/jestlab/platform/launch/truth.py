"""What is true of a run that the store calls RUNNING: its worker may have died without a word."""

from __future__ import annotations

from datetime import datetime

from jestlab.platform.launch.executor import JobState
from jestlab.platform.launch.executors import local
from jestlab.platform.store.records import Lease

SILENT_SECONDS = 120.0
"""How old a heartbeat is before it is worth a word; clocks of two machines may differ by some of it."""


def doubts(lease: Lease | None, now: datetime) -> str | None:
    """Why a live attempt may not be one, and what to do; None where nothing speaks against it.

    Args:
        lease: A run's last attempt.
        now: The time, as the store has it.
    """
    if lease is None or not lease.is_live:
        return None
    if lease.executor == "local" and lease.handle and local.state_of(lease.handle) == JobState.GONE:
        return "its process has vanished: launch again to go on"
    silent = (now - lease.heartbeat_at).total_seconds()
    if silent <= SILENT_SECONDS:
        return None
    if lease.launcher is None or local.is_gone(lease.launcher):
        return f"no sign of life for {silent:.0f} s, and nobody looks after it: launch again to go on"
    return f"no sign of life for {silent:.0f} s"
