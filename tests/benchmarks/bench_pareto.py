"""The Pareto front of many points beside pymoo's, in one run: `bench_pareto.py --pymoo PYTHON`.

PYTHON is one that has pymoo, in an environment of its own: `uv venv peers && uv pip install --python
peers/bin/python pymoo`; without it jestlab's half is measured alone. Each runs in a process of its own, on
the same points, taking turns; medians. pymoo has two ways to the first front, and both are measured:
`find_non_dominated`, mostly the faster, and `NonDominatedSorting().do(only_non_dominated_front=True)`, which
ranks all points. Nothing here passes or fails: figures go into BENCHMARKS.md with their date.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jestlab.analysis import pareto

POINTS = 1_000_000
ROUNDS = 9
Points = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]

PEER = """
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


def uniform(rng: np.random.Generator) -> Points:
    """Anywhere in a square: few are on the front."""
    cost, score = rng.random((2, POINTS))
    return cost, score


def correlated(noise: float) -> Callable[[np.random.Generator], Points]:
    """What costs more scores more: the less noise, the more are on the front."""

    def make(rng: np.random.Generator) -> Points:
        cost, score = rng.random((2, POINTS))
        return cost, cost + noise * score

    return make


def decades(rng: np.random.Generator) -> Points:
    """Costs over six decades, like FLOPs."""
    cost, score = rng.random((2, POINTS))
    return 10 ** (15 + 6 * cost), cost + 0.02 * score


KINDS: dict[str, Callable[[np.random.Generator], Points]] = {
    "uniform": uniform,
    "anti-correlated, noise 0.02": correlated(0.02),
    "anti-correlated, noise 1e-6": correlated(1e-6),
    "anti-correlated, all on the front": correlated(0.0),
    "anti-correlated, costs over six decades": decades,
}


class Peer:
    """pymoo in its own environment, asked over a pipe."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version = self._line()

    def ask(self, way: str, path: Path) -> tuple[float, int]:
        """Seconds of a way to the front, and how many are on it."""
        assert self._process.stdin is not None
        print(way, path, file=self._process.stdin, flush=True)
        seconds, size = self._line().split()
        return float(seconds), int(size)

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the other Python has no pymoo, or failed: see above")
        return line.strip()


def measured(points: Points, peer: Peer | None, folder: Path) -> dict[str, Any]:
    """Median milliseconds by contender, and the size of the front, which all agree on."""
    cost, score = points
    path = folder / "points.npy"
    np.save(path, np.column_stack([cost, -score]))
    ways = ("find_non_dominated", "NonDominatedSorting") if peer else ()
    times: dict[str, list[float]] = {"jestlab": [], **{way: [] for way in ways}}
    sizes = set()
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        found = np.flatnonzero(pareto.front(cost, score))
        times["jestlab"].append(time.perf_counter() - start)
        sizes.add(len(found))
        for way in ways:
            assert peer is not None
            seconds, size = peer.ask(way, path)
            times[way].append(seconds)
            sizes.add(size)
    if len(sizes) > 1:
        raise SystemExit(f"fronts of {sizes} points: they differ")
    medians = {who: 1e3 * statistics.median(seconds[1:]) for who, seconds in times.items()}
    return {"front": sizes.pop(), "ms": medians}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--pymoo", metavar="PYTHON", help="a Python that has pymoo")
    arguments = parser.parse_args()
    python = arguments.pymoo
    peer = Peer(python) if python else None
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        results = {kind: measured(make(rng), peer, Path(folder)) for kind, make in KINDS.items()}
    version = f"pymoo {peer.version}" if peer else "pymoo not measured"
    if peer:
        peer.close()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, NumPy {np.__version__}, {version}"
    if arguments.json:
        print(json.dumps({"machine": machine, "points": POINTS, "results": results}, indent=2))
        return
    print(f"{machine}, {time.strftime('%Y-%m-%d')}; {POINTS:,} points, ms, medians of {ROUNDS}\n")
    print("| points | on the front | who | ms | of jestlab |\n|---|---|---|---|---|")
    for kind, found in results.items():
        for who, ms in found["ms"].items():
            print(f"| {kind} | {found['front']:,} | {who} | {ms:.1f} | {ms / found['ms']['jestlab']:.1f} |")


if __name__ == "__main__":
    main()
