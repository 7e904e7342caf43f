"""Clean held-out images of the synthetic world, as CLIP_benchmark's webdataset folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jestlab.models.config import ShapesBenchmark
from jestlab.models.data.shapes.captions import describe_twice
from jestlab.models.data.shapes.render import Jitter, Pixels, render
from jestlab.models.data.shapes.web import encode_jpeg
from jestlab.models.data.shapes.world import CLASSES, SCENES, Scenes
from jestlab.models.data.tars import TarWriter

TRAIN_EXAMPLES_PER_CLASS = 16
"""Of the classification dataset's train split, from which few-shot probes draw."""

TEMPLATES = ("a {c}", "{c}", "photo of a {c}", "a {c} on a background")

_STREAMS = {"train": 0, "test": 1, "retrieval": 2}
_RESTS = SCENES // len(CLASSES)


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
    classification = folder / "shapes_classification"
    for split, count in (
        ("train", TRAIN_EXAMPLES_PER_CLASS * len(CLASSES)),
        ("test", settings.classification_examples),
    ):
        rng = _rng(settings, split)
        label = np.arange(count) % len(CLASSES)
        scenes = Scenes.of(label, rng.integers(0, _RESTS, count))
        _write_split(classification / split, _render(scenes, rng, settings), "cls", label.tolist())
    (classification / "classnames.txt").write_text("\n".join(CLASSES) + "\n")
    (classification / "zeroshot_classification_templates.txt").write_text("\n".join(TEMPLATES) + "\n")

    retrieval = folder / "shapes_retrieval"
    rng = _rng(settings, "retrieval")
    scenes = Scenes.of(*np.divmod(rng.permutation(SCENES)[: settings.retrieval_examples], _RESTS))
    images = _render(scenes, rng, settings)
    captions = ["\n".join(pair) for pair in describe_twice(scenes, rng)]
    _write_split(retrieval / "test", images, "txt", captions)
    (retrieval / "dataset_type.txt").write_text("retrieval\n")


def _rng(settings: ShapesBenchmark, part: str) -> np.random.Generator:
    """The random stream of one part."""
    return np.random.Generator(np.random.PCG64([settings.seed, _STREAMS[part]]))


def _render(scenes: Scenes, rng: np.random.Generator, settings: ShapesBenchmark) -> Pixels:
    """Clean images of scenes."""
    return render(scenes, Jitter.draw(rng, len(scenes)), settings.image_size)


def _write_split(folder: Path, images: Pixels, extension: str, targets: list[int] | list[str]) -> None:
    """`0.tar` and `nshards.txt` of one split, keys as CLIP_benchmark's exporter writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    with TarWriter(folder / "0.tar") as tar:
        for i, (pixels, target) in enumerate(zip(images, targets, strict=True)):
            tar.add(f"s{i:07d}.{extension}", str(target).encode())
            tar.add(f"s{i:07d}.jpg", encode_jpeg(pixels))
    (folder / "nshards.txt").write_text("1\n")
