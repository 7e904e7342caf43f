"""The interface through which a run reports.

Importing this module is cheap, for the platform and users' scripts: it doesn't import JAX.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from jestlab.models.training.phases import Phase


class Tracker:
    """Where a run reports its results, and where it asks whether to stop. This class records nothing.

    The platform's run context writes reports to the results store; tests keep them in memory. Reporting
    doesn't wait for the store: values can be written later and in bulk, until `flush` is called.
    """

    def __init__(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        self._stop_requested = stop_requested

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics after a number of training steps; step 0 for values of the whole run.

        A second value with the same name and step replaces the first.
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
        """Record the scores of one evaluation, `dataset/metric` → score, after a number of training steps.

        The run's totals at that time are the examples that the learner has trained on, FLOPs, and seconds of
        training; None if unknown.
        """

    def progress(self, step: int, total_steps: int) -> None:
        """Report the completed steps, and the steps of the whole run."""

    def artifact(self, name: str, path: Path) -> None:
        """Record a file or folder of the run inside the lab, with its size and digest."""

    def flush(self) -> None:
        """Make all records durable.

        NOTE: call it before each checkpoint, so that no checkpoint is ahead of the recorded metrics.
        """

    def saved(self, step: int | None = None) -> None:
        """Report that the run's folder has a complete checkpoint. Can be called from any thread.

        If the lab is in a bucket, the folder is uploaded before this returns. Without a step, the checkpoint
        is of the moment when the last phase "checkpoint" started.
        """

    def phase(self, name: Phase, step: int | None = None) -> AbstractContextManager[None]:
        """Context whose time counts as start-up, compilation, evaluation, or checkpoint, not as training.

        By default, time until the first reported step is start-up, and later time is training. `step` is the
        number of completed steps at the start; None if they were just reported.
        """
        return nullcontext()

    def stop_requested(self) -> bool:
        """Return whether the run should save a checkpoint and end at the next step."""
        return self._stop_requested()
