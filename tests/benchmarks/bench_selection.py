"""Joint selection compared with the dense algorithm and with its physical limit.

    python tests/benchmarks/bench_selection.py [--largest 163840]
    python tests/benchmarks/bench_selection.py --alone B D NAME

All in one process, taking turns, medians, without what compiling takes:

* dense: `tests.models.support.dense`, Algorithm 1 with its matrix, summing over all pairs in each round, as
  printed;
* rows: the same matrix, but each round adds only the new chunk's rows and columns to running sums;
* jestlab: `selection.jax`, with no matrix;
* matmuls: the block products that `select` computes, each block summed by rows and nothing else: the limit.

Peak memory is that of processes that do one thing once, `--alone`.
"""

import functools
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.support import interleave, parse_options, print_table, seconds_of
from tests.models.support.dense import jointly_sample_batch

from jestlab.models.selection import Embeddings, select
from jestlab.models.selection.criteria import chunk_sizes
from jestlab.models.selection.scores import over_rows

FILTERING_RATIO, CHUNKS = 0.8, 16
SIZES = [(1_280, 64), (5_120, 64), (5_120, 768), (20_480, 64), (20_480, 768)]
PAPER = 163_840
ROUNDS = {1_280: 31, 5_120: 15, 20_480: 3, PAPER: 1}
Models = tuple[Embeddings, Embeddings]


def models(super_batch: int, width: int) -> Models:
    """Random learner and reference, their pairs somewhat alike."""

    def one(seed: int) -> Embeddings:
        rng = np.random.default_rng(seed)
        image = rng.standard_normal((super_batch, width), np.float32)
        text = 0.3 * image + 0.7 * rng.standard_normal((super_batch, width), np.float32)
        for z in (image, text):
            z /= np.linalg.norm(z, axis=1, keepdims=True)
        return Embeddings(jnp.asarray(image), jnp.asarray(text), jnp.float32(10.0), jnp.float32(-10.0))

    return one(1), one(2)


def sub_batch(super_batch: int) -> int:
    """b."""
    return round(super_batch * (1 - FILTERING_RATIO))


def jestlab(super_batch: int, loss: str = "sigmoid") -> Callable[..., object]:
    """Indices, without a matrix."""
    return lambda key, learner, reference: (
        select(key, learner, reference, batch_size=sub_batch(super_batch), loss=loss, chunks=CHUNKS).indices
    )


def dense(super_batch: int, loss: str = "sigmoid", running: bool = False) -> Callable[..., object]:
    """Algorithm 1 as it should have been printed; `running`: with running sums over rows and columns."""
    options: dict[str, Any] = {"batch_size": sub_batch(super_batch), "chunks": CHUNKS, "running": running}
    return jax.jit(functools.partial(jointly_sample_batch, loss=loss, **options))


