"""Write a run's metrics as TensorBoard event files, without TensorFlow."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jestlab.models.weights.parameters import flatten

# tensorboardX imports these if they are installed. PyTorch takes more than a second.
_HIDDEN = [name for name in ("torch", "boto3", "google.cloud.storage") if name not in sys.modules]
sys.modules.update(dict.fromkeys(_HIDDEN))  # type: ignore[arg-type]  # None: can't be imported
from tensorboardX import SummaryWriter  # noqa: E402
from tensorboardX.summary import hparams  # noqa: E402

for _name in _HIDDEN:
    del sys.modules[_name]


class EventWriter(SummaryWriter):  # type: ignore[misc]  # it has no types
    """Writes TensorBoard events of a run into one folder, without TensorFlow."""

    def __init__(
        self, directory: Path, hyperparameters: Mapping[str, Any], first_step: int, write: bool = True
    ) -> None:
        """Open a new event file.

        Args:
            hyperparameters: The run's config, nested; shown flat in the HParams tab.
            first_step: Completed steps when this attempt starts. TensorBoard hides later events of
                interrupted attempts.
            write: Whether this process writes events at all.
        """
        super().__init__(
            str(directory),
            purge_step=first_step + 1,
            flush_secs=10,
            # By default, the file name is the second and the host, so a quick retry would overwrite it.
            filename_suffix=f".{len(list(directory.glob('*tfevents*'))):03}",
            write_to_disk=write,
        )
        if first_step == 0:
            values = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in flatten(hyperparameters, separator=".")
            }
            for summary in hparams(values, {"loss": None}):
                self.file_writer.add_summary(summary)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write values at a step."""
        for name, value in values.items():
            self.add_scalar(name, value, step)
