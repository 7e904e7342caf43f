"""Turn a config's data section into a folder of shards: run a custom reader, generate, or check a folder.

Custom readers need no edit here (docs/how-to/extend-training.md). To add a kind of training data, add its
settings and identity to `config.data`, its branch to `ensure_web`, its folder to `_web_name` and `MADE`, and
its digest, checks, size, and garbage collection to platform/: `programs.builtin`, `.checks`, `.pricing`, and
`cli.gc`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jestlab.models import extensions
from jestlab.models.config import (
    SHAPES_GENERATOR,
    BenchmarkFolder,
    CustomReader,
    DataConfig,
    ShapesBenchmark,
    ShapesWeb,
    ShardFolder,
)
from jestlab.models.data import shapes
from jestlab.models.data.files import build_once, derived_path, file_sha256, shard_files, write_whole
from jestlab.models.data.packing import write_shards
from jestlab.models.data.shards import ShardIndex

Reader = Callable[..., Iterable[Mapping[str, Any]]]
"""A custom reader: a function of its options, and of `path` if the config has one. It yields examples as
`packing.write_shards` takes them, in the same order every time."""

MADE = re.compile(r"(shapes-(web|benchmark)|own-web)-[0-9a-f]{8}")
"""Names of folders that were made here, and can be made again."""

_CONTENT = (".tar", ".parquet", ".txt")  # files that the digest of a folder includes


def ensure_web(config: DataConfig, cache: Path) -> Path:
    """Return the folder of shards to train on; make it if it is synthetic, or a reader's, and missing.

    Args:
        config: The run. A reader's shards depend on its code.
        cache: Where made data are stored, in folders whose names depend on the settings.

    Raises:
        FileNotFoundError: The user's folder is missing or contains no shards.
        ValueError: The data differ from their recorded digest, or a reader yields an invalid example.
    """
    settings = config.data.train
    if isinstance(settings, ShardFolder):
        folder = Path(settings.path)
        ShardIndex.load(folder)
        _check_digest(folder, settings.digest)
        return folder
    if isinstance(settings, CustomReader):
        planned = settings.path_digest
        if settings.path and planned and path_digest(Path(settings.path)) != planned:
            raise ValueError(f"{settings.path}: changed since the run was planned: launch again")

    def build(partial: Path) -> None:
        if isinstance(settings, CustomReader):
            read: Reader = extensions.load("reader", settings.function)
            path = {} if settings.path is None else {"path": settings.path}
            write_shards(partial, read(**path, **settings.options), f"reader {settings.function}")
        else:
            shapes.make_web(partial, settings, config.web_seed)
        ShardIndex.load(partial)

    return build_once(cache / _web_name(config, settings), build)


def ensure_benchmark(settings: ShapesBenchmark | BenchmarkFolder, cache: Path) -> Path:
    """Return the folder that contains the benchmark's datasets, one folder each; make it as `ensure_web`.

    Raises:
        FileNotFoundError: The user's folder is missing.
        ValueError: The user's folder differs from its recorded digest.
    """
    if isinstance(settings, BenchmarkFolder):
        folder = Path(settings.path)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder of benchmark datasets")
        _check_digest(folder, settings.digest)
        return folder
    return build_once(
        cache / _benchmark_name(settings), lambda partial: shapes.make_benchmark(partial, settings)
    )


def made_names(config: DataConfig) -> set[str]:
    """Return the names of the folders that are made for a run."""
    train, benchmark = config.data.train, config.data.benchmark
    names = set() if isinstance(train, ShardFolder) else {_web_name(config, train)}
    return names if isinstance(benchmark, BenchmarkFolder) else names | {_benchmark_name(benchmark)}


def _web_name(config: DataConfig, settings: ShapesWeb | CustomReader) -> str:
    if isinstance(settings, CustomReader):
        made_from = settings.model_dump(mode="json", exclude={"function", "examples"})
        if settings.path_digest is not None:
            del made_from["path"]
        known = config.code.get(settings.function)
        return _name("own-web", made_from | {"code": known.digest if known else settings.function})
    return _name("shapes-web", {**settings.model_dump(mode="json"), "seed": config.web_seed})


def _benchmark_name(settings: ShapesBenchmark) -> str:
    return _name("shapes-benchmark", settings.model_dump(mode="json"))


def _name(kind: str, settings: dict[str, Any]) -> str:
    """Return a folder's name, which depends on everything that decides its content."""
    content = json.dumps({"version": SHAPES_GENERATOR, **settings}, sort_keys=True)
    return f"{kind}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def digest(folder: Path) -> str:
    """Hash the content of a folder of shards or of benchmark datasets, independent of its path, as hex.

    Tars, parquets, and text files count, at any depth. The folder stores their hashes, which are recomputed
    for files with another size or time.

    Raises:
        FileNotFoundError: The folder is missing or does not contain a tar.
    """
    found = shard_files(folder, _CONTENT)
    if not any(path.suffix.lower() == ".tar" for path, _ in found):
        raise FileNotFoundError(f"{folder}: holds no .tar shards")
    stored_at = derived_path(folder, "digest.json")
    try:
        stored = json.loads(stored_at.read_text())
    except (FileNotFoundError, ValueError):
        stored = {}
    files: dict[str, list[Any]] = {}
    for path, stat in found:
        name, about = path.as_posix(), [stat.st_size, stat.st_mtime_ns]
        *known, sha256 = stored.get(name, [None])
        files[name] = [*about, sha256 if known == about else file_sha256(folder / path)]
    if files != stored:
        write_whole(stored_at, json.dumps(files, indent=1).encode())
    return _combined({name: file[-1] for name, file in files.items()})


def path_digest(path: Path) -> str:
    """Hash the input of a reader: a file, or all files of a folder but hidden ones, by names and content.

    Raises:
        FileNotFoundError: Nothing exists at this path.
    """
    if path.is_file():
        return file_sha256(path)
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such file or folder")
    return _combined({name.as_posix(): file_sha256(path / name) for name, _ in shard_files(path, ("",))})


def _combined(hashes: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{sha}  {name}\n" for name, sha in hashes.items()).encode()).hexdigest()


def _check_digest(folder: Path, recorded: str | None) -> None:
    """Raise ValueError if the content of a folder differs from its recorded digest."""
    if recorded is not None and (found := digest(folder)) != recorded:
        raise ValueError(
            f"{folder}: its content changed (digest {found[:12]}, recorded {recorded[:12]}): "
            "restore it, or remove the digest to use the present content"
        )
