"""Options of a launch: the user's options, the controller's options, and polling intervals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, field_validator, model_validator

from jestlab.analysis.shape import Names
from jestlab.models.extensions import references
from jestlab.platform.dependencies import EXECUTORS
from jestlab.platform.errors import UserError
from jestlab.platform.redaction import PARTS, Part
from jestlab.platform.spec.options import Options, option
from jestlab.platform.spec.resources import ExecutorName


class RetryOptions(Options):
    """A user's options for retrying runs; `jestlab retry` has a flag for each option."""

    on: ExecutorName | None = option(
        f"Executor: {', '.join(EXECUTORS)}, or a custom one; default: the study's, else your settings', else "
        "local."
    )
    parallel: PositiveInt | None = option(
        "Maximum number of concurrent runs, across all launches; default: the study's."
    )
    retries: NonNegativeInt | None = option(
        "Maximum number of further attempts after a run fails; default: the study's."
    )
    fail_fast: bool = option("Stop all runs when a run has failed its last attempt.", False)
    keep_going: bool = option("Continue even if the first three runs fail with the same error.", False)
    reports: bool = option("Write tables and figures.", True)

    @field_validator("on")
    @classmethod
    def _anchor(cls, name: str | None) -> str | None:
        """Relative files start at the working directory."""
        return name and references.anchored(name, Path.cwd())

    @model_validator(mode="after")
    def _check(self) -> RetryOptions:
        if self.fail_fast and self.keep_going:
            raise ValueError("fail_fast and keep_going: give one of them")
        return self


class LaunchOptions(RetryOptions):
    """A user's options for one launch, of `jestlab launch` and of `LoadedStudy.launch`."""

    max_chip_hours: NonNegativeFloat | None = option(
        "Launch nothing if the estimate exceeds this limit or is unknown; start no run that would exceed it. "
        "On this machine, the limit is in hours."
    )
    rerun_changed: bool = option(
        "Rerun completed runs, or the given ones, that were made with different code, data, or package "
        "versions, and all runs that depend on them.",
        False,
    )
    rerun_retracted: bool = option(
        "Rerun retracted runs, or the given ones, and all runs that depend on them.", False
    )
    ahead: bool = option(
        "Submit all jobs at once, each to start after its dependencies have completed, and don't wait for "
        "them (only on slurm).",
        False,
    )
    runs: Names = option("Names of the only runs to rerun; default: all.", ())
    replace: bool = option("Replace an experiment of this name that belongs to another study or user.", False)

    @model_validator(mode="after")
    def _check_runs(self) -> LaunchOptions:
        if self.runs and not (self.rerun_changed or self.rerun_retracted):
            raise ValueError(
                "runs: name single runs only with rerun_changed or rerun_retracted (--rerun-changed, "
                "--rerun-retracted)"
            )
        return self


class ControllerOptions(LaunchOptions):
    """Options of a controller: `LaunchOptions`, completed from the study's resources and the settings.

    Attributes:
        lease_seconds: Seconds without a heartbeat after which a worker or a launcher counts as lost.
        retry_exit_codes: Exit codes after which a command is always retried.
        tasks_per_node: Number of processes of a command on each of its machines.
        time_seconds: Time limit of each job; None for no limit.
        at_once: Kill runs that have to stop, instead of giving them time to save a checkpoint.
        launches: Start runs; if False, only wait for live attempts or stop them; if `ahead`, don't wait.
        record: Information about the code and environment that attempts store.
        code: Fingerprint → the worker's argument for the shipped code, for runs with such code.
        since: Time after which chip-hours of all attempts in the store count toward the limit; None for now.
    """

    on: ExecutorName = "local"
    retries: int = 2
    lease_seconds: float = 90.0
    retry_exit_codes: tuple[int, ...] = ()
    tasks_per_node: int = 1
    time_seconds: int | None = None
    at_once: bool = False
    launches: bool = True
    record: tuple[Part, ...] = PARTS
    code: Mapping[str, str] = {}
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
