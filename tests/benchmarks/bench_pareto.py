"""The Pareto front of many points compared with pymoo's.

python tests/benchmarks/bench_pareto.py --pymoo PYTHON [--points 1000000] [--rounds 9]

PYTHON has pymoo, in an environment of its own: `uv venv peers && uv pip install --python peers/bin/python
pymoo`. Without it, only jestlab is measured. Each runs in a process of its own on the same points, taking
turns. pymoo has two ways to the first front, and both are measured: `find_non_dominated`, mostly the faster,
and `NonDominatedSorting().do(only_non_dominated_front=True)`, which ranks all points.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.support import Peer, interleave, parse_options, print_table, seconds_of

from jestlab.analysis import pareto

Array = npt.NDArray[np.float64]
WAYS = ("find_non_dominated", "NonDominatedSorting")
PYMOO = """
import sys, time, numpy as np
from importlib.metadata import version
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting, find_non_dominated
ways = {
    "find_non_dominated": find_non_dominated,
    "NonDominatedSorting": lambda f: NonDominatedSorting().do(f, only_non_dominated_front=True),
}
print(version("pymoo"), flush=True)
for line in sys.stdin:
    way, path = line.split()
    objectives = np.load(path)
    start = time.perf_counter()
    found = ways[way](objectives)
    print(time.perf_counter() - start, len(found), flush=True)
"""
"""Answers a line "way file" with its seconds and the size of the front."""

KINDS: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "uniform": lambda cost, score: (cost, score),
    "anti-correlated, noise 0.02": lambda cost, score: (cost, cost + 0.02 * score),
    "anti-correlated, noise 1e-6": lambda cost, score: (cost, cost + 1e-6 * score),
    "all on the front": lambda cost, score: (cost, cost),
    "costs over six decades": lambda cost, score: (10 ** (15 + 6 * cost), cost + 0.02 * score),
}
"""Cost and score of points, made of two independent uniform numbers each."""


def measured(cost: Array, score: Array, peer: Peer | None, rounds: int) -> tuple[int, dict[str, float]]:
    """The size of the front, on which all agree, and the median ms of each way."""
    sizes = set[int]()

    def ours() -> float:
        return seconds_of(lambda: sizes.add(len(np.flatnonzero(pareto.front(cost, score)))))

    def theirs(way: str) -> float:
        assert peer is not None
        seconds, size = peer.ask(f"{way} {path}").split()
        sizes.add(int(size))
        return float(seconds)

    measures = {"jestlab": ours}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        if peer:
            np.save(path, np.column_stack([cost, -score]))
            measures |= {way: partial(theirs, way) for way in WAYS}
        times = interleave(measures, rounds)
    if len(sizes) > 1:
        raise SystemExit(f"fronts of {sizes} points: they differ")
    return sizes.pop(), {way: 1e3 * statistics.median(seconds) for way, seconds in times.items()}


def main() -> None:
    """Measure and print."""
    options = parse_options(__doc__, peers=["pymoo"], points=1_000_000, rounds=9)
    peer = Peer([options.pymoo, "-c", PYMOO]) if options.pymoo else None
    rng, rows = np.random.default_rng(0), []
    for kind, make in KINDS.items():
        size, ms = measured(*make(*rng.random((2, options.points))), peer, options.rounds)
        rows.append((kind, f"{size:,}", *(f"{value:.1f}" for value in ms.values())))
    about = f"NumPy {np.__version__}; {options.points:,} points, ms, medians of {options.rounds}"
    columns = ["points", "on the front", "jestlab"]
    if peer:
        columns += [f"pymoo {peer.greeting} `{way}`" for way in WAYS]
        peer.close()
    print_table(about, columns, rows)


if __name__ == "__main__":
    main()
