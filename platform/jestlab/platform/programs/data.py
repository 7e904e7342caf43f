"""What programs that read data share: folders identified by what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jestlab.models.config import BenchmarkFolder, Data, ShardFolder
from jestlab.platform.errors import UserError
from jestlab.platform.programs.program import Digest


def with_digests(data: Data, digest: Digest, parts: Sequence[str] = ("train", "benchmark")) -> Data:
    """The same data, with the digest of what each folder holds.

    Args:
        data: As a spec gives it.
        digest: The content digest of a folder.
        parts: Which of its folders count.

    Raises:
        UserError: A folder is missing or holds no shards, or the filter is not on its metadata.
    """
    found: dict[str, Any] = {}
    for part in parts:
        folder = getattr(data, part)
        if isinstance(folder, ShardFolder | BenchmarkFolder) and folder.digest is None:
            path = Path(folder.path)
            if not path.is_dir():
                raise UserError(f"data.{part}.path: no folder {path}: give one of image–text tar shards")
            if part == "train" and data.filter is not None:
                _check_filter(data.filter, path)
            found[part] = folder.model_copy(update={"digest": digest(path)})
    return data.model_copy(update=found) if found else data


def _check_filter(text: str, folder: Path) -> None:
    """UserError for a filter on columns that a folder's metadata lack."""
    from jestlab.models.data.curation import metadata_columns
    from jestlab.models.data.filters import Filter, missing_column

    if missing := missing_column(Filter.read(text).columns, metadata_columns(folder)):
        raise UserError(f"data.filter: {folder} has no metadata {missing}")
