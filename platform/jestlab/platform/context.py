"""What a program gets from the platform: where to work, what it may read, and where to report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Interrupted(Exception):
    """Raised by a program that was asked to stop, after it saved what it needs to go on."""


class Failed(Exception):
    """Raised by a program that failed and says why: its message is the run's reason, without a traceback."""


@dataclass(frozen=True)
class Need:
    """A finished run that this one reads.

    Attributes:
        fingerprint: Its identity.
        program: What it executed.
        directory: Its folder.
        config: Its resolved config.
    """

    fingerprint: str
    program: str
    directory: Path
    config: dict[str, Any]


class Recorder(Protocol):
    """What keeps a run's results: an attempt in the store. Its methods are those of `RunContext`."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics."""

    def evaluation(
        self, step: int, examples_seen: int, flops_total: float, scores: Mapping[str, float]
    ) -> None:
        """Record scores."""

    def artifact(self, name: str, path: Path, root: Path) -> None:
        """Record a file or folder below `root`."""

    def progress(self, step: int, total_steps: int) -> None:
        """Record how far the run is."""

    def flush(self) -> None:
        """Make all of it durable."""


class RunContext:
    """The border between a program and the platform: `program(config, context)`.

    A program that can take minutes asks `stop_requested()` now and then; when it says yes, it saves and
    raises `Interrupted`. What it finds in `directory` at its start was left by an earlier attempt at the same
    run.

    Attributes:
        directory: The run's own folder; it exists.
        cache: Where data shared by all runs of the lab lie.
        seed: Replicate.
        needs: Path in the config → the finished run it names.
    """

    def __init__(
        self,
        *,
        directory: Path,
        root: Path,
        cache: Path,
        seed: int,
        needs: Mapping[str, Need],
        recorder: Recorder,
        stop_requested: Callable[[], bool],
        saved: Callable[[], None] = lambda: None,
    ) -> None:
        """Made by the worker.

        Args:
            directory: The run's folder.
            root: The lab's root.
            cache: Shared data.
            seed: Replicate.
            needs: Finished runs it reads.
            recorder: Where to report.
            stop_requested: Whether to stop.
            saved: Makes the folder last.
        """
        self.directory = directory
        self.cache = cache
        self.seed = seed
        self.needs = needs
        self._root = root
        self._recorder = recorder
        self._stop_requested = stop_requested
        self._saved = saved

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics at a step; the same step again replaces them. Written within a second, in bulk."""
        self._recorder.log(step, metrics)

    def evaluation(
        self, step: int, examples_seen: int, flops_total: float, scores: Mapping[str, float]
    ) -> None:
        """Record scores named `dataset/metric`, with the examples and FLOPs spent until then."""
        self._recorder.evaluation(step, examples_seen, flops_total, scores)

    def artifact(self, name: str, path: Path) -> None:
        """Record a file or folder inside the lab, with its size and digest."""
        self._recorder.artifact(name, path, self._root)

    def progress(self, step: int, total_steps: int) -> None:
        """Say how far the run is."""
        self._recorder.progress(step, total_steps)

    def flush(self) -> None:
        """Make durable all that was recorded. Before a checkpoint, so that none is ahead of the store."""
        self._recorder.flush()

    def saved(self) -> None:
        """Say that `directory` holds what a later attempt can go on from: a checkpoint that is whole.

        Where the lab is in a bucket, it is sent there before this returns, by the first process alone. What
        the folder holds when the program ends is kept in any case.
        """
        self._saved()

    def stop_requested(self) -> bool:
        """Whether to save and raise `Interrupted`."""
        return self._stop_requested()
