"""The folders of data: synthetic data are made once, the user's are checked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jestlab.models.config import (
    SHAPES_GENERATOR,
    BenchmarkFolder,
    Code,
    OwnReader,
    ShapesBenchmark,
    ShapesWeb,
    ShardFolder,
)
from jestlab.models.data import readers, shapes
from jestlab.models.data.files import build_once, derived_path, file_sha256, shard_files, write_whole
from jestlab.models.data.packing import write_shards
from jestlab.models.data.shards import ShardIndex


def ensure_web(
    settings: ShapesWeb | ShardFolder | OwnReader,
    seed: int,
    cache: Path,
    code: Mapping[str, Code] | None = None,
) -> Path:
    """Return the folder of shards to train on; make it if it is synthetic, or a reader's, and missing.

    Args:
        settings: The synthetic web or what a reader reads, made on first use, or the user's folder.
        seed: Of the synthetic web, where its settings give none.
        cache: Where made data are kept, in folders named by what is in them.
        code: The run's code, by name: what a reader makes depends on its own.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: The user's folder is missing or holds no shards.
        ValueError: The user's folder no longer holds what its recorded digest says, or a reader yields what
            is no example.
    """
    if isinstance(settings, OwnReader):
        planned = settings.path_digest
        if settings.path and planned and readers.path_digest(Path(settings.path)) != planned:
            raise ValueError(f"{settings.path}: changed since the run was planned: launch again")
    if isinstance(settings, ShardFolder):
        folder = Path(settings.path)
        ShardIndex.load(folder)
        _check_digest(folder, settings.digest)
        return folder

    def build(partial: Path) -> None:
        if isinstance(settings, OwnReader):
            write_shards(partial, readers.examples(settings), f"reader {settings.function}")
        else:
            shapes.make_web(partial, settings, seed if settings.seed is None else settings.seed)
        ShardIndex.load(partial)

    return build_once(cache / web_name(settings, seed, code), build)


def ensure_benchmark(settings: ShapesBenchmark | BenchmarkFolder, cache: Path) -> Path:
    """Return the folder that holds the benchmark's datasets, one folder each; make it as `ensure_web`.

    Raises:
        FileNotFoundError: The user's folder is missing.
        ValueError: The user's folder no longer holds what its recorded digest says.
    """
    if isinstance(settings, BenchmarkFolder):
        folder = Path(settings.path)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder of benchmark datasets")
        _check_digest(folder, settings.digest)
        return folder
    return build_once(
        cache / benchmark_name(settings), lambda partial: shapes.make_benchmark(partial, settings)
    )


def web_name(settings: ShapesWeb | OwnReader, seed: int, code: Mapping[str, Code] | None = None) -> str:
    """Return the name of the folder that `ensure_web` makes."""
    if isinstance(settings, OwnReader):
        made_from = settings.model_dump(mode="json", exclude={"function", "examples"})
        if settings.path_digest is not None:
            del made_from["path"]
        known = (code or {}).get(settings.function)
        return _name("own-web", made_from | {"code": known.digest if known else settings.function})
    seed = seed if settings.seed is None else settings.seed
    return _name("shapes-web", {**settings.model_dump(mode="json"), "seed": seed})


def benchmark_name(settings: ShapesBenchmark) -> str:
    """Return the name of the folder that `ensure_benchmark` makes."""
    return _name("shapes-benchmark", settings.model_dump(mode="json"))


MADE = re.compile(r"(shapes-(web|benchmark)|own-web)-[0-9a-f]{8}")
"""Names of folders that were made here, and can be made again."""


def digest(folder: Path) -> str:
    """Hash the content of a folder of shards or of benchmark datasets, wherever it is.

    Args:
        folder: The folder; its tars, parquets and text files count, at any depth. Hashes are kept in it, and
            recomputed for files whose size or time changed.

    Returns:
        64 hex digits.

    Raises:
        FileNotFoundError: The folder is missing or holds no tar.
    """
    kept_at = derived_path(folder, "digest.json")
    found = shard_files(folder, _CONTENT)
    if not any(path.suffix.lower() == ".tar" for path, _ in found):
        raise FileNotFoundError(f"{folder}: holds no .tar shards")
    try:
        kept = json.loads(kept_at.read_text())
    except (FileNotFoundError, ValueError):
        kept = {}
    files: dict[str, dict[str, Any]] = {}
    for path, stat in found:
        name = path.as_posix()
        files[name] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        known = dict(kept.get(name, {}))
        sha256 = known.pop("sha256", None)
        files[name]["sha256"] = sha256 if sha256 and known == files[name] else file_sha256(folder / path)
    if files != kept:
        write_whole(kept_at, json.dumps(files, indent=1).encode())
    state = hashlib.sha256()
    for name, file in files.items():
        state.update(f"{file['sha256']}  {name}\n".encode())
    return state.hexdigest()


_CONTENT = (".tar", ".parquet", ".txt")


def _check_digest(folder: Path, recorded: str | None) -> None:
    """Raise ValueError if a folder does not hold the recorded content."""
    if recorded is not None and (found := digest(folder)) != recorded:
        raise ValueError(
            f"{folder}: its content changed (digest {found[:12]}, recorded {recorded[:12]}): "
            "restore it, or drop the digest to use what it holds now"
        )


def _name(kind: str, settings: dict[str, Any]) -> str:
    """Return a folder's name, which depends on everything that decides its content."""
    content = json.dumps({"version": SHAPES_GENERATOR, **settings}, sort_keys=True)
    return f"{kind}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
