"""What a program gets from the platform: where to work, what to read, and where to report."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jestlab.models.training.phases import Phase, PhaseClock
from jestlab.models.training.tracker import Recorder
from jestlab.platform.client import Reporter, as_count, as_phase


class Interrupted(Exception):
    """Raised by a program that was asked to stop, after it has saved what it needs to resume."""


class Failed(Exception):
    """Raised by a program that failed: its message is the run's reason, and no traceback is printed.

    Attributes:
        recurs: Whether it would fail again, so that it is not tried again.
    """

    def __init__(self, reason: str, recurs: bool = False) -> None:
        super().__init__(reason)
        self.recurs = recurs


@dataclass(frozen=True)
class Need:
    """A finished run that this one reads.

    Attributes:
        fingerprint: Its identity.
        program: Name of its program.
        directory: Its folder.
        config: Its resolved config.
    """

    fingerprint: str
    program: str
    directory: Path
    config: dict[str, Any]


class RunContext(Reporter):
    """What a program is called with: `program(config, context)`. It implements `Tracker`.

    A program that can take minutes asks `stop_requested()` now and then; if so, it saves and raises
    `Interrupted`. What it finds in `directory` at its start was left by an earlier attempt at the same run.

    Attributes:
        directory: The run's own folder; it exists.
        cache: Folder for data shared by all runs of the lab.
        seed: Replicate.
        config: The whole config, `seed` included.
        resume: The same as `directory` if an earlier attempt left anything in it, else None.
        needs: Path in the config → the finished run it names.
    """

    def __init__(
        self,
        *,
        directory: Path,
        cache: Path,
        seed: int,
        needs: Mapping[str, Need],
        recorder: Recorder,
        record_artifact: Callable[[str, Path], None],
        stop_requested: Callable[[], bool],
        saved: Callable[[], None] = lambda: None,
        check_evaluation: Callable[[Collection[str]], None] = lambda _: None,
        earlier_seconds: Mapping[int, float] | None = None,
        clock: PhaseClock | None = None,
        config: Mapping[str, Any] | None = None,
        resume: Path | None = None,
    ) -> None:
        """Create a context; the worker does.

        Args, besides the attributes:
            recorder: Keeps what it reports.
            record_artifact: Records a file or folder under a name.
            stop_requested: Tells whether to stop.
            saved: Makes the folder's content durable.
            check_evaluation: Raises UserError if the names of the first evaluation are not those that its
                study expects.
            earlier_seconds: Step → seconds that earlier attempts took until their evaluation there, NaN if
                unknown; None for no earlier attempts.
            clock: Divides the attempt's time among phases; None for one that nobody reads.
        """
        self.directory = directory
        self.config = dict(config or {})
        self.resume = resume
        self.cache = cache
        self.seed = seed
        self.needs = needs
        self._recorder = recorder
        self._record_artifact = record_artifact
        self._stop_requested = stop_requested
        self._saved = saved
        self._earlier_seconds = earlier_seconds or {}
        self._early: list[tuple[float, tuple[Any, ...]]] = []  # evaluations to correct
        self.clock = clock or PhaseClock()
        self._began = time.perf_counter()
        self._check_evaluation: Callable[[Collection[str]], None] | None = check_evaluation

    def _send(self, message: dict[str, Any]) -> None:
        getattr(self, f"_{message.pop('type')}")(**message)

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        if step > 0:  # 0 is what holds for the whole run
            self._reports(step, is_value=True)
        self._recorder.log(step, metrics)

    def _evaluation(
        self,
        step: int,
        scores: dict[str, float],
        examples_seen: int | None = None,
        flops_total: float | None = None,
        seconds: float | None = None,
    ) -> None:
        """Record scores; UserError if the first names aren't those that the study expects."""
        if self._check_evaluation is not None:
            check, self._check_evaluation = self._check_evaluation, None
            check(tuple(scores))
        self._reports(step, is_value=True, trained=step > 0)
        if seconds is None:
            seconds = time.perf_counter() - self._began
            if step > 0 and self._earlier_seconds:
                if not self.clock.resumed.is_final:
                    self._early.append((seconds, (step, examples_seen, flops_total, scores)))
                seconds += self._earlier
        self._recorder.evaluation(step, examples_seen, flops_total, scores, seconds=seconds)

    def _reports(self, step: int, is_value: bool = False, trained: bool = False) -> None:
        """Take note of a report. Seconds are corrected once it's known from where the attempt goes on."""
        self.clock.reports(step, is_value, trained)
        if self._early and self.clock.resumed.is_final:
            early, self._early = self._early, []
            for seconds, evaluation in early:
                self._recorder.evaluation(*evaluation, seconds=seconds + self._earlier)

    @property
    def _earlier(self) -> float:
        """Seconds of earlier attempts until their last evaluation before where this one went on."""
        resumed = self.clock.resumed.step or -1  # at 0 it starts over
        before = [step for step in self._earlier_seconds if step <= resumed]
        return self._earlier_seconds[max(before)] if before else 0.0

    def _artifact(self, name: str, path: str) -> None:
        self._record_artifact(name, Path(path))

    def _progress(self, step: int, total_steps: int) -> None:
        self._reports(step)
        self._recorder.progress(step, total_steps)

    def flush(self) -> None:
        """Make all that was recorded durable. Call it before a checkpoint: none may be ahead of the store."""
        self._recorder.flush()

    def saved(self, step: int | None = None) -> None:
        """Report that `directory` holds what a later attempt can resume from: a complete checkpoint.

        If the lab is in a bucket, the first process uploads it before this returns. What the folder holds
        when the program ends is kept in any case.

        Args:
            step: Steps that it holds; None for those that were done when `phase("checkpoint")` last began, or
                else at the last report.
        """
        step = step if step is None else as_count("step", step)
        self._saved()
        self.clock.saved(step)

    def phase(self, name: Phase, step: int | None = None) -> AbstractContextManager[None]:
        """Context whose time counts as start-up, compilation, evaluation or checkpoint, not as training:

            with context.phase("evaluation"):
                score = evaluate(model)

        Without it, time is start-up until the first report of a step, and training from then on. What JAX
        compiles is counted apart in any case, if the program's module imports JAX.

        Args:
            name: What the time goes to.
            step: Steps done when it begins; None if they were reported a moment ago.
        """
        as_phase(name)
        return self.clock.phase(name, step if step is None else as_count("step", step))

    def stop_requested(self) -> bool:
        """Whether to save and raise `Interrupted`."""
        return self._stop_requested()