def matmuls(super_batch: int) -> Callable[..., object]:
    """The products of all candidates with each chunk but the last, in the same blocks."""
    sizes = chunk_sizes(sub_batch(super_batch), CHUNKS)[:-1]

    @jax.jit
    def run(key: jax.Array, learner: Embeddings, reference: Embeddings) -> jax.Array:
        both = (learner, reference)

        def block(chunk: list[Embeddings], part: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
            total = jnp.zeros(part[0][0].shape[0])
            for (image, text), z in zip(part, chunk, strict=True):
                for x, y in ((image, z.text), (text, z.image)):
                    total = total + jnp.dot(x, y.T, precision="highest").sum(axis=1)
            return total

        def one_round(total: jax.Array, first: jax.Array) -> tuple[jax.Array, None]:
            chunk = [
                z._replace(
                    image=jax.lax.dynamic_slice_in_dim(z.image, first, sizes[0]),
                    text=jax.lax.dynamic_slice_in_dim(z.text, first, sizes[0]),
                )
                for z in both
            ]
            part = [(z.image, z.text) for z in both]
            return total + over_rows(functools.partial(block, chunk), part, sizes[0]), None

        start = jnp.arange(len(sizes)) * sizes[0]
        total: jax.Array = jax.lax.scan(one_round, jnp.zeros(super_batch), start)[0]
        return total

    return run


CONTENDERS: dict[str, Callable[[int], Callable[..., object]]] = {
    "dense": dense,
    "rows": functools.partial(dense, running=True),
    "jestlab": jestlab,
    "matmuls": matmuls,
    "dense, softmax": functools.partial(dense, loss="softmax"),
    "jestlab, softmax": functools.partial(jestlab, loss="softmax"),
}


def temporaries(function: Callable[..., object], found: Models) -> float:
    """MB of temporary arrays, by XLA's own account."""
    analysis = jax.jit(function).lower(jax.random.key(0), *found).compile().memory_analysis()
    return float(analysis.temp_size_in_bytes) / 1e6 if analysis else float("nan")


def measured(super_batch: int, width: int, names: list[str]) -> dict[str, dict[str, float]]:
    """Median seconds and MB of temporaries by contender, taking turns."""
    found = models(super_batch, width)
    functions = {name: CONTENDERS[name](super_batch) for name in names}

    def seconds(function: Callable[..., object]) -> float:
        return seconds_of(lambda: jax.block_until_ready(function(jax.random.key(0), *found)))

    calls = {name: functools.partial(seconds, function) for name, function in functions.items()}
    return {
        name: {"seconds": statistics.median(times), "temporaries_mb": temporaries(functions[name], found)}
        for name, times in interleave(calls, ROUNDS[super_batch]).items()
    }


def peak_mb() -> float:
    """This process's peak of resident memory, so far. (`ru_maxrss` would be that of who started it, too.)"""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def alone(super_batch: int, width: int, name: str) -> dict[str, float]:
    """One call, compiling included, in a process of its own."""
    command = [sys.executable, __file__, "--alone", str(super_batch), str(width), name]
    found: dict[str, float] = json.loads(subprocess.check_output(command))
    return found


def once(super_batch: int, width: int, name: str) -> dict[str, float]:
    """What `alone` measures."""
    found = models(super_batch, width)
    jax.block_until_ready(found)
    before = peak_mb()
    function = CONTENDERS[name](super_batch)
    seconds = seconds_of(lambda: jax.block_until_ready(function(jax.random.key(0), *found)))
    return {"seconds": seconds, "peak_mb": peak_mb(), "before_mb": before}


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(once(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
        return
    largest = parse_options(__doc__, largest=PAPER).largest
    results: dict[str, dict[str, dict[str, float]]] = {}
    is_cpu = jax.default_backend() == "cpu"
    sizes = SIZES if is_cpu else [*SIZES, (PAPER, 64), (PAPER, 768)]
    for super_batch, width in (size for size in sizes if size[0] <= largest):
        names = [name for name in CONTENDERS if "softmax" not in name or super_batch < 20_480]
        if super_batch == PAPER:
            names = ["jestlab", "matmuls"]
        found = measured(super_batch, width, names)
        if super_batch >= 20_480 and is_cpu:
            for name in ("dense", "jestlab"):
                found[name] |= {k: v for k, v in alone(super_batch, width, name).items() if k != "seconds"}
        results[f"{super_batch}/{width}"] = found
    if is_cpu and largest >= PAPER:
        results[f"{PAPER}/64"] = {"jestlab": alone(PAPER, 64, "jestlab")}
    columns = ["B/D", "who", "seconds", "of jestlab", "of matmuls", "temporaries, MB", "peak, MB (before)"]
    rows = [(size, *_cells(name, found)) for size, found in results.items() for name in found]
    about = f"{jax.devices()[0].device_kind}; f = {FILTERING_RATIO}, N = {CHUNKS}"
    print_table(about, columns, rows)


def _cells(name: str, found: dict[str, dict[str, float]]) -> list[str]:
    """The table's cells about one of the contenders at a size."""
    figures = found[name]
    ours = found["jestlab, softmax" if "softmax" in name else "jestlab"]["seconds"]
    limit = found["matmuls"]["seconds"] if "matmuls" in found else float("nan")
    peak = f"{figures['peak_mb']:,.0f} ({figures['before_mb']:,.0f})" if "peak_mb" in figures else ""
    return [
        name,
        f"{figures['seconds']:.4g}",
        f"{figures['seconds'] / ours:.2f}",
        f"{figures['seconds'] / limit:.2f}",
        f"{figures.get('temporaries_mb', float('nan')):,.3g}",
        peak,
    ]


if __name__ == "__main__":
    main()
