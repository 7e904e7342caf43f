"""TensorBoard events of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jestlab.models.weights.layout import flatten


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Context in which modules that nothing has imported yet seem not to be installed."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: cannot be imported
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


# It imports these wherever they are installed, for what is not used here: PyTorch takes more than a second.
with _without("torch", "boto3", "google.cloud.storage"):
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams


class EventWriter:
    """Writes TensorBoard events of a run into one folder, without TensorFlow."""

    def __init__(
        self, directory: Path, hyperparameters: Mapping[str, Any], first_step: int, write: bool = True
    ) -> None:
        """Open a new event file.

        Args:
            directory: The run's event folder.
            hyperparameters: The run's config, nested; shown flat in the HParams tab.
            first_step: Steps done when this attempt begins. Later events of an interrupted attempt are
                hidden.
            write: Whether this process writes events at all.
        """
        self._writer = SummaryWriter(
            str(directory),
            # Hide events after the checkpoint's step. The step itself was written, and is not written again.
            purge_step=first_step + 1,
            flush_secs=10,
            # Else the file's name is the second and the host, and a quick retry would write over it.
            filename_suffix=f".{len(list(directory.glob('*tfevents*'))):03}",
            write_to_disk=write,
        )
        if first_step == 0:
            values = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in flatten(hyperparameters, separator=".")
            }
            for summary in hparams(values, {"loss": None}):
                self._writer.file_writer.add_summary(summary)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write the given values at a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush the events and close the file."""
        self._writer.close()
