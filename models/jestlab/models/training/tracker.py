"""Where a training run reports to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """What the training loop asks of whoever runs it: a results store, a test, or nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics at a step; the same step again replaces them."""

    def evaluation(
        self, step: int, examples_seen: int, flops_total: float, scores: Mapping[str, float]
    ) -> None:
        """Record scores named `dataset/metric`, each in 0…1."""

    def progress(self, step: int, total_steps: int) -> None:
        """Say how far the run is."""

    def flush(self) -> None:
        """Make all that was recorded durable. Called before a checkpoint, so that none is ahead of it."""

    def saved(self) -> None:
        """Keep what the run's folder holds by now. Called when a checkpoint is whole, from any thread."""

    def stop_requested(self) -> bool:
        """Whether to save and end at the next step."""


class Silent:
    """A tracker that records nothing: of processes that compute along with the one that reports."""

    def __init__(self, tracker: Tracker) -> None:
        """Args: tracker: Asked whether to stop, and for nothing else."""
        self._tracker = tracker

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record nothing."""

    def evaluation(
        self, step: int, examples_seen: int, flops_total: float, scores: Mapping[str, float]
    ) -> None:
        """Record nothing."""

    def progress(self, step: int, total_steps: int) -> None:
        """Say nothing."""

    def flush(self) -> None:
        """There is nothing to write."""

    def saved(self) -> None:
        """There is nothing to keep."""

    def stop_requested(self) -> bool:
        """Whether this process was asked to stop."""
        return self._tracker.stop_requested()
