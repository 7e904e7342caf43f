"""The synthetic web and its benchmark on disk: img2dataset's shards and CLIP_benchmark's folders.

The metadata scores are measurements: they follow the truth with an error, so that a filter on them removes
most of the noise, not all of it, and loses some clean pairs. Near-duplicates are honest pairs and pass every
filter on quality: they lack diversity, which `uniqueness` measures, as a deduplication pass would.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from jestlab.models.config import NoiseRates, ShapesBenchmark, ShapesWeb
from jestlab.models.config.data import SYNTHETIC_CAPTION
from jestlab.models.data.packing import Target, write_classification, write_retrieval
from jestlab.models.data.tars import TarWriter
from jestlab.models.data.world import (
    BACKGROUNDS,
    CLASSES,
    POSITIONS,
    SCENES,
    SIZES,
    Jitter,
    Pixels,
    Scenes,
    describe,
    describe_twice,
    render,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NOISE_KINDS = ("clean", *NoiseRates.model_fields)
"""Values of the metadata column `noise`."""

# Mean and standard deviation over pairs of a kind: CLIP similarity, LAION aesthetic, quality of the text,
# uniqueness (1 − cosine to the nearest other image, as deduplication measures it, scaled to 0…1).
_SCORES: dict[str, tuple[tuple[float, float], ...]] = {
    "clean": ((0.32, 0.035), (5.6, 0.60), (0.78, 0.12), (0.80, 0.10)),
    # Plus what the caption happens to get right.
    "mismatched": ((0.15, 0.035), (5.6, 0.60), (0.78, 0.12), (0.80, 0.10)),
    "alt_text": ((0.17, 0.040), (5.4, 0.70), (0.22, 0.12), (0.80, 0.10)),
    "noise_image": ((0.14, 0.040), (3.1, 0.60), (0.78, 0.12), (0.80, 0.10)),
    "blank": ((0.15, 0.040), (3.0, 0.60), (0.78, 0.12), (0.80, 0.10)),
    "vague": ((0.23, 0.040), (5.5, 0.60), (0.35, 0.12), (0.80, 0.10)),
    "near_duplicate": ((0.32, 0.035), (5.6, 0.60), (0.78, 0.12), (0.15, 0.10)),
}
_SIMILARITY_OF_AGREEMENT = 0.10  # of a mismatched caption that gets everything right

_ALT_TEXTS = (
    "IMG_{0:04d}.jpg",
    "DSC{0:05d}",
    "click to enlarge",
    "image {1}",
    "untitled",
    "banner {2}x{3}",
    "product photo {0}",
    "thumbnail",
    "add to cart",
    "share on social media",
    "page {1} of {3}",
    "logo.png",
)
_VAGUE = (
    "a picture of a thing",
    "an image",
    "some object",
    "a nice photo",
    "a shape on a background",
    "picture of something",
    "a simple drawing",
    "an object in an image",
)


def draw_kinds(rates: NoiseRates, count: int, rng: np.random.Generator) -> Ints:
    """Draw the kind of noise of each of n pairs, int64[n], numbers into `NOISE_KINDS`."""
    shares = np.array([getattr(rates, kind) for kind in NOISE_KINDS[1:]])
    edges = np.cumsum([max(0.0, 1.0 - shares.sum()), *shares])
    return np.minimum(np.searchsorted(edges, rng.random(count), side="right"), len(NOISE_KINDS) - 1)


def other_scenes(scenes: Scenes, rng: np.random.Generator) -> Scenes:
    """Draw for each scene one of another class: what a mismatched caption describes."""
    others = Scenes.draw(rng, len(scenes))
    label = others.label
    while (same := label == scenes.label).any():
        label = np.where(same, Scenes.draw(rng, len(scenes)).label, label)
    return Scenes.of(label, others.rest)


def alt_texts(count: int, rng: np.random.Generator) -> list[str]:
    """Write n captions as a content management system would."""
    kinds = rng.integers(0, len(_ALT_TEXTS), count)
    numbers = rng.integers(0, (9999, 20, 900, 600), (count, 4))
    return [_ALT_TEXTS[kind].format(*row) for kind, row in zip(kinds, numbers.tolist(), strict=True)]


def vague_texts(count: int, rng: np.random.Generator) -> list[str]:
    """Write n captions that are true of anything."""
    return [_VAGUE[i] for i in rng.integers(0, len(_VAGUE), count)]


def measure(kinds: Ints, agreement: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """Measure the metadata scores of n pairs.

    Args:
        kinds: int64[n], into `NOISE_KINDS`.
        agreement: float64[n], share of a mismatched caption's attributes that are true of the image.
        rng: The generator of the measurements' errors.

    Returns:
        `similarity` (as CLIP's cosine, about 0.1 to 0.4), `aesthetic` (as LAION's predictor, about 2 to 7.5),
        `text_quality`, `uniqueness` and `punsafe` (0 to 1): float64[n] each, rounded as a table would hold
        them.
    """
    table = np.array([_SCORES[kind] for kind in NOISE_KINDS])[kinds]  # [n, 4, 2]
    scores = table[:, :, 0] + table[:, :, 1] * rng.standard_normal((len(kinds), 4))
    mismatched = kinds == NOISE_KINDS.index("mismatched")
    similarity = scores[:, 0] + np.where(mismatched, _SIMILARITY_OF_AGREEMENT * agreement, 0.0)
    return {
        "similarity": np.clip(similarity, -1.0, 1.0).round(4),
        "aesthetic": np.clip(scores[:, 1], 1.0, 10.0).round(3),
        "text_quality": np.clip(scores[:, 2], 0.0, 1.0).round(3),
        "uniqueness": np.clip(scores[:, 3], 0.0, 1.0).round(3),
        "punsafe": (rng.random(len(kinds)) * 0.1).round(4),
    }


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
        seed: Of all that is random.
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
        kinds = draw_kinds(settings.noise, count, rng)
        pairs = _draw_pairs(kinds, settings, templates, poses, rng, captioner)
        _write_shard(folder, shard, settings, *pairs, progress or (lambda made: None))


def _write_shard(
    folder: Path,
    shard: int,
    settings: ShapesWeb,
    images: Pixels,
    captions: list[str],
    columns: dict[str, list[Any]],
    progress: Progress,
) -> None:
    """Write one tar, its parquet and its statistics."""
    count, digits = len(images), max(4, len(str(settings.shard_size - 1)))
    sides = ("width", "height", "original_width", "original_height")
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
                **dict.fromkeys(sides, settings.image_size),
                "sha256": hashlib.sha256(jpeg).hexdigest(),
                **{name: column[i] for name, column in columns.items()},
            }
            tar.add(f"{key}.jpg", jpeg)
            tar.add(f"{key}.json", json.dumps(row).encode())
            tar.add(f"{key}.txt", captions[i].encode())
            rows.append(row)
            if (i + 1) % 256 == 0:
                progress(256)
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
    """Draw images, captions and the metadata columns of n pairs of given kinds."""
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
    _replace(captions, is_kind["alt_text"], alt_texts, rng)
    _replace(captions, is_kind["vague"], vague_texts, rng)

    scores = measure(kinds, scenes.agreement(described), rng)
    columns: dict[str, list[Any]] = {name: score.tolist() for name, score in scores.items()}
    # As a captioning model would: everything that is there, or nothing much where no scene is.
    columns[SYNTHETIC_CAPTION] = describe(scenes, captioner, complete=True)
    _replace(columns[SYNTHETIC_CAPTION], static | blank, vague_texts, captioner)
    for name, names, numbers in (
        ("noise", NOISE_KINDS, kinds),
        ("label", CLASSES, scenes.label),
        ("size", SIZES, scenes.size),
        ("position", POSITIONS, scenes.position),
        ("background", tuple(BACKGROUNDS), scenes.background),
    ):
        columns[name] = [names[number] for number in numbers]
    return images, captions, columns


def _replace(
    captions: list[str],
    where: npt.NDArray[np.bool_],
    write: Callable[[int, np.random.Generator], list[str]],
    rng: np.random.Generator,
) -> None:
    """Write other captions where a mask holds."""
    rows = np.flatnonzero(where).tolist()
    for row, text in zip(rows, write(len(rows), rng), strict=True):
        captions[row] = text


def encode_jpeg(pixels: Pixels) -> bytes:
    """Encode a JPEG at quality 95 in full colour resolution: subsampling would smear small shapes."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the metadata table, with img2dataset's columns and the scores."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows)
    error = table.schema.get_field_index("error_message")
    table = table.set_column(error, "error_message", table.column(error).cast(pa.string()))
    pq.write_table(table, path)


