"""Processes that compute along with a run: on several hosts the first one alone reports and writes.

A launcher tells a process its place by `JAX_PROCESS_ID`, or on a TPU pod by `TPU_WORKER_ID`; see
`jestlab.models.processes.initialize_processes`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def assists() -> bool:
    """Whether this process computes along with a run whose results another one writes."""
    return int(os.environ.get("JAX_PROCESS_ID") or os.environ.get("TPU_WORKER_ID") or 0) > 0


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
