"""Speed of the training data compared with webdataset's.

python tests/benchmarks/bench_data.py [--rounds 7] [--batches 32] [--index 1000000]

Both have the same decoder, tokenizer, and batches, and take turns in one process. CPU time is that of all
threads and processes of a round, which other work on the machine changes less than speed.
"""

import gc
import importlib.util
import io
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.support import parse_options, print_table, seconds_of

from jestlab.models.config import Data, DataConfig, ShapesWeb, TextTower, TwoTowers, VisionTower
from jestlab.models.config.base import LoaderRuntime
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.images import decode
from jestlab.models.data.pipeline import training_batches
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tars import TarWriter
from jestlab.models.data.tokenizer import Tokenizer, ensure_tokenizer

SIDE, SIZE, LENGTH, BATCH, THREADS = 256, 64, 16, 256, 2
EXAMPLES, SHARDS = 4_096, 4
TARS = 100
"""Of the large index."""

Row = tuple[str, str, str, str, str]


def row(name: str, unit: str, goal: str, figures: list[float]) -> Row:
    """A row of the table: the median of a figure's rounds, and their range."""
    low, high = min(figures), max(figures)
    return name, f"{statistics.median(figures):,.3g} {unit}", goal, f"{low:,.3g}", f"{high:,.3g}"


def make_photographs(folder: Path) -> Path:
    """Shards of JPEGs as hard to decode as photographs: noise at all scales, about 19 kB a picture."""
    rng = np.random.default_rng(0)
    pictures = []
    for _ in range(64):
        pixels = np.zeros((SIDE, SIDE, 3))
        for scale in (4, 8, 16, 32, 64, 128, 256):
            layer = Image.fromarray(rng.integers(0, 256, (scale, scale, 3), np.uint8))
            pixels += (
                (np.asarray(layer.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) - 128.0) * 3 / scale**0.8
            )
        file = io.BytesIO()
        Image.fromarray((128 + pixels).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        pictures.append(file.getvalue())
    folder.mkdir()
    for shard in range(SHARDS):
        with TarWriter(folder / f"{shard:05d}.tar") as tar:
            for i in range(EXAMPLES // SHARDS):
                tar.add(f"{shard:05d}{i:04d}.jpg", pictures[i % len(pictures)])
                tar.add(f"{shard:05d}{i:04d}.txt", b"a photograph of thing number %d" % i)
    return folder


def rate(batches: Iterator[Any], count: int, size: int) -> float:
    """Examples a second of so many batches, after a first one that isn't counted."""
    next(batches)
    return count * size / seconds_of(lambda: [next(batches) for _ in range(count)])


def cpu_seconds() -> float:
    """CPU time of this process and of all its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def ours(
    folder: Path,
    tokenizer: Tokenizer,
    size: int = SIZE,
    length: int = LENGTH,
    batch_size: int = BATCH,
    threads: int = THREADS,
) -> Iterator[Any]:
    """Our pipeline, by default with two threads."""
    yield from training_batches(
        folder,
        Data(),
        TwoTowers(vision=VisionTower(image_size=size), text=TextTower(length=length)),
        LoaderRuntime(loader_threads=threads),
        tokenizer=tokenizer,
        batch_size=batch_size,
        seed=0,
    )


def webdatasets(folder: Path, tokenizer: Tokenizer) -> Iterator[Any]:
    """webdataset with two worker processes, which shuffle within 1,000 examples."""
    import webdataset

    def collate(pairs: list[tuple[bytes, bytes]]) -> dict[str, Any]:
        return {
            "image": np.stack([decode(image, SIZE) for image, _ in pairs]),
            "text": tokenizer([caption.decode() for _, caption in pairs], LENGTH),
        }

    tars = [str(path) for path in sorted(folder.glob("*.tar"))]
    dataset = (
        webdataset.WebDataset(tars, shardshuffle=SHARDS, empty_check=False)
        .repeat()
        .shuffle(1000)
        .to_tuple("jpg", "txt")
        .batched(BATCH, collation_fn=collate)
    )
    yield from webdataset.WebLoader(dataset, batch_size=None, num_workers=THREADS)


def compared(folder: Path, rounds: int, batches: int) -> Iterator[Row]:
    """Both pipelines, in turns."""
    photographs = make_photographs(folder / "photographs")
    tokenizer = ensure_tokenizer(photographs, 64)
    peers: dict[str, Callable[[Path, Tokenizer], Iterator[Any]]] = {"jestlab, 2 threads": ours}
    if importlib.util.find_spec("webdataset") and importlib.util.find_spec("torch"):
        peers["webdataset, 2 workers, same decoder"] = webdatasets
    else:
        print("webdataset or torch is not installed: pip install both to compare", file=sys.stderr)
    rates: dict[str, list[float]] = {name: [] for name in peers}
    costs: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, pipeline in peers.items():
            before = cpu_seconds()
            rates[name].append(rate(pipeline(photographs, tokenizer), batches, BATCH))
            gc.collect()  # ends the loader's threads and processes
            costs[name].append(1e6 * (cpu_seconds() - before) / ((batches + 1) * BATCH))
    for name in peers:
        yield row(f"{SIDE} px JPEG to {SIZE} px, {name}", "examples/s", "", rates[name])
        yield row("its CPU time", "µs/example", "", costs[name])
    if len(peers) == 2:
        ratios = [mine / other for mine, other in zip(*rates.values(), strict=True)]
        yield row("the first over the second", "×", "≥ 1.3", ratios)
        ratios = [other / mine for mine, other in zip(*costs.values(), strict=True)]
        yield row("CPU time of the second over the first", "×", "≥ 1.3", ratios)


def small(folder: Path, rounds: int) -> Row:
    """What the quickstart trains on: super-batches of 320 at 16 px, one thread."""
    web = ensure_web(DataConfig(data=Data(train=ShapesWeb(examples=8_192))), folder)
    batches = ours(web, ensure_tokenizer(web, 256), size=16, length=12, batch_size=320, threads=1)
    rates = [rate(batches, 40, 320) for _ in range(rounds)]
    return row("the quickstart's batches, 1 thread", "examples/s", "≥ 8,000", rates)


def indexed(folder: Path, rounds: int, examples: int) -> list[Row]:
    """A large index, built and loaded."""
    first = folder / "00000.tar"
    folder.mkdir()
    with TarWriter(first) as tar:
        for i in range(examples // TARS):
            tar.add(f"{i:09d}.jpg", b"jpeg")
            tar.add(f"{i:09d}.txt", b"caption")
            tar.add(f"{i:09d}.json", b"{}")
    for number in range(1, TARS):
        os.link(first, folder / f"{number:05d}.tar")
    load = partial(ShardIndex.load, folder)
    built = examples / seconds_of(load)
    loads = [1e3 * seconds_of(load) for _ in range(rounds)]
    name = f"index of {examples:,} examples in {TARS} tars"
    return [row(f"{name} built", "examples/s", "", [built]), row("the same index loaded", "ms", "", loads)]


def main() -> None:
    """Measure and print."""
    options = parse_options(__doc__, rounds=7, batches=32, index=1_000_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*compared(folder, options.rounds, options.batches), small(folder, options.rounds)]
        rows += indexed(folder / "large", options.rounds, options.index)
    print_table("medians", ("what", "seen", "goal", "from", "to"), rows)


if __name__ == "__main__":
    main()
