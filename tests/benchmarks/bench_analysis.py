"""Tables and the report of very many runs: `bench_analysis.py [--runs 10000]`.

One experiment of 1,000 labels by ten seeds, each run with ten evaluations of four metrics and 100 points of
loss, on SQLite. Commands are timed as whole processes, functions by themselves; medians. Nothing here passes
or fails: figures go into BENCHMARKS.md with their date.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from jestlab.analysis import frames, published, tables
from jestlab.analysis.tables.core import Table
from jestlab.platform.store import schema
from jestlab.platform.store.engine import create_file, writable
from jestlab.platform.store.tables import (
    Attempt,
    Base,
    Cost,
    Evaluation,
    Experiment,
    Member,
    Metric,
    MetricName,
    Run,
)

SEEDS = 10
STEPS = 100
EVERY = 10  # steps between evaluations
METRICS = (
    ("shapes", "10_shot"),
    ("shapes", "zero_shot"),
    ("shapes_retrieval", "i2t_r1"),
    ("shapes_retrieval", "t2i_r1"),
)
ROUNDS = 5
BEGAN = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
CONFIG: dict[str, Any] = {
    "selection": {"rule": "joint", "filtering_ratio": 0.8},
    "model": {"vision": {"width": 64, "depth": 2}},
    "schedule": {"examples_seen": 64 * STEPS},
}


def rows(count: int) -> Iterator[tuple[type[Base], list[dict[str, Any]]]]:
    """What a store of so many runs holds, table by table."""
    numbers = random.Random(0)
    labels = ["uniform", *(f"joint filtering_ratio={i / count:.5f}" for i in range(1, count // SEEDS))]
    runs = [
        (i + 1, label, i % SEEDS) for i, label in enumerate(label for label in labels for _ in range(SEEDS))
    ]
    whole = {"created_at": BEGAN, "updated_at": BEGAN}
    yield Experiment, [{"id": 1, "name": "big", "question": "Does it scale?", "spec": "{}", **whole}]
    yield MetricName, [{"id": 1, "name": "loss"}]
    yield Run, [
        {
            "id": n, "fingerprint": f"{n:064x}", "program": "train", "seed": seed, "directory": f"runs/{n}",
            "config": json.dumps(CONFIG | {"label": label}), "state": "COMPLETED", "step": STEPS,
            "total_steps": STEPS, **whole,
        }
        for n, label, seed in runs
    ]  # fmt: skip
    yield Member, [
        {
            "experiment_id": 1, "run_id": n, "name": label.split()[0], "label": label, "point": "{}",
            "needed": 0, "position": n,
        }
        for n, label, _ in runs
    ]  # fmt: skip
    yield Attempt, [
        {
            "id": n, "run_id": n, "number": 1, "state": "COMPLETED", "executor": "local", "log": "log",
            "claimed_at": BEGAN, "started_at": BEGAN, "heartbeat_at": BEGAN, "host": "here", "exit_code": 0,
            "ended_at": BEGAN + timedelta(minutes=1), "git_commit": "0" * 40, "device": "cpu",
            "versions": json.dumps({"jax": "0.4.30", "numpy": "1.26.4"}),
        }
        for n, _, _ in runs
    ]  # fmt: skip
    yield (
        Cost,
        [
            {"run_id": n, "component": component, "flops": flops}
            for n, label, _ in runs
            for component, flops in (("image_tower", 3e11), ("scoring", 0.0 if label == "uniform" else 5e11))
        ],
    )
    yield (
        Metric,
        [
            {"run_id": n, "name_id": 1, "step": step, "value": 1 / step}
            for n, _, _ in runs
            for step in range(1, STEPS + 1)
        ],
    )
    yield Evaluation, [
        {
            "run_id": n, "dataset": dataset, "metric": metric, "step": step, "attempt_id": n,
            "value": top * (1 - 2 ** (-step / 20)) + 0.02 * numbers.random(), "examples_seen": 64 * step,
            "flops_total": step * (3e9 if label == "uniform" else 8e9), "seconds": step / 10,
        }
        for n, label, _ in runs
        for top in [0.4 + 0.4 * numbers.random()]
        for dataset, metric in METRICS
        for step in range(EVERY, STEPS + 1, EVERY)
    ]  # fmt: skip


def fill(path: Path, count: int) -> str:
    """A store of so many runs; its URL."""
    url = f"sqlite:///{path}"
    create_file(path)
    engine = writable(url)
    schema.ensure(engine, create=True)
    with engine.begin() as connection:
        for table, values in rows(count):
            connection.execute(insert(table), values)
    engine.dispose()
    return url


def median(function: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds that a call takes, after one that does not count."""
    function()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measured(url: str, folder: Path) -> dict[str, float]:
    """What is done → seconds."""
    paper = published.frame(published.paper())

    def command(*words: str) -> Callable[[], object]:
        line = [sys.executable, "-c", "from jestlab.platform.cli import main; main()", *words, "--store", url]
        return lambda: subprocess.run(line, check=True, capture_output=True)

    def named(make: Callable[[tables.Finals], Table]) -> Callable[[], object]:
        return lambda: make(tables.finals(frames.read(url, "big"))).markdown()

    def of_the_paper(name: str) -> Callable[[tables.Finals], Table]:
        return lambda found: tables.paper_table(name, paper, [found])

    found = {
        "read": median(lambda: frames.read(url, "big")),
        "summary": median(named(tables.summary)),
        "speedups": median(named(tables.speedup_table)),
    }
    for name in tables.LAYOUTS:
        found[name] = median(named(of_the_paper(name)))
    found["jestlab table big"] = median(command("table", "big"), 3)
    found["jestlab table big --explain joint\\ filtering_ratio=0.00100 score"] = median(
        command("table", "big", "--explain", "joint filtering_ratio=0.00100", "score"), 3
    )
    found["jestlab report big"] = median(command("report", "big", "--output", str(folder)), 3)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--runs", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = fill(Path(folder) / "results.db", arguments.runs)
        seconds = measured(url, Path(folder) / "report")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    if arguments.json:
        print(json.dumps({"machine": machine, "runs": arguments.runs, "seconds": seconds}, indent=2))
        return
    print(f"{machine}, {time.strftime('%Y-%m-%d')}; {arguments.runs:,} runs, medians\n")
    print("| what | s |\n|---|---|")
    for what, took in seconds.items():
        print(f"| {what} | {took:.2f} |")


if __name__ == "__main__":
    main()
