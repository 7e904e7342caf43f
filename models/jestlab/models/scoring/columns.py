"""Scores of a data set's examples: a number a column and example, stored beside metadata and read like them.

Files, in `scores/` of a run's folder:
    <column>.npy    float32 [n], by global example number; NaN for one that was not embedded
    about.json      which columns there are, and of what data; written last
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jestlab.models.config import Data
from jestlab.models.data.embeddings import content_digest
from jestlab.models.data.files import write_whole

FOLDER = "scores"
_FORMAT = 1  # of the files; another number is refused

Column = npt.NDArray[np.float32]


def write(directory: Path, columns: Mapping[str, Column], digest: str) -> None:
    """Write columns into a run's folder.

    Args:
        directory: The folder.
        columns: float32 [n] by name.
        digest: The digest of the data's content.
    """
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
        FileNotFoundError: It holds none.
        ValueError: They are of another format.
    """
    path = directory / FOLDER / "about.json"
    if not path.exists():
        raise FileNotFoundError(f"{directory}: holds no scores: name a finished run of program score")
    about = json.loads(path.read_text())
    if about["format"] != _FORMAT:
        raise ValueError(f"{path}: unknown format: delete {path.parent} and score again")
    found = {
        name: np.load(path.parent / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        for name in about["columns"]
    }
    return found, about["digest"]


def columns_of(directory: Path, data: Data, folder: Path) -> dict[str, Column]:
    """Return the columns of a finished run for the data of another.

    Raises:
        FileNotFoundError: It holds none.
        ValueError: They are of other data.
    """
    found, mine = load(directory)
    if mine != (theirs := content_digest(data, folder)):
        raise ValueError(
            f"{directory}: scores of other data (digest {mine[:12]}) than {folder} (digest {theirs[:12]}): "
            "score embeddings of the same data.train as the run that reads them"
        )
    return found
