"""Write and read records of a run's super-batches: candidates, scores, and selected examples.

    batches/00000150.npz    the super-batch of step 150

The examples themselves are in the shards, under their global numbers.
"""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import write_whole

FOLDER = "batches"
"""Subfolder of a run's folder."""


class RecordedBatch(NamedTuple):
    """The super-batch of one step, or the rows of it that one process loaded."""

    examples: npt.NDArray[np.int64]  # [k], global numbers of the candidates
    scores: npt.NDArray[np.float32]  # [k], each pair's own score by the criterion; NaN without a criterion
    selected: npt.NDArray[np.int32]  # [m], positions of the selected candidates, in order of selection

    @property
    def rejected(self) -> npt.NDArray[np.int64]:
        """int64 [k − m], positions of the other candidates, ascending."""
        return np.setdiff1d(np.arange(len(self.examples)), self.selected)


def super_batch(metrics: Mapping[str, Any], examples: npt.NDArray[np.int64], first_row: int) -> RecordedBatch:
    """Return this process's rows of a super-batch; all are selected if the step didn't select.

    Args:
        metrics: Metrics of the step, global JAX arrays: `scores` and `selected`, if it selected.
        examples: int64 [k], global numbers of the rows that this process loaded.
        first_row: Position of the first of them in the super-batch.
    """
    scores, selected = np.full(len(examples), np.nan, np.float32), np.arange(len(examples), dtype=np.int32)
    if "scores" in metrics:
        shards = sorted(metrics["scores"].addressable_shards, key=lambda shard: shard.index[0].start or 0)
        scores = np.concatenate([np.asarray(shard.data) for shard in shards])
    if "selected" in metrics:
        selected = local(np.asarray(metrics["selected"].addressable_data(0)), len(examples), first_row)
    return RecordedBatch(examples, scores, selected)


def local(selected: npt.NDArray[np.int32], rows: int, first_row: int) -> npt.NDArray[np.int32]:
    """Convert positions in a super-batch, int32 [b], to those in one process's rows, int32 [m]."""
    positions = selected - np.int32(first_row)
    return positions[(positions >= 0) & (positions < rows)]


def record(directory: Path, step: int, batch: RecordedBatch) -> None:
    """Write a super-batch to a run's folder; steps are counted from 1."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **batch._asdict())
    write_whole(_path(directory, step), file.getvalue())


def recorded(directory: Path) -> list[int]:
    """Return the steps of the recorded super-batches in a run's folder, ascending."""
    return sorted(int(path.stem) for path in (directory / FOLDER).glob("*.npz") if path.stem.isdecimal())


def load(directory: Path, step: int) -> RecordedBatch:
    """Read a recorded super-batch.

    Raises:
        FileNotFoundError: The step has no record.
        ValueError: The file is damaged.
    """
    path = _path(directory, step)
    try:
        with np.load(path, allow_pickle=False) as file:
            batch = RecordedBatch(*(file[name] for name in RecordedBatch._fields))
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
    k = len(batch.examples)
    if batch.scores.shape != (k,) or not np.isin(batch.selected, np.arange(k)).all():
        raise ValueError(f"{path}: damaged: its arrays do not belong together")
    return batch


def _path(directory: Path, step: int) -> Path:
    return directory / FOLDER / f"{step:08d}.npz"
