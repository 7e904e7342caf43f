"""The interface that a running program gets from jestlab: its folder, its inputs, and its reporting
methods."""

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jestlab.models.training.phases import Phase, PhaseClock
from jestlab.models.training.tracker import Tracker
from jestlab.platform.client import Reporter, Totals, as_count, as_phase


class Interrupted(Exception):
    """Raised by a program that was asked to stop, after saving its checkpoint."""


class Failed(Exception):
    """Raised by a program that failed. The message is the run's reason; no traceback is printed.

    Attributes:
        recurs: Whether the error would recur, so that the run is not retried.
    """

    def __init__(self, reason: str, recurs: bool = False) -> None:
        super().__init__(reason)
        self.recurs = recurs


@dataclass(frozen=True)
class NeededRun:
    """A completed run that this run depends on, with its folder and its resolved config."""

    fingerprint: str
    program: str
    directory: Path
    config: dict[str, Any]


@dataclass(kw_only=True, eq=False)
class RunContext(Reporter, Tracker):
    """Second argument of a program: `program(config, context)`.

    A program that can run for minutes polls `stop_requested()`. When that is true, it saves a checkpoint and
    raises `Interrupted`. Files in `directory` at the start come from an earlier attempt of the same run.

    Attributes:
        directory: The run's folder; it exists.
        cache: Folder for data shared by all runs of the lab.
        seed: Seed of this replicate.
        config: The whole config, including `seed`.
        resume: The same as `directory` if an earlier attempt left files in it, else None.
        needs: Role → the completed run with that role.

    Attributes for the worker:
        recorder: Stores reports.
        should_stop: Whether the run must stop.
        upload: Makes the content of the run's folder durable.
        check_evaluation: Checks the names of the first evaluation; raises UserError for unexpected ones.
        earlier_seconds: Step → seconds of earlier attempts until their evaluation at that step, NaN if
            unknown; empty if there are no earlier attempts.
        clock: Measures the phases of the attempt.
    """

    directory: Path
    cache: Path
    seed: int
    needs: Mapping[str, NeededRun]
    recorder: Reporter | Tracker
    should_stop: Callable[[], bool]
    upload: Callable[[], None] = lambda: None
    check_evaluation: Callable[[Collection[str]], None] | None = None
    earlier_seconds: Mapping[int, float] = field(default_factory=dict)
    clock: PhaseClock = field(default_factory=PhaseClock)
    config: dict[str, Any] = field(default_factory=dict)
    resume: Path | None = None

    def __post_init__(self) -> None:
        self._start = time.perf_counter()

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        if step > 0:  # values at step 0 describe the whole run
            self.clock.reports(step, is_value=True)
        self.recorder.log(step, metrics)

    def _evaluation(self, step: int, scores: dict[str, float], totals: Totals) -> None:
        examples_seen, flops_total, seconds = totals
        if self.check_evaluation is not None:
            check, self.check_evaluation = self.check_evaluation, None
            check(tuple(scores))
        self.clock.reports(step, is_value=True, trained=step > 0)
        if seconds is None:
            seconds = time.perf_counter() - self._start
            if step > 0:
                seconds += self._seconds_before
        known = None if math.isnan(seconds) else seconds
        self.recorder.evaluation(step, examples_seen, flops_total, scores, seconds=known)

    @property
    def _seconds_before(self) -> float:
        """Seconds of earlier attempts until their last evaluation before this attempt's resume point."""
        resumed = self.clock.resumed.step or -1  # an attempt that resumes at step 0 starts over
        before = [step for step in self.earlier_seconds if step <= resumed]
        return self.earlier_seconds[max(before)] if before else 0.0

    def _artifact(self, name: str, path: Path) -> None:
        self.recorder.artifact(name, path)

    def _progress(self, step: int, total_steps: int) -> None:
        self.clock.reports(step)
        self.recorder.progress(step, total_steps)

    def flush(self) -> None:
        """Make all reports durable. Call it before a checkpoint, so that no checkpoint is ahead of the
        store."""
        self.recorder.flush()

    def saved(self, step: int | None = None) -> None:
        """Report that `directory` contains a complete checkpoint.

        If the lab is in a bucket, the first process uploads the folder before this returns. The final content
        of the folder is always kept.

        Args:
            step: Steps in the checkpoint; None for those completed when `phase("checkpoint")` was last
                entered, or else at the last report.
        """
        step = step if step is None else as_count("step", step)
        self.upload()
        self.clock.saved(step)

    def phase(self, name: Phase, step: int | None = None) -> AbstractContextManager[None]:
        """Context whose time counts as start-up, compilation, evaluation, or checkpoint instead of training:

            with context.phase("evaluation"):
                score = evaluate(model)

        By default, time until the first reported step is start-up, and later time is training. Compilation by
        JAX is measured automatically if the program's module imports JAX.

        Args:
            name: The phase.
            step: Steps completed when the phase starts; None if they were just reported.
        """
        as_phase(name)
        return self.clock.phase(name, step if step is None else as_count("step", step))

    def stop_requested(self) -> bool:
        """Whether to save a checkpoint and raise `Interrupted`."""
        return self.should_stop()
