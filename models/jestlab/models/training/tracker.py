"""What a run reports: `Tracker` and `NullTracker`, declared once for models, platform and tests.

Importing this module is cheap: it needs no JAX, so that the platform and users' scripts may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from jestlab.models.training.phases import Phase


class Recorder(Protocol):
    """Keeps what a run reports.

    Reporting never blocks on the store: values may be written later and in bulk, until `flush` is called.
    """

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics after a number of training steps; 0 for what holds for the whole run.

        Logging a name again at the same step replaces its value.
        """

    def evaluation(
        self,
        step: int,
        examples_seen: int | None,
        flops_total: float | None,
        scores: Mapping[str, float],
        *,
        seconds: float | None = None,
    ) -> None:
        """Record the scores of one evaluation, with what the run had cost by then; None where unknown.

        Args:
            step: Steps done.
            examples_seen: Examples that the learner has trained on.
            flops_total: FLOPs spent so far.
            scores: `dataset/metric` → score.
            seconds: Seconds of training so far.
        """

    def progress(self, step: int, total_steps: int) -> None:
        """Report how many steps are done, of how many of the whole run."""

    def flush(self) -> None:
        """Make everything recorded so far durable.

        NOTE: call it before each checkpoint, so that no checkpoint is ahead of the recorded metrics.
        """


class Tracker(Recorder, Protocol):
    """Where a run reports its results, and where it asks whether to stop.

    The platform's run context implements it on top of the results store; tests implement it in memory.
    """

    def artifact(self, name: str, path: Path) -> None:
        """Record a file or folder inside the lab that the run made, with its size and digest."""

    def saved(self, step: int | None = None) -> None:
        """Report that the run's folder holds a complete checkpoint that a later attempt can resume from.

        May be called from any thread. If the lab is in a bucket, the folder is uploaded before this returns.

        Args:
            step: Steps that the checkpoint holds; None for those when the last phase "checkpoint" began.
        """

    def phase(self, name: Phase, step: int | None = None) -> AbstractContextManager[None]:
        """Context whose time counts as start-up, compilation, evaluation or checkpoint, not as training.

        Without it, time is start-up until the first report of a step, and training from then on. What JAX
        compiles is counted apart in any case.

        Args:
            name: What the time goes to.
            step: Steps done when it begins; None if they were reported a moment ago.
        """

    def stop_requested(self) -> bool:
        """Return whether the run should save a checkpoint and end at the next step."""


class NullTracker:
    """A tracker that records nothing.

    Used by the processes that compute along with the one that reports, and as a base class in tests.
    """

    def __init__(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        self._stop_requested = stop_requested

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Discard the metrics without recording them."""

    def evaluation(
        self,
        step: int,
        examples_seen: int | None,
        flops_total: float | None,
        scores: Mapping[str, float],
        *,
        seconds: float | None = None,
    ) -> None:
        """Discard the scores without recording them."""

    def artifact(self, name: str, path: Path) -> None:
        """Discard the reference to the file."""

    def progress(self, step: int, total_steps: int) -> None:
        """Discard the progress report without recording it."""

    def flush(self) -> None:
        """Do nothing, because nothing was recorded."""

    def saved(self, step: int | None = None) -> None:
        """Do nothing, because nothing has to be kept."""

    def phase(self, name: Phase, step: int | None = None) -> AbstractContextManager[None]:
        """Return a context that measures nothing."""
        return nullcontext()

    def stop_requested(self) -> bool:
        """Return whether this process was asked to stop."""
        return self._stop_requested()
