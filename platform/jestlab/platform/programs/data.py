"""What programs that read data share: folders identified by what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jestlab.models.config import BenchmarkFolder, Data, ShardFolder
from jestlab.models.config.data import SYNTHETIC_CAPTION
from jestlab.platform.errors import UserError
from jestlab.platform.programs.contents import Contents


def with_digests(data: Data, contents: Contents, parts: Sequence[str] = ("train", "benchmark")) -> Data:
    """The same data, with the digest of what each folder holds.

    Args:
        data: As a spec gives it.
        contents: What lies there. A folder that it passes over stays without a digest, its columns unchecked.
        parts: Which of its folders count.

    Raises:
        UserError: A folder is missing or holds no shards, or its metadata lack a column that is asked for.
    """
    found: dict[str, Any] = {}
    for part in parts:
        folder = getattr(data, part)
        if isinstance(folder, ShardFolder | BenchmarkFolder) and folder.digest is None:
            path = Path(folder.path)
            if contents.passes_over(path, "folder"):
                continue
            if not path.is_dir():
                raise UserError(f"data.{part}.path: no folder {path}: give one of image–text tar shards")
            if part == "train":
                _check_columns(data, path)
            found[part] = folder.model_copy(update={"digest": contents.digest(path)})
    return data.model_copy(update=found) if found else data


def _check_columns(data: Data, folder: Path) -> None:
    """UserError for a filter or a recaption on columns that a folder's metadata lack."""
    if data.filter is None and data.recaption is None:
        return
    from jestlab.models.data.curation import metadata_columns
    from jestlab.models.data.filters import Filter, missing_column

    asked = {"filter": data.filter, "recaption": data.recaption}
    columns = {field: list(Filter.read(text).columns) for field, text in asked.items() if text is not None}
    if "recaption" in columns:
        columns["recaption"].append(SYNTHETIC_CAPTION)
    known = metadata_columns(folder)
    for field, wanted in columns.items():
        if missing := missing_column(wanted, known):
            raise UserError(f"data.{field}: {folder} has no metadata {missing}")
