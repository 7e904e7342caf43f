"""Write what a reader of one's own yields as shards, once: then they are trained on like any other data.

A reader is a function that yields examples, each a mapping with

    image    bytes of a JPEG, PNG or WebP file, a `PIL.Image.Image`, or uint8 [h, w, 3]
    caption  str

and any further keys: metadata, by which `data.filter` and diagnostics can go. It is called with its options,
and with `path` where the config gives one. It must yield the same examples in the same order every time.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jestlab.models import extensions
from jestlab.models.config import OwnReader
from jestlab.models.data.files import file_sha256
from jestlab.models.data.tars import TarWriter

EXAMPLES_A_SHARD = 4_096
_FIXED = ("image", "caption")
_FORMATS = {"jpg": b"\xff\xd8\xff", "png": b"\x89PNG", "webp": b"RIFF"}

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
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    state = hashlib.sha256()
    for file in files:
        name = file.relative_to(path)
        if not any(part.startswith(".") for part in name.parts):
            state.update(f"{file_sha256(file)}  {name.as_posix()}\n".encode())
    return state.hexdigest()


def examples(settings: OwnReader) -> Iterable[Mapping[str, Any]]:
    """Call a reader with its path and options; raises ValueError if it cannot be imported."""
    read: Reader = extensions.load("reader", settings.function)
    given = {} if settings.path is None else {"path": settings.path}
    return read(**given, **settings.options)


def write_shards(folder: Path, examples: Iterable[Mapping[str, Any]], reader: str) -> None:
    """Write examples as img2dataset writes them: tars, and parquets with the metadata.

    Args:
        folder: Where they go; created if missing.
        examples: What the reader yields.
        reader: What it is called in errors.

    Raises:
        ValueError: There are no examples, or one is wrong; its number is named.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    shard = -1
    for shard, batch in enumerate(_batched(examples)):
        rows = []
        with TarWriter(folder / f"{shard:05d}.tar") as tar:
            for i, example in enumerate(batch):
                try:
                    suffix, content, caption, metadata = _checked(example)
                except ValueError as error:
                    number = shard * EXAMPLES_A_SHARD + i
                    raise ValueError(f"reader {reader}: example {number} {error}") from None
                key = f"{shard:05d}{i:04d}"
                row = {"key": key, "caption": caption, **metadata}
                tar.add(f"{key}.{suffix}", content)
                tar.add(f"{key}.json", json.dumps(row).encode())
                tar.add(f"{key}.txt", caption.encode())
                rows.append(row)
        try:
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{shard:05d}.parquet")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"reader {reader}: metadata of one name must be of one type: {error}") from None
    if shard < 0:
        raise ValueError(f"reader {reader} yields no examples")


def _checked(example: Any) -> tuple[str, bytes, str, dict[str, Any]]:
    """Return an example's image (suffix and bytes), caption and metadata; ValueError says what is wrong."""
    for name in _FIXED:
        if not isinstance(example, Mapping) or name not in example:
            raise ValueError(
                f"has no {name!r}: a reader yields mappings with `image`, `caption` and metadata"
            )
    caption = example["caption"]
    if not isinstance(caption, str):
        raise ValueError(f"has a caption that is a {type(caption).__name__}, not a str")
    metadata = {str(key): _plain(value) for key, value in example.items() if key not in _FIXED}
    return *_encoded(example["image"]), caption, metadata


def _batched(examples: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], ...]]:
    examples = iter(examples)
    while batch := tuple(itertools.islice(examples, EXAMPLES_A_SHARD)):
        yield batch


def _encoded(image: Any) -> tuple[str, bytes]:
    """Return the suffix and the bytes of an image file; pixels become PNG, which loses nothing."""
    if isinstance(image, bytes):
        for suffix, magic in _FORMATS.items():
            if image.startswith(magic):
                return suffix, image
        raise ValueError("has an image that is bytes of no JPEG, PNG or WebP file")
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(
                f"has an image that is {image.dtype} {list(image.shape)}: must be uint8 [h, w, 3]"
            )
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        raise ValueError(
            f"has an image that is a {type(image).__name__}: must be bytes, a PIL image or uint8 [h, w, 3]"
        )
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG")
    return "png", file.getvalue()


def _plain(value: Any) -> Any:
    """Return a value of metadata as JSON can hold it."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, str | int | float | bool):
        raise ValueError(
            f"has metadata that must be texts, numbers or true and false, not a {type(value).__name__}"
        )
    return value
