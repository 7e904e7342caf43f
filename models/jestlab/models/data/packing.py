"""Pack pictures and captions: shards as img2dataset writes them, test sets as CLIP_benchmark does."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jestlab.models.data.shards import fits_a_table
from jestlab.models.data.tars import TarWriter

EXAMPLES_A_SHARD = 4_096
_FIXED = ("image", "caption")
_FORMATS = {"jpg": b"\xff\xd8\xff", "png": b"\x89PNG", "webp": b"RIFF"}


def write_shards(folder: Path, examples: Iterable[Mapping[str, Any]], source: str) -> None:
    """Write examples as img2dataset writes them: tars, and parquets with the metadata.

    Args:
        folder: Where they go; created if missing.
        examples: Mappings with `image` (bytes of a JPEG, PNG or WebP file, a `PIL.Image.Image`, or uint8
            [h, w, 3]), `caption`, and any metadata.
        source: Where they come from, for errors, such as "reader my_code:pairs".

    Raises:
        ValueError: There are no examples, or one is wrong; its number is named.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    columns: dict[str, None] = {}
    for shard, batch in enumerate(_batched(examples)):
        rows = []
        with TarWriter(folder / f"{shard:05d}.tar") as tar:
            for i, example in enumerate(batch):
                try:
                    suffix, content, caption, metadata = _checked(example)
                except ValueError as error:
                    number = shard * EXAMPLES_A_SHARD + i
                    raise ValueError(f"{source}: example {number} {error}") from None
                key = f"{shard:05d}{i:04d}"
                row = {"key": key, "caption": caption, **metadata}
                tar.add(f"{key}.{suffix}", content)
                tar.add(f"{key}.json", json.dumps(row).encode())
                tar.add(f"{key}.txt", caption.encode())
                rows.append(row)
                columns |= dict.fromkeys(row)
        try:
            table = pa.table({name: [row.get(name) for row in rows] for name in columns})
            pq.write_table(table, folder / f"{shard:05d}.parquet")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"{source}: metadata of one name must be of one type: {error}") from None
    if not columns:
        raise ValueError(f"{source} yields no examples")
    empty = pa.table({name: pa.nulls(0) for name in columns})
    for path in folder.glob("*.parquet"):  # which lack the columns that only later shards have
        if len(pq.read_schema(path)) < len(columns):
            table = pa.concat_tables([pq.read_table(path), empty], promote_options="default")
            pq.write_table(table, path)


def _checked(example: Any) -> tuple[str, bytes, str, dict[str, Any]]:
    """Return an example's image (suffix and bytes), caption and metadata; ValueError says what is wrong."""
    for name in _FIXED:
        if not isinstance(example, Mapping) or name not in example:
            raise ValueError(f"has no {name!r}: an example is a mapping with `image`, `caption` and metadata")
    caption = example["caption"]
    if not isinstance(caption, str):
        raise ValueError(f"has a caption that is a {type(caption).__name__}, not a str")
    metadata = {str(key): _plain(value) for key, value in example.items() if key not in _FIXED}
    if "key" in metadata or len(metadata) < len(example) - len(_FIXED):
        raise ValueError("has metadata 'key', which shards use, or two of the same name: rename them")
    if not all(map(fits_a_table, (caption, *metadata, *metadata.values()))):
        raise ValueError("has text with surrogates, or a number of more than 64 bits: write it as text")
    return *encoded(example["image"]), caption, metadata


def _batched(examples: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], ...]]:
    examples = iter(examples)
    while batch := tuple(itertools.islice(examples, EXAMPLES_A_SHARD)):
        yield batch


def encoded(image: Any) -> tuple[str, bytes]:
    """Return the suffix and the bytes of an image file; pixels become PNG, which loses nothing.

    Raises:
        ValueError: It is no image; the message says what it is, after "has".
    """
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


Target = tuple[bytes, str, str]
"""An image of a test set: its bytes, their suffix ("jpg", "png", "webp"), and its label or captions."""


def write_classification(
    folder: Path, splits: Mapping[str, Iterable[Target]], class_names: Sequence[str], templates: Sequence[str]
) -> None:
    """Write a classification dataset in CLIP_benchmark's form.

    Args:
        folder: Of the dataset; created if missing.
        splits: "test", and "train" for few-shot probes → images with the numbers of their classes.
        class_names: What the numbers stand for.
        templates: Prompts with `{c}` in the place of the class.
    """
    for split, images in splits.items():
        _write_split(folder / split, images, "cls")
    (folder / "classnames.txt").write_text("\n".join(class_names) + "\n", encoding="utf-8")
    (folder / "zeroshot_classification_templates.txt").write_text("\n".join(templates) + "\n", "utf-8")


def write_retrieval(folder: Path, images: Iterable[Target]) -> None:
    """Write a retrieval dataset in CLIP_benchmark's form: images with a caption on each line."""
    _write_split(folder / "test", images, "txt")
    (folder / "dataset_type.txt").write_text("retrieval\n")


def _write_split(folder: Path, images: Iterable[Target], extension: str) -> None:
    """Write `0.tar` and `nshards.txt` of one split, with keys as CLIP_benchmark's exporter writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    with TarWriter(folder / "0.tar") as tar:
        for i, (content, suffix, target) in enumerate(images):
            tar.add(f"s{i:07d}.{extension}", target.encode())
            tar.add(f"s{i:07d}.{suffix}", content)
    (folder / "nshards.txt").write_text("1\n")
