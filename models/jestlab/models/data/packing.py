"""Write images and captions: shards in the format of img2dataset, test sets in that of CLIP_benchmark."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jestlab.models.data.shards import fits_a_table
from jestlab.models.data.tars import TarWriter

EXAMPLES_A_SHARD = 4_096
_FORMATS = {"jpg": b"\xff\xd8\xff", "png": b"\x89PNG", "webp": b"RIFF"}


def write_shards(folder: Path, examples: Iterable[Mapping[str, Any]], source: str) -> None:
    """Write examples as img2dataset writes them: tars, and parquets with the metadata.

    Args:
        folder: Where they are written; created if missing.
        examples: Mappings with `image` (bytes of a JPEG, PNG, or WebP file, a `PIL.Image.Image`, or uint8
            [h, w, 3]), `caption`, and any metadata but `key`, by which filters and diagnostics can go.
        source: Their origin, for errors, such as "reader my_code:pairs".

    Raises:
        ValueError: An example is missing or invalid; the message contains the number of the example.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    columns: dict[str, None] = {}
    remaining = iter(examples)
    batches = iter(lambda: [*itertools.islice(remaining, EXAMPLES_A_SHARD)], [])
    for shard, batch in enumerate(batches):
        images, rows = [], []
        for i, example in enumerate(batch):
            try:
                image, row = _checked(example, f"{shard:05d}{i:04d}")
            except ValueError as error:
                raise ValueError(f"{source}: example {shard * EXAMPLES_A_SHARD + i} {error}") from None
            images.append(image)
            rows.append(row)
            columns |= dict.fromkeys(row)
        write_tar(folder / f"{shard:05d}.tar", images, rows)
        try:
            table = pa.table({name: [row.get(name) for row in rows] for name in columns})
            pq.write_table(table, folder / f"{shard:05d}.parquet")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"{source}: metadata of one name must be of one type: {error}") from None
    if not columns:
        raise ValueError(f"{source} yields no examples")
    empty = pa.table({name: pa.nulls(0) for name in columns})
    for path in folder.glob("*.parquet"):  # add the columns that only later shards have
        if len(pq.read_schema(path)) < len(columns):
            table = pa.concat_tables([pq.read_table(path), empty], promote_options="default")
            pq.write_table(table, path)


def write_tar(path: Path, images: Iterable[tuple[str, bytes]], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a shard: images, as suffix and bytes, with metadata, of which `key` and `caption` are two."""
    with TarWriter(path) as tar:
        for (suffix, content), row in zip(images, rows, strict=True):
            tar.add(f"{row['key']}.{suffix}", content)
            tar.add(f"{row['key']}.json", json.dumps(row).encode())
            tar.add(f"{row['key']}.txt", row["caption"].encode())


def _checked(example: Any, key: str) -> tuple[tuple[str, bytes], dict[str, Any]]:
    """Return suffix and bytes of an example's image, and its metadata; a ValueError names the problem."""
    if not isinstance(example, Mapping) or not {"image", "caption"} <= example.keys():
        raise ValueError("must be a mapping with `image`, `caption`, and metadata")
    if not isinstance(example["caption"], str):
        raise ValueError("must have a str as `caption`")
    if "key" in example or not all(isinstance(name, str) for name in example):
        raise ValueError("has metadata 'key', which shards use, or a name that isn't a str: rename it")
    row = {"key": key, "caption": example["caption"], **example}
    image = row.pop("image")
    for name, value in row.items():
        plain = row[name] = value.item() if isinstance(value, np.generic) else value
        if not (isinstance(plain, str | int | float | None) and fits_a_table([name, plain])):
            raise ValueError(
                f"has metadata {name[:40]!r} that no table can store: expected a text without surrogates, "
                "a number of at most 64 bits, true, or false"
            )
    return encoded(image), row


def encoded(image: Any) -> tuple[str, bytes]:
    """Return the suffix and the bytes of an image file; pixels become PNG, which is lossless.

    Raises:
        ValueError: It isn't an image.
    """
    if isinstance(image, bytes):
        for suffix, magic in _FORMATS.items():
            if image.startswith(magic):
                return suffix, image
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape[2:] == (3,):
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        raise ValueError(
            "has no valid image: expected bytes of a JPEG, PNG, or WebP file, a PIL image, or uint8 [h, w, 3]"
        )
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG")
    return "png", file.getvalue()


Target = tuple[bytes, str, str]
"""An image of a test set: bytes, their suffix ("jpg", "png", "webp"), and the label or captions."""


def write_classification(
    folder: Path, splits: Mapping[str, Iterable[Target]], class_names: Sequence[str], templates: Sequence[str]
) -> None:
    """Write a classification dataset in CLIP_benchmark's format.

    Args:
        folder: Of the dataset; created if missing.
        splits: "test", and "train" for few-shot probes → images with the numbers of their classes.
        class_names: Name of each number.
        templates: Prompts with `{c}` in place of the class.
    """
    for split, images in splits.items():
        _write_split(folder / split, images, "cls")
    (folder / "classnames.txt").write_text("\n".join(class_names) + "\n", encoding="utf-8")
    (folder / "zeroshot_classification_templates.txt").write_text("\n".join(templates) + "\n", "utf-8")


def write_retrieval(folder: Path, images: Iterable[Target]) -> None:
    """Write a retrieval dataset in CLIP_benchmark's format: images with one caption per line."""
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
