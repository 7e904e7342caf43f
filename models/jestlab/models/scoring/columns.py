"""Scores of a data set's examples: columns with one number per example, which filters read like metadata.

Files, in `scores/` of a run's folder:
    <column>.npy    float32 [n], by global example number; NaN for examples that were not embedded
    about.json      the names of the columns and the digest of their data; written last
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jestlab.models.config import Data
from jestlab.models.data.embeddings import content_digest
from jestlab.models.data.files import write_whole

FOLDER = "scores"
_FORMAT = 1  # of the files; files with another number are rejected

Column = npt.NDArray[np.float32]


def write(directory: Path, columns: Mapping[str, Column], digest: str) -> None:
    """Write columns, float32 [n] by name, into a run's folder, with the digest of the data's content."""
    folder = directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, column in columns.items():
        with (folder / f"{name}.npy.part").open("wb") as file:
            np.save(file, column.astype(np.float32), allow_pickle=False)
        (folder / f"{name}.npy.part").replace(folder / f"{name}.npy")
    about = {"format": _FORMAT, "digest": digest, "columns": list(columns)}
    write_whole(folder / "about.json", json.dumps(about, indent=1).encode())


def load(directory: Path) -> tuple[dict[str, Column], str]:
    """Return the columns of a finished run, memory-mapped, and the digest of their data.

    Raises:
        FileNotFoundError: The folder has no columns.
        ValueError: The columns are in another format.
    """
    folder = directory / FOLDER
    if not (folder / "about.json").exists():
        raise FileNotFoundError(f"{directory}: holds no scores: name a finished run of program score")
    about = json.loads((folder / "about.json").read_text())
    if about["format"] != _FORMAT:
        raise ValueError(f"{folder}: unknown format: delete it and score again")
    columns = {
        name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in about["columns"]
    }
    return columns, about["digest"]


def columns_of(directory: Path | None, data: Data, folder: Path) -> dict[str, Column] | None:
    """Return the columns of a finished run, if any, for another run's data in a folder of shards.

    Raises:
        FileNotFoundError: The run's folder has no columns.
        ValueError: The columns belong to other data, or as `load`.
    """
    if directory is None:
        return None
    columns, scored = load(directory)
    if scored != (digest := content_digest(data, folder)):
        raise ValueError(
            f"{directory}: scores of other data (digest {scored[:12]}) than {folder} (digest {digest[:12]}): "
            "score embeddings of the same data.train as the run that reads them"
        )
    return columns
