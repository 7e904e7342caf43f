"""Options of a launch: the user's options, the controller's options, and polling intervals."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from jestlab.models.extensions import check_name
from jestlab.platform.dependencies import EXECUTORS
from jestlab.platform.errors import UserError
from jestlab.platform.redaction import PARTS, Part
from jestlab.platform.spec.resources import ExecutorName


@dataclass(frozen=True)
class LaunchOptions:
    """A user's options for one launch.

    Attributes:
        on: Executor; None for the study's, else the settings', else this machine.
        parallel: Number of concurrent runs; None for the study's.
        retries: Number of further attempts at a run that fails; None for the study's.
        fail_fast: Stop all runs after the first run that fails and isn't retried again.
        keep_going: Continue even if the first three runs fail with the same error.
        max_chip_hours: Refuse to launch if the estimated total exceeds this limit or is unknown. During the
            launch, don't start a run that would exceed the limit.
        rerun_changed: Run completed runs again if they were made with different code, data, or versions.
        rerun_retracted: Run completed runs again if their results are retracted.
        runs: Names of the runs to which `rerun_changed` and `rerun_retracted` apply; empty for all.
        replace: Replace an experiment of the same name that belongs to another study or user.
        reports: Write tables and figures at the end.
    """

    on: ExecutorName | None = None
    parallel: int | None = None
    retries: int | None = None
    fail_fast: bool = False
    keep_going: bool = False
    max_chip_hours: float | None = None
    rerun_changed: bool = False
    rerun_retracted: bool = False
    runs: Sequence[str] = ()
    replace: bool = False
    reports: bool = True

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UserError: A value is out of range, or two options contradict each other.
        """
        if self.on is not None:
            try:
                check_name("executor", self.on, EXECUTORS)
            except ValueError as error:
                raise UserError(f"on: {error}") from None
        if self.parallel is not None and self.parallel < 1:
            raise UserError(f"parallel must be >= 1, got {self.parallel}")
        if self.retries is not None and self.retries < 0:
            raise UserError(f"retries must be >= 0, got {self.retries}")
        if self.fail_fast and self.keep_going:
            raise UserError("fail_fast and keep_going: give one of them")
        if self.runs and not (self.rerun_changed or self.rerun_retracted):
            raise UserError("runs: name single runs only with rerun_changed (--rerun-changed)")


@dataclass(frozen=True)
class ControllerOptions(LaunchOptions):
    """Options of a controller: `LaunchOptions`, completed from the study's resources and the settings.

    Attributes:
        lease_seconds: Seconds without a heartbeat after which a worker or a launcher counts as lost.
        retry_exit_codes: Exit codes after which a command is always retried.
        at_once: Kill runs that have to stop, instead of giving them time to save a checkpoint.
        launches: Start runs; if False, only wait for live attempts or stop them.
        record: Information about the code and environment that attempts store.
        since: Time after which chip-hours of all attempts in the store count toward the limit; None for now.
    """

    on: ExecutorName = "local"
    retries: int = 2
    lease_seconds: float = 90.0
    retry_exit_codes: tuple[int, ...] = ()
    at_once: bool = False
    launches: bool = True
    record: tuple[Part, ...] = PARTS
    since: datetime | None = None


@dataclass(frozen=True)
class Intervals:
    """Polling and retry intervals in seconds; the variable `JESTLAB_<NAME>_SECONDS` overrides each one.

    Attributes:
        poll: Between two passes over all runs; an event can start a pass earlier.
        heartbeat: Between two heartbeats of the launcher.
        backoff: Before the first retry of a failed run; each further wait is four times as long.
        max_backoff: Longest wait before a retry.
        api_pause: Before an executor first repeats a failed API call; each further wait is twice as long.
    """

    poll: float = 1.0
    heartbeat: float = 10.0
    backoff: float = 2.0
    max_backoff: float = 300.0
    api_pause: float = 0.5

    @classmethod
    def from_environment(cls) -> Intervals:
        """Read the intervals from the environment; UserError if one is not a valid number of seconds."""
        values = {}
        for name in cls.__dataclass_fields__:
            variable = f"JESTLAB_{name.upper()}_SECONDS"
            if text := os.environ.get(variable):
                try:
                    values[name] = float(text)
                except ValueError:
                    values[name] = -1.0
                if not 0 <= values[name] < float("inf"):
                    raise UserError(f"invalid {variable} {text!r}: expected a number of seconds, 0 or more")
        return cls(**values)
