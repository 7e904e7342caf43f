"""The synthetic web on disk: img2dataset's shards of webdataset tars, with a metadata parquet beside each."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from jestlab.models.config import ShapesWeb
from jestlab.models.config.data import SYNTHETIC_CAPTION
from jestlab.models.data.shapes.captions import describe
from jestlab.models.data.shapes.noise import (
    NOISE_KINDS,
    alt_texts,
    draw_kinds,
    measure,
    other_scenes,
    vague_texts,
)
from jestlab.models.data.shapes.render import Jitter, Pixels, render
from jestlab.models.data.shapes.world import BACKGROUNDS, CLASSES, POSITIONS, SIZES, Scenes
from jestlab.models.data.tars import TarWriter

Progress = Callable[[int], None]
_STREAMS = {"templates": 0, "shard": 1, "recaption": 2}  # independent random streams under one seed


def make_web(folder: Path, settings: ShapesWeb, seed: int, progress: Progress | None = None) -> None:
    """Make the synthetic web.

    Each shard is drawn from its own random stream, so shards do not depend on each other. The same settings
    and seed give the same bytes (with the same versions of NumPy, Pillow and PyArrow).

    Args:
        folder: Where the shards go: `00000.tar` with `.jpg`, `.txt` and `.json` members, `00000.parquet` with
            the metadata, `00000_stats.json`. Created if missing.
        settings: What to make; its own `seed` is not read.
        seed: The seed of all that is random.
        progress: Called with the number of examples just made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.PCG64([seed, _STREAMS["templates"]]))
    templates = Scenes.draw(rng, settings.duplicate_templates)
    poses = Jitter.draw(rng, settings.duplicate_templates)
    for shard, start in enumerate(range(0, settings.examples, settings.shard_size)):
        count = min(settings.shard_size, settings.examples - start)
        rng, captioner = (
            np.random.Generator(np.random.PCG64([seed, _STREAMS[name], shard]))
            for name in ("shard", "recaption")
        )
        _write_shard(folder, shard, count, settings, templates, poses, rng, captioner, progress)


def _write_shard(
    folder: Path,
    shard: int,
    count: int,
    settings: ShapesWeb,
    templates: Scenes,
    poses: Jitter,
    rng: np.random.Generator,
    captioner: np.random.Generator,
    progress: Progress | None,
) -> None:
    """One tar, its parquet and its statistics."""
    kinds = draw_kinds(settings.noise, count, rng)
    images, captions, columns = _draw_pairs(kinds, settings, templates, poses, rng, captioner)
    digits = max(4, len(str(settings.shard_size - 1)))
    rows = []
    with TarWriter(folder / f"{shard:05d}.tar") as tar:
        for i in range(count):
            key = f"{shard:05d}{i:0{digits}d}"
            jpeg = encode_jpeg(images[i])
            row = {
                "url": f"https://shapes.example/{key}.jpg",
                "caption": captions[i],
                "key": key,
                "status": "success",
                "error_message": None,
                "width": settings.image_size,
                "height": settings.image_size,
                "original_width": settings.image_size,
                "original_height": settings.image_size,
                "sha256": hashlib.sha256(jpeg).hexdigest(),
                **{name: column[i] for name, column in columns.items()},
            }
            tar.add(f"{key}.jpg", jpeg)
            tar.add(f"{key}.json", json.dumps(row).encode())
            tar.add(f"{key}.txt", captions[i].encode())
            rows.append(row)
            if progress is not None and (i + 1) % 256 == 0:
                progress(256)
    if progress is not None:
        progress(count % 256)
    _write_parquet(folder / f"{shard:05d}.parquet", rows)
    # img2dataset's statistics, without its clock times: the same settings give the same bytes.
    stats = {
        "count": count,
        "successes": count,
        "failed_to_download": 0,
        "failed_to_resize": 0,
        "status_dict": {"success": count},
    }
    (folder / f"{shard:05d}_stats.json").write_text(json.dumps(stats, indent=4))


def _draw_pairs(
    kinds: npt.NDArray[np.int64],
    settings: ShapesWeb,
    templates: Scenes,
    poses: Jitter,
    rng: np.random.Generator,
    captioner: np.random.Generator,
) -> tuple[Pixels, list[str], dict[str, list[Any]]]:
    """Images, captions and the metadata columns of n pairs of given kinds."""
    count, size = len(kinds), settings.image_size
    is_kind = {kind: kinds == number for number, kind in enumerate(NOISE_KINDS)}

    template = rng.integers(0, settings.duplicate_templates, count)
    scenes = Scenes.draw(rng, count).where(~is_kind["near_duplicate"], templates.take(template))
    jitter = Jitter.draw(rng, count)
    hardly = poses.take(template).then(Jitter.draw(rng, count, scale=0.1))
    images = render(scenes, jitter.where(~is_kind["near_duplicate"], hardly), size)
    static = is_kind["noise_image"]
    images[static] = rng.integers(0, 256, (int(static.sum()), size, size, 3), np.uint8)
    blank = is_kind["blank"]
    images[blank] = rng.integers(0, 256, (int(blank.sum()), 1, 1, 3), np.uint8)

    described = scenes.where(~is_kind["mismatched"], other_scenes(scenes, rng))
    captions = describe(described, rng)
    for kind, write in (("alt_text", alt_texts), ("vague", vague_texts)):
        where = np.flatnonzero(is_kind[kind])
        for i, text in zip(where, write(len(where), rng), strict=True):
            captions[i] = text

    scores = measure(kinds, scenes.agreement(described), rng)
    columns: dict[str, list[Any]] = {name: score.tolist() for name, score in scores.items()}
    columns[SYNTHETIC_CAPTION] = _recaptioned(scenes, static | blank, captioner)
    columns["noise"] = [NOISE_KINDS[kind] for kind in kinds]
    columns["label"] = [CLASSES[label] for label in scenes.label]
    columns["size"] = [SIZES[number] for number in scenes.size]
    columns["position"] = [POSITIONS[number] for number in scenes.position]
    columns["background"] = [tuple(BACKGROUNDS)[number] for number in scenes.background]
    return images, captions, columns


def _recaptioned(
    scenes: Scenes, without_scene: npt.NDArray[np.bool_], captioner: np.random.Generator
) -> list[str]:
    """What a captioning model says of the images: all that is there, or, where no scene is, nothing much."""
    captions = describe(scenes, captioner, complete=True)
    where = np.flatnonzero(without_scene)
    for i, text in zip(where, vague_texts(len(where), captioner), strict=True):
        captions[i] = text
    return captions


def encode_jpeg(pixels: Pixels) -> bytes:
    """A JPEG at quality 95 with full colour resolution: chroma subsampling would smear small shapes.

    Args:
        pixels: uint8[h, w, 3].
    """
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    """The metadata table, in img2dataset's columns and the scores."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows)
    error = table.schema.get_field_index("error_message")
    table = table.set_column(error, "error_message", table.column(error).cast(pa.string()))
    pq.write_table(table, path)
