"""The synthetic web and its benchmark on disk, in the formats of img2dataset and CLIP_benchmark.

The metadata scores are measurements with errors: a filter on them removes most of the noise, not all of it,
and loses some clean pairs. Near-duplicates are true pairs and pass every filter on quality. They lack
diversity, which `uniqueness` measures as a deduplication pass would.
"""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jestlab.models.config import NoiseRates, ShapesBenchmark, ShapesWeb
from jestlab.models.config.data import SYNTHETIC_CAPTION
from jestlab.models.data.packing import write_classification, write_retrieval, write_tar
from jestlab.models.data.world import (
    ATTRIBUTES,
    CLASSES,
    SCENES,
    SCENES_PER_CLASS,
    Floats,
    Ints,
    Pixels,
    attributes,
    combine_jitter,
    describe,
    describe_twice,
    draw_jitter,
    draw_scenes,
    generator,
    render,
)

NOISE_KINDS = ("clean", *NoiseRates.model_fields)
"""Values of the metadata column `noise`."""

# Scores of clean pairs, as mean, standard deviation, limits, and decimals: CLIP similarity, LAION aesthetic,
# quality of the text, and 1 − cosine to the nearest other image, as deduplication measures it, scaled to 0…1.
_SCORES = {
    "similarity": (0.32, 0.035, -1.0, 1.0, 4),
    "aesthetic": (5.6, 0.60, 1.0, 10.0, 3),
    "text_quality": (0.78, 0.12, 0.0, 1.0, 3),
    "uniqueness": (0.80, 0.10, 0.0, 1.0, 3),
}
# Mean and standard deviation of the scores that noise changes.
_NOISY_SCORES: dict[str, dict[str, tuple[float, float]]] = {
    "clean": {},
    "mismatched": {"similarity": (0.15, 0.035)},
    "alt_text": {"similarity": (0.17, 0.040), "aesthetic": (5.4, 0.70), "text_quality": (0.22, 0.12)},
    "noise_image": {"similarity": (0.14, 0.040), "aesthetic": (3.1, 0.60)},
    "blank": {"similarity": (0.15, 0.040), "aesthetic": (3.0, 0.60)},
    "vague": {"similarity": (0.23, 0.040), "aesthetic": (5.5, 0.60), "text_quality": (0.35, 0.12)},
    "near_duplicate": {"uniqueness": (0.15, 0.10)},
}
_SIMILARITY_OF_AGREEMENT = 0.10  # added for a mismatched caption that agrees in every attribute

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


def _draw_kinds(rates: NoiseRates, count: int, rng: np.random.Generator) -> Ints:
    """Draw the kind of noise of each of n pairs, int64[n], numbers into `NOISE_KINDS`."""
    shares = np.array([getattr(rates, kind) for kind in NOISE_KINDS[1:]])
    edges = np.cumsum([max(0.0, 1.0 - shares.sum()), *shares])
    return np.minimum(np.searchsorted(edges, rng.random(count), side="right"), len(NOISE_KINDS) - 1)


