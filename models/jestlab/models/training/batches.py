"""Record super-batches of a run: which candidates there were, how they scored, and which were selected.

    batches/00000150.npz    the super-batch of step 150

The examples themselves stay in the shards, where their global numbers find them.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import write_whole

FOLDER = "batches"
"""Subfolder of a run's folder."""


class SuperBatch(NamedTuple):
    """A super-batch as one step saw it, or the rows of it that one process loaded.

    Attributes:
        examples: int64 [k], global numbers of the candidates.
        scores: float32 [k], each pair's own score by the criterion; NaN where nothing was scored.
        selected: int32 [m], positions of what was trained on, as drawn.
    """

    examples: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    selected: npt.NDArray[np.int32]

    @property
    def rejected(self) -> npt.NDArray[np.int64]:
        """int64 [k − m], positions of the others, in their order."""
        return np.setdiff1d(np.arange(len(self.examples)), self.selected)


def record(directory: Path, step: int, batch: SuperBatch) -> None:
    """Write a super-batch to a run's folder; steps are counted from 1."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **batch._asdict())
    write_whole(_path(directory, step), file.getvalue())


def recorded(directory: Path) -> list[int]:
    """Return the steps whose super-batches a run's folder holds, in order."""
    return sorted(int(path.stem) for path in (directory / FOLDER).glob("*.npz") if path.stem.isdecimal())


def load(directory: Path, step: int) -> SuperBatch:
    """Read a super-batch that was recorded.

    Raises:
        FileNotFoundError: There is none of that step.
        ValueError: The file is damaged.
    """
    path = _path(directory, step)
    try:
        with np.load(path, allow_pickle=False) as file:
            batch = SuperBatch(*(file[name] for name in SuperBatch._fields))
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
    k = len(batch.examples)
    if batch.scores.shape != (k,) or not np.isin(batch.selected, np.arange(k)).all():
        raise ValueError(f"{path}: damaged: its arrays do not belong together")
    return batch


def _path(directory: Path, step: int) -> Path:
    return directory / FOLDER / f"{step:08d}.npz"
