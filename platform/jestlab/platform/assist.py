"""Processes that compute along with a run: on several hosts the first one alone reports and writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class Unrecorded:
    """A recorder that keeps nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep nothing."""

    def evaluation(
        self, step: int, examples_seen: int, flops_total: float, scores: Mapping[str, float]
    ) -> None:
        """Keep nothing."""

    def artifact(self, name: str, path: Path, root: Path) -> None:
        """Keep nothing."""

    def progress(self, step: int, total_steps: int) -> None:
        """Keep nothing."""

    def flush(self) -> None:
        """There is nothing to write."""