TRAIN_EXAMPLES_PER_CLASS = 16
"""Of the classification dataset's train split, from which few-shot probes draw."""

PROMPTS = ("a {c}", "{c}", "photo of a {c}", "a {c} on a background")

_BENCHMARK_STREAMS = {"train": 0, "test": 1, "retrieval": 2}
_SCENES_PER_CLASS = SCENES // len(CLASSES)


def make_benchmark(folder: Path, settings: ShapesBenchmark) -> None:
    """Make the benchmark: `shapes_classification/` and `shapes_retrieval/`.

    Classes are balanced, though the web's are not. Every retrieval image shows a scene of its own, and each
    of its two captions fits that scene alone: R@1 is well defined.

    Args:
        folder: Where both folders go. Created if missing.
        settings: Sizes and seed.

    Raises:
        ValueError: More retrieval examples than there are scenes.
    """
    if settings.retrieval_examples > SCENES:
        raise ValueError(
            f"retrieval_examples {settings.retrieval_examples} is above the {SCENES} scenes there are"
        )
    splits = {}
    for split, count in (
        ("train", TRAIN_EXAMPLES_PER_CLASS * len(CLASSES)),
        ("test", settings.classification_examples),
    ):
        rng = _rng(settings, split)
        label = np.arange(count) % len(CLASSES)
        scenes = Scenes.of(label, rng.integers(0, _SCENES_PER_CLASS, count))
        splits[split] = _encoded(_render(scenes, rng, settings), label.tolist())
    write_classification(folder / "shapes_classification", splits, CLASSES, PROMPTS)

    rng = _rng(settings, "retrieval")
    scenes = Scenes.of(*np.divmod(rng.permutation(SCENES)[: settings.retrieval_examples], _SCENES_PER_CLASS))
    images = _render(scenes, rng, settings)
    captions = ["\n".join(pair) for pair in describe_twice(scenes, rng)]
    write_retrieval(folder / "shapes_retrieval", _encoded(images, captions))


def _rng(settings: ShapesBenchmark, part: str) -> np.random.Generator:
    """Return the random stream of one part of the benchmark."""
    return np.random.Generator(np.random.PCG64([settings.seed, _BENCHMARK_STREAMS[part]]))


def _render(scenes: Scenes, rng: np.random.Generator, settings: ShapesBenchmark) -> Pixels:
    """Render clean images of scenes."""
    return render(scenes, Jitter.draw(rng, len(scenes)), settings.image_size)


def _encoded(images: Pixels, targets: list[int] | list[str]) -> Iterator[Target]:
    """Yield pictures as files of a test set."""
    for pixels, target in zip(images, targets, strict=True):
        yield encode_jpeg(pixels), "jpg", str(target)
