"""Read pairs with a function of one's own: what it yields is written as shards, once, and then trained on.

A reader is a function that yields examples, each a mapping with

    image    bytes of a JPEG, PNG or WebP file, a `PIL.Image.Image`, or uint8 [h, w, 3]
    caption  str

and any further keys except `key`: metadata, by which `data.filter` and diagnostics can go. It is called with
its options, and with `path` where the config gives one. It must yield the same examples in the same order
every time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jestlab.models import extensions
from jestlab.models.config import OwnReader
from jestlab.models.data.files import file_sha256, shard_files

Reader = Callable[..., Iterable[Mapping[str, Any]]]


def path_digest(path: Path) -> str:
    """Hash what a reader reads: a file, or all files of a folder but hidden ones, by their names and content.

    Raises:
        FileNotFoundError: There is nothing.
    """
    if path.is_file():
        return file_sha256(path)
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such file or folder")
    state = hashlib.sha256()
    for name, _ in shard_files(path, ("",)):
        state.update(f"{file_sha256(path / name)}  {name.as_posix()}\n".encode())
    return state.hexdigest()


def examples(settings: OwnReader) -> Iterable[Mapping[str, Any]]:
    """Call a reader with its path and options; raises ValueError if it cannot be imported."""
    read: Reader = extensions.load("reader", settings.function)
    given = {} if settings.path is None else {"path": settings.path}
    return read(**given, **settings.options)
