"""The results store on SQLite beside MLflow's, in one run: `bench_store.py --mlflow PYTHON`.

PYTHON is one that has MLflow, in an environment of its own: `uv venv peers && uv pip install --python
peers/bin/python mlflow`. Without it jestlab's half is measured alone. Medians of 5 where it is read.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import plans_support as plans
from sqlalchemy import text

from jestlab.analysis import query
from jestlab.platform.store.store import Store

PEER = Path(__file__).with_name("peers") / "mlflow_store.py"
ROUNDS = 5
STEPWISE = 500
GOALS = {
    "bulk": ("points/s, written in batches", "≥ 20×"),
    "stepwise": ("points/s, a commit a step", "≥ 10×"),
    "bytes": ("bytes a point", "≤ 1/10"),
    "final": ("ms, last values of four metrics of all runs, as a frame", "≥ 20×"),
    "curves": ("ms, one metric's curves of all runs", "≥ 10×"),
    "top": ("ms, ten best of the runs with a setting", "≥ 10×"),
}


def timed(function: Callable[[], object]) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ours(folder: Path, runs: int, metrics: int, steps: int) -> dict[str, Any]:
    """The same figures as the peer's, as a program of a run and a reader of results come by them."""
    path = folder / "results.db"
    url = f"sqlite:///{path}"
    store = Store.open(url)
    planned = [plans.run(f"run{i}", config={"steps": i}, seed=i % 3) for i in range(runs)]
    names = [f"metric{i}" for i in range(metrics)]
    store.record(plans.plan(*planned, name="bench"))
    before = size(path)
    start = time.perf_counter()
    for number, run in enumerate(planned):
        attempt = plans.begun(store, run, folder / f"run{number}")
        for step in range(steps):
            attempt.log(step, {name: (number * 7 + i + step) % 101 / 100 for i, name in enumerate(names)})
        attempt.complete()
    bulk = time.perf_counter() - start
    store.close_whole()
    grown = size(path) - before
    single = plans.run("single", config={"steps": -1})
    store.record(plans.plan(single, name="single"))
    attempt = plans.begun(store, single, folder / "single")
    start = time.perf_counter()
    for step in range(STEPWISE):
        attempt.log(step, dict.fromkeys(names, step / 100))
        attempt.flush()
    stepwise = time.perf_counter() - start
    attempt.complete()
    store.close()
    top = """
        SELECT label, seed, value FROM v_latest
        WHERE experiment = 'bench' AND name = 'metric0' AND seed = 1 ORDER BY value DESC LIMIT 10"""
    return {
        "bulk": runs * metrics * steps / bulk,
        "bytes": grown / (runs * metrics * steps),
        "stepwise": STEPWISE * metrics / stepwise,
        "final": timed(
            lambda: query.frame(
                url,
                sql="SELECT label, seed, name, value FROM v_latest WHERE experiment = 'bench' "
                "AND name IN ('metric0', 'metric1', 'metric2', 'metric3')",
            )
        ),
        "curves": timed(
            lambda: query.frame(
                url,
                sql="SELECT label, step, value FROM v_metrics "
                "WHERE experiment = 'bench' AND name = 'metric0'",
            )
        ),
        "top": timed(lambda: query.frame(url, sql=top)),
    }


def size(path: Path) -> int:
    """Bytes of a database and of its log."""
    wal = path.with_name(path.name + "-wal")
    return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)


def many(folder: Path, runs: int = 10_000, metrics: int = 20, steps: int = 50) -> dict[str, float]:
    """Last values of many runs, in ms."""
    url = f"sqlite:///{folder / 'many.db'}"
    store = Store.open(url)
    planned = [plans.run("run", config={"steps": i}, point={"x": i}) for i in range(runs)]
    store.record(plans.plan(*planned, name="many"))
    run = planned[0]
    plans.begun(store, run, folder / "one").complete()
    with store.writing() as connection:
        for i in range(metrics):
            connection.execute(text("INSERT INTO metric_name (name) VALUES (:name)"), {"name": f"metric{i}"})
        connection.execute(
            text(
                "WITH RECURSIVE step(s) AS (SELECT 0 UNION ALL SELECT s + 1 FROM step WHERE s < :last) "
                "INSERT INTO metric (run_id, name_id, step, value) "
                "SELECT run.id, metric_name.id, s, s * 0.01 "
                "FROM run CROSS JOIN metric_name CROSS JOIN step"
            ),
            {"last": steps - 1},
        )
    store.close()
    return {
        f"last value of one metric of {runs:,} runs, {runs * metrics * steps:,} points in the store": 1e3
        * timed(lambda: query.frame(url, view="latest", where='name = "metric3"')),
        f"last values of four metrics of {runs:,} runs, the same store": 1e3
        * timed(
            lambda: query.frame(
                url, view="latest", where='name in ("metric3", "metric4", "metric5", "metric6")'
            )
        ),
    }


def main() -> None:
    """Measure all and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mlflow", type=Path, help="a Python that has MLflow")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    shape = (options.runs, 20, 500)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mine = ours(folder, *shape)
        theirs: dict[str, Any] = {}
        if options.mlflow:
            command = [options.mlflow, PEER, folder, *map(str, shape)]
            theirs = json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL).splitlines()[-1])
        large = many(folder)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    if options.json:
        print(json.dumps({"machine": machine, "jestlab": mine, "mlflow": theirs, "many": large}, indent=2))
        return
    print(f"{machine}, {time.strftime('%Y-%m-%d')}; {' × '.join(map(str, shape))} points\n")
    print(f"| what | jestlab | MLflow {theirs.get('version', '')} | ratio | goal |\n|---|---|---|---|---|")
    for key, (what, goal) in GOALS.items():
        scale = 1e3 if what.startswith("ms") else 1
        peer = theirs.get(key)
        less = key in ("final", "curves", "top")
        ratio = "" if peer is None else f"{peer / mine[key] if less else mine[key] / peer:.3g}×"
        shown = "" if peer is None else f"{peer * scale:,.4g}"
        print(f"| {what} | {mine[key] * scale:,.4g} | {shown} | {ratio} | {goal} |")
    for what, value in large.items():
        print(f"| ms, {what} | {value:,.4g} | | | < 1,000 ms |")


if __name__ == "__main__":
    main()
