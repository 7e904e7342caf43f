"""Speed of the training data: `python tests/benchmarks/bench_data.py --json`.

Side by side with webdataset, with the same decoder, tokenizer and batches: in one process, in rounds that
take turns, so that whatever else the machine does meets both. CPU time is of all threads and processes of a
round, which other work on the machine changes less than speed. Nothing here passes or fails: figures go into
BENCHMARKS.md with their device and date.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import io
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jestlab.models.config import ShapesWeb
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.images import decode
from jestlab.models.data.pipeline import training_batches
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tars import TarWriter
from jestlab.models.data.tokenizer import Tokenizer, ensure_tokenizer

SIDE, SIZE, LENGTH, BATCH, THREADS = 256, 64, 16, 256, 2
EXAMPLES, SHARDS = 4_096, 4
BATCHES, ROUNDS = 32, 7


@dataclass(frozen=True)
class Figure:
    """One measured figure: the median of its rounds."""

    name: str
    value: float
    unit: str
    goal: str
    rounds: list[float]


def figure(name: str, unit: str, goal: str, rounds: list[float]) -> Figure:
    """A figure of its rounds."""
    return Figure(name, statistics.median(rounds), unit, goal, rounds)


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


def rate(batches: Iterator[Any]) -> float:
    """Examples a second, after a first batch that is not counted."""
    next(batches)
    start = time.perf_counter()
    for _ in range(BATCHES):
        next(batches)
    return BATCHES * BATCH / (time.perf_counter() - start)


def cpu_seconds() -> float:
    """CPU time of this process and of all its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def ours(folder: Path, tokenizer: Tokenizer) -> float:
    """Our pipeline with two threads."""
    return rate(
        training_batches(
            folder,
            filter=None,
            tokenizer=tokenizer,
            image_size=SIZE,
            text_length=LENGTH,
            batch_size=BATCH,
            seed=0,
            threads=THREADS,
        )
    )


def webdatasets(folder: Path, tokenizer: Tokenizer) -> float:
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
    return rate(iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=THREADS)))


def compared(folder: Path) -> Iterator[Figure]:
    """Both pipelines, in turns."""
    photographs = make_photographs(folder / "photographs")
    tokenizer = ensure_tokenizer(photographs, 64)
    peers: dict[str, Callable[[Path, Tokenizer], float]] = {"jestlab, 2 threads": ours}
    if importlib.util.find_spec("webdataset") and importlib.util.find_spec("torch"):
        peers["webdataset, 2 workers, same decoder"] = webdatasets
    else:
        print("webdataset or torch is not installed: pip install both to compare", file=sys.stderr)
    rounds: dict[str, list[float]] = {name: [] for name in peers}
    costs: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(ROUNDS):
        for name, measure in peers.items():
            before = cpu_seconds()
            rounds[name].append(measure(photographs, tokenizer))
            gc.collect()  # ends the loader's threads and processes
            costs[name].append(1e6 * (cpu_seconds() - before) / ((BATCHES + 1) * BATCH))
    for name in peers:
        yield figure(f"{SIDE} px JPEG to {SIZE} px, {name}", "examples/s", "", rounds[name])
        yield figure("its CPU time", "µs/example", "", costs[name])
    if len(rounds) == 2:
        ratios = [mine / other for mine, other in zip(*rounds.values(), strict=True)]
        yield figure("the first over the second", "×", "≥ 1.3", ratios)
        ratios = [other / mine for mine, other in zip(*costs.values(), strict=True)]
        yield figure("CPU time of the second over the first", "×", "≥ 1.3", ratios)


def small(folder: Path) -> Iterator[Figure]:
    """What the quickstart trains on: super-batches of 320 at 16 px, one thread."""
    web = ensure_web(ShapesWeb(examples=8_192), 0, folder)
    batches = training_batches(
        web,
        filter=None,
        tokenizer=ensure_tokenizer(web, 256),
        image_size=16,
        text_length=12,
        batch_size=320,
        seed=0,
    )
    rates = []
    next(batches)
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(40):
            next(batches)
        rates.append(40 * 320 / (time.perf_counter() - start))
    yield figure("the quickstart's batches, 1 thread", "examples/s", "≥ 8,000", rates)


def indexed(folder: Path) -> Iterator[Figure]:
    """An index of a million examples, built and loaded."""
    examples, shards = 1_000_000, 100
    big = folder / "big"
    big.mkdir()
    first = big / "00000.tar"
    with TarWriter(first) as tar:
        for i in range(examples // shards):
            tar.add(f"{i:09d}.jpg", b"jpeg")
            tar.add(f"{i:09d}.txt", b"caption")
            tar.add(f"{i:09d}.json", b"{}")
    for shard in range(1, shards):
        os.link(first, big / f"{shard:05d}.tar")
    start = time.perf_counter()
    ShardIndex.load(big)
    yield figure("index built", "examples/s", "", [examples / (time.perf_counter() - start)])
    loads = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        ShardIndex.load(big)
        loads.append(1e3 * (time.perf_counter() - start))
    yield figure(f"index of {examples:,} examples in {shards} tars loaded", "ms", "", loads)


def main() -> None:
    """Measure all and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = [*compared(folder), *small(folder), *indexed(folder)]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    load = f"load {os.getloadavg()[0]:.1f}"
    if as_json:
        report = {"machine": machine, "load": load, "figures": [asdict(figure) for figure in figures]}
        print(json.dumps(report, indent=2))
        return
    print(f"{machine}, {load}, {time.strftime('%Y-%m-%d')}; medians\n")
    print("| what | seen | goal | from | to |\n|---|---|---|---|---|")
    for f in figures:
        print(
            f"| {f.name} | {f.value:,.3g} {f.unit} | {f.goal} | {min(f.rounds):,.3g} | {max(f.rounds):,.3g} |"
        )


if __name__ == "__main__":
    main()