def other_scenes(scenes: Ints, rng: np.random.Generator) -> Ints:
    """Draw a scene of another class for each scene: the one that a mismatched caption describes."""
    others = draw_scenes(rng, len(scenes))
    label = others // SCENES_PER_CLASS
    while (same := label == scenes // SCENES_PER_CLASS).any():
        label = np.where(same, draw_scenes(rng, len(scenes)) // SCENES_PER_CLASS, label)
    return label * SCENES_PER_CLASS + others % SCENES_PER_CLASS


def _alt_texts(count: int, rng: np.random.Generator) -> list[str]:
    """Write n captions as a content management system would."""
    kinds = rng.integers(0, len(_ALT_TEXTS), count)
    numbers = rng.integers(0, (9999, 20, 900, 600), (count, 4))
    return [_ALT_TEXTS[kind].format(*row) for kind, row in zip(kinds, numbers.tolist(), strict=True)]


def _vague_texts(count: int, rng: np.random.Generator) -> list[str]:
    """Write n captions that fit any image."""
    return [_VAGUE[i] for i in rng.integers(0, len(_VAGUE), count)]


def measure(kinds: Ints, agreement: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """Measure the metadata scores of n pairs.

    Args:
        kinds: int64[n], into `NOISE_KINDS`.
        agreement: float64[n], share of a mismatched caption's attributes that are true of the image.

    Returns:
        `similarity` (as CLIP's cosine, about 0.1 to 0.4), `aesthetic` (as LAION's predictor, about 2 to 7.5),
        `text_quality`, `uniqueness`, and `punsafe` (0 to 1): rounded, float64[n] each.
    """
    errors = rng.standard_normal((len(kinds), len(_SCORES)))
    mismatched = kinds == NOISE_KINDS.index("mismatched")
    scores = {}
    for column, (name, (*clean, low, high, decimals)) in enumerate(_SCORES.items()):
        known = np.array([_NOISY_SCORES[kind].get(name, clean) for kind in NOISE_KINDS])
        score = known[kinds, 0] + known[kinds, 1] * errors[:, column]
        if name == "similarity":
            score = score + np.where(mismatched, _SIMILARITY_OF_AGREEMENT * agreement, 0.0)
        scores[name] = np.clip(score, low, high).round(decimals)
    return scores | {"punsafe": (rng.random(len(kinds)) * 0.1).round(4)}


def make_web(
    folder: Path, settings: ShapesWeb, seed: int, progress: Callable[[int], object] = lambda made: None
) -> None:
    """Make the synthetic web.

    Each shard is drawn from a separate random stream, so shards do not depend on each other. The same
    settings and seed give the same bytes (with the same versions of NumPy, Pillow, and PyArrow).

    Args:
        folder: Destination of the shards: `00000.tar` with `.jpg`, `.txt`, and `.json` members,
            `00000.parquet` with the metadata. Created if missing.
        settings: Settings of the web, except their `seed`.
        progress: Called with the number of examples just made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for shard, start in enumerate(range(0, settings.examples, settings.shard_size)):
        count = min(settings.shard_size, settings.examples - start)
        _write_shard(folder / f"{shard:05d}", settings, *_draw_pairs(settings, seed, shard, count))
        progress(count)


def _draw_pairs(settings: ShapesWeb, seed: int, shard: int, count: int) -> tuple[Pixels, dict[str, Any]]:
    """Draw the images, captions, and metadata columns of a shard's pairs."""
    of_web, rng, captioner = generator(seed, 0), generator(seed, 1, shard), generator(seed, 2, shard)
    templates = draw_scenes(of_web, settings.duplicate_templates)
    poses = draw_jitter(of_web, settings.duplicate_templates)
    size = settings.image_size
    kinds = _draw_kinds(settings.noise, count, rng)
    is_kind = {kind: kinds == number for number, kind in enumerate(NOISE_KINDS)}
    counts = {kind: int(where.sum()) for kind, where in is_kind.items()}

    template = rng.integers(0, len(templates), count)
    scenes = np.where(is_kind["near_duplicate"], templates[template], draw_scenes(rng, count))
    jitter = draw_jitter(rng, count)
    hardly = combine_jitter(poses[template], draw_jitter(rng, count, scale=0.1))
    images = render(scenes, np.where(is_kind["near_duplicate"][:, None], hardly, jitter), size)
    for kind, side in (("noise_image", size), ("blank", 1)):
        images[is_kind[kind]] = rng.integers(0, 256, (counts[kind], side, side, 3), np.uint8)

    described = np.where(is_kind["mismatched"], other_scenes(scenes, rng), scenes)
    captions = np.array(describe(described, rng), object)
    captions[is_kind["alt_text"]] = _alt_texts(counts["alt_text"], rng)
    captions[is_kind["vague"]] = _vague_texts(counts["vague"], rng)
    # A captioning model would mention every attribute, and write something vague about other images.
    synthetic = np.array(describe(scenes, captioner, complete=True), object)
    without_scene = is_kind["noise_image"] | is_kind["blank"]
    synthetic[without_scene] = _vague_texts(int(without_scene.sum()), captioner)

    shown, written = attributes(scenes), attributes(described)
    agreement: Floats = np.mean([shown[name] == written[name] for name in ATTRIBUTES], axis=0)
    return images, {
        "caption": captions,
        **{name: score.tolist() for name, score in measure(kinds, agreement, rng).items()},
        SYNTHETIC_CAPTION: synthetic,
        "noise": [NOISE_KINDS[kind] for kind in kinds],
        "label": [CLASSES[label] for label in scenes // SCENES_PER_CLASS],
        **{
            name: [ATTRIBUTES[name][number] for number in shown[name]]
            for name in ("size", "position", "background")
        },
    }


def _write_shard(path: Path, settings: ShapesWeb, images: Pixels, columns: dict[str, Any]) -> None:
    """Write a tar and its parquet; `path` has no suffix."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, digits = len(images), max(4, len(str(settings.shard_size - 1)))
    keys = [f"{path.name}{i:0{digits}d}" for i in range(count)]
    jpegs = [encode_jpeg(pixels) for pixels in images]
    sides = ("width", "height", "original_width", "original_height")
    table: dict[str, Any] = {
        "url": [f"https://shapes.example/{key}.jpg" for key in keys],
        "caption": columns["caption"],
        "key": keys,
        "status": ["success"] * count,
        "error_message": [None] * count,
        **dict.fromkeys(sides, [settings.image_size] * count),
        "sha256": [hashlib.sha256(jpeg).hexdigest() for jpeg in jpegs],
        **columns,
    }
    rows = (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
    write_tar(path.with_suffix(".tar"), zip((("jpg", jpeg) for jpeg in jpegs), rows, strict=True))
    table["error_message"] = pa.nulls(count, pa.string())
    pq.write_table(pa.table(table), path.with_suffix(".parquet"))


def encode_jpeg(pixels: Pixels) -> bytes:
    """Encode a JPEG, quality 95, without color subsampling: it would smear small shapes."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


_TRAIN_EXAMPLES_PER_CLASS = 16  # of the classification dataset, for few-shot probes
_PROMPTS = ("a {c}", "{c}", "photo of a {c}", "a {c} on a background")


def make_benchmark(folder: Path, settings: ShapesBenchmark) -> None:
    """Make the benchmark: `shapes_classification/` and `shapes_retrieval/`.

    Classes are balanced, unlike those of the web. Every retrieval image shows a different scene, and its two
    captions fit only that scene: R@1 is well defined.

    Raises:
        ValueError: More retrieval examples than there are scenes.
    """
    if settings.retrieval_examples > SCENES:
        raise ValueError(f"retrieval_examples {settings.retrieval_examples} is above the {SCENES} scenes")

    def jpegs(scenes: Ints, rng: np.random.Generator) -> list[bytes]:
        images = render(scenes, draw_jitter(rng, len(scenes)), settings.image_size)
        return [encode_jpeg(pixels) for pixels in images]

    sizes = {
        "train": _TRAIN_EXAMPLES_PER_CLASS * len(CLASSES),
        "test": settings.classification_examples,
    }
    splits = {}
    for stream, (split, count) in enumerate(sizes.items()):
        rng, labels = generator(settings.seed, stream), np.arange(count) % len(CLASSES)
        scenes = labels * SCENES_PER_CLASS + rng.integers(0, SCENES_PER_CLASS, count)
        splits[split] = [
            (jpeg, "jpg", str(label)) for jpeg, label in zip(jpegs(scenes, rng), labels, strict=True)
        ]
    write_classification(folder / "shapes_classification", splits, CLASSES, _PROMPTS)

    rng = generator(settings.seed, 2)
    scenes = rng.permutation(SCENES)[: settings.retrieval_examples]
    pairs = zip(jpegs(scenes, rng), describe_twice(scenes, rng), strict=True)
    write_retrieval(folder / "shapes_retrieval", [(jpeg, "jpg", "\n".join(both)) for jpeg, both in pairs])
