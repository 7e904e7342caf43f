"""Speeds that users feel, measured: `make bench`, or `python tests/benchmarks/bench.py --json`.

Each figure is the median of several runs, whole processes where a command is timed. Nothing here passes or
fails: figures go into BENCHMARKS.md with their device and date.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

BIN = Path(sys.executable).parent

GRID = """
runs:
  reference: {data.filter: similarity > 0.25}
  uniform: {}
  joint: {selection.rule: joint, selection.reference: reference}
axes:
  - runs: [joint]
    grid:
      selection.filtering_ratio: [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
      selection.chunks: [1, 2, 4, 8, 16]
      selection.gain: [1, 10, 100, 1000]
      optimizer.learning_rate: [5e-4, 1e-3, 2e-3, 4e-3]
seeds: 4
"""


@dataclass(frozen=True)
class Figure:
    """One measured figure."""

    name: str
    value: float
    unit: str
    goal: str
    runs: int


def median_seconds(function: Callable[[], object], runs: int) -> float:
    """Median wall time of a call, after one that is not counted."""
    function()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def commands(folder: Path) -> Iterator[Figure]:
    """Commands as whole processes."""
    (folder / "grid.yaml").write_text(GRID)

    def call(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run(
            [BIN / "jestlab", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )

    yield Figure("jestlab --help", median_seconds(call("--help"), 9), "s", "< 0.2", 9)
    runs = json.loads(subprocess.check_output([BIN / "jestlab", "plan", "grid.yaml", "--json"], cwd=folder))
    name = f"jestlab plan of {len(runs['runs'])} runs, no store"
    yield Figure(name, median_seconds(call("plan", "grid.yaml"), 5), "s", "< 2", 5)


def data(folder: Path) -> Iterator[Figure]:
    """The synthetic web and the training pipeline, super-batches of 320 at 16 px."""
    from jestlab.models.config import ShapesWeb
    from jestlab.models.data.datasets import ensure_web
    from jestlab.models.data.pipeline import training_batches
    from jestlab.models.data.tokenizer import ensure_tokenizer

    settings = ShapesWeb(examples=8_192)
    start = time.perf_counter()
    web = ensure_web(settings, 0, folder)
    yield Figure("synthetic web made", 8_192 / (time.perf_counter() - start), "examples/s", "", 1)
    batches = training_batches(
        web,
        filter=None,
        tokenizer=ensure_tokenizer(web, 256),
        image_size=16,
        text_length=12,
        batch_size=320,
        seed=0,
    )
    seconds = median_seconds(lambda: next(batches), 60)
    yield Figure("training batches", 320 / seconds, "examples/s", "≥ 8,000", 60)


def training() -> Iterator[Figure]:
    """One step of the quickstart's learners."""
    import jax
    import jax.numpy as jnp

    from jestlab.models.config import TrainConfig
    from jestlab.models.training.step import build_step, initial_state
    from jestlab.models.two_towers import TwoTowerModel, initialize
    from jestlab.platform import spec
    from jestlab.platform.planning.plan import plan

    runs = {run.name: run for run in plan(spec.load("quickstart", overrides=["seeds=1"])).runs}
    for name in ("uniform", "joint"):
        config = TrainConfig.model_validate(runs[name].config)
        size, length = config.model.vision.image_size, config.model.text.length
        batch = {
            "image": jnp.zeros((config.super_batch_size, size, size, 3), jnp.uint8),
            "text": jnp.ones((config.super_batch_size, length), jnp.int32),
            "index": jnp.arange(config.super_batch_size, dtype=jnp.uint32),
        }
        parameters = initialize(config.model, jax.random.key(0))
        state = initial_state(config, parameters, jax.random.key(0))
        step = build_step(config, TwoTowerModel(config.model))
        reference = initialize(config.model, jax.random.key(1))

        def run(step=step, batch=batch, reference=reference) -> None:
            nonlocal state
            state, metrics = step(state, batch, reference)
            jax.block_until_ready(metrics)

        b = config.schedule.batch_size
        yield Figure(f"{name} step, b = {b}", 1e3 * median_seconds(run, 20), "ms", "", 20)


def main() -> None:
    """Measure all and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.pop("JESTLAB_ROOT", None)
        figures = [*commands(folder), *data(folder), *training()]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    if as_json:
        print(json.dumps({"machine": machine, "figures": [asdict(figure) for figure in figures]}, indent=2))
        return
    print(f"{machine}, {time.strftime('%Y-%m-%d')}; medians\n")
    print("| what | seen | goal | runs |\n|---|---|---|---|")
    for f in figures:
        print(f"| {f.name} | {f.value:,.3g} {f.unit} | {f.goal} | {f.runs} |")


if __name__ == "__main__":
    main()
