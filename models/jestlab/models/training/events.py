"""TensorBoard events of a run, without TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..config import TrainConfig


class Events(Protocol):
    """Where scalars go."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write values at a step."""


@contextlib.contextmanager
def events_of(config: TrainConfig, directory: Path, first_step: int, write: bool) -> Iterator[Events]:
    """The events of a run, closed at the end.

    Args:
        config: The run.
        directory: Its event folder.
        first_step: Steps done when this attempt begins.
        write: Whether this process writes any.
    """
    if not write:
        yield _NoEvents()
        return
    writer = EventWriter(directory, flatten(config.model_dump(mode="json")), first_step)
    try:
        yield writer
    finally:
        writer.close()


class _NoEvents:
    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write nothing."""


class EventWriter:
    """Scalars and hyperparameters of one run in one folder, for `tensorboard --logdir`."""

    def __init__(self, directory: Path, hyperparameters: Mapping[str, Any], first_step: int) -> None:
        """Open a new event file.

        Args:
            directory: The run's event folder.
            hyperparameters: Flat config, shown in the HParams tab.
            first_step: Steps done when this attempt begins: what an interrupted one wrote beyond is hidden.
        """
        from tensorboardX import SummaryWriter
        from tensorboardX.summary import hparams

        # Hides what has this step or a later one: the checkpoint's own step was written, and is not again.
        purge_step = first_step + 1 if first_step else None
        self._writer = SummaryWriter(str(directory), purge_step=purge_step, flush_secs=10)
        if first_step == 0:
            values = {
                k: v if isinstance(v, bool | int | float | str) else str(v)
                for k, v in hyperparameters.items()
            }
            for summary in hparams(values, {"loss": None}):
                self._writer.file_writer.add_summary(summary)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write values at a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat
