"""How to launch: what a user may say, and what a spec says of the runs' resources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jestlab.platform.spec.resources import ExecutorName
from jestlab.platform.store.provenance import PARTS, Part


@dataclass(frozen=True)
class Options:
    """How to launch.

    Attributes:
        executor: Name of the executor that new attempts go to.
        parallel: Runs at a time, whoever launches them; None for as many as the executor takes.
        retries: How often a run that failed is tried again. Preemptions do not count.
        lease_seconds: How long the workers of new attempts, and other launchers, may be silent.
        fail_fast: Whether the first run that fails for good stops all others.
        keep_going: Whether the launch goes on when all runs fail alike: see `failures.alike`.
        retry_exit_codes: Exit codes of commands that are tried again, whatever they seem to mean.
        at_once: Whether runs that stop are given no time to save.
        launches: Whether runs are started at all, and not only brought to their end.
        record: What attempts record of their code and environment.
        max_chip_hours: Most chip-hours, or hours of machines without chips, that all attempts in the store
            may hold and be planned to hold from `since`; None for no limit.
        since: When the launch began; None: now.
    """

    executor: ExecutorName = "local"
    parallel: int | None = None
    retries: int = 2
    lease_seconds: float = 90.0
    fail_fast: bool = False
    keep_going: bool = False
    retry_exit_codes: tuple[int, ...] = ()
    at_once: bool = False
    launches: bool = True
    record: tuple[Part, ...] = PARTS
    max_chip_hours: float | None = None
    since: datetime | None = None
