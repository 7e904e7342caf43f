"""The results store on SQLite compared with MLflow's.

python tests/benchmarks/bench_store.py --mlflow PYTHON [--runs 200] [--large 10000]

PYTHON has MLflow, in an environment of its own: `uv venv peers && uv pip install --python peers/bin/python
mlflow`. Without it, only jestlab is measured. Reads are medians.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import plans_support as plans
from sqlalchemy import text
from tests.benchmarks.large_store import add_points
from tests.benchmarks.support import median_seconds, parse_options, print_table, seconds_of

from jestlab.analysis import query
from jestlab.platform.store.store import Store

PEER = Path(__file__).with_name("peers") / "mlflow_store.py"
METRICS, STEPS, LARGE_STEPS = 20, 500, 50
ROUNDS = 5
GOALS = {
    "bulk": ("points/s, written in batches", "≥ 20×"),
    "stepwise": ("points/s, a commit a step", "≥ 10×"),
    "bytes": ("bytes a point", "≤ 1/10"),
    "final": ("ms, last values of four metrics of all runs, as a frame", "≥ 20×"),
    "curves": ("ms, one metric's curves of all runs", "≥ 10×"),
    "top": ("ms, ten best of the runs with a setting", "≥ 10×"),
}


def read_ms(url: str, **question: Any) -> float:
    """Median ms of reading a frame."""
    return 1e3 * median_seconds(lambda: query.frame(url, **question), ROUNDS)


def ours(folder: Path, runs: int) -> dict[str, float]:
    """The peer's figures, measured as a run's program writes and as a user reads."""
    path = folder / "results.db"
    url = f"sqlite:///{path}"
    store = Store.open(url)
    planned = [plans.run(f"run{i}", config={"steps": i}, seed=i % 3) for i in range(runs)]
    names = [f"metric{i}" for i in range(METRICS)]
    plans.record(store, plans.plan(*planned, name="bench"))
    before = size(path)

    def write_all() -> None:
        for number, run in enumerate(planned):
            attempt = plans.begun(store, run, folder / f"run{number}")
            for step in range(STEPS):
                values = {name: (number * 7 + i + step) % 101 / 100 for i, name in enumerate(names)}
                attempt.log(step, values)
            attempt.complete()

    bulk = seconds_of(write_all)
    store.close_whole()
    grown = size(path) - before
    single = plans.run("single", config={"steps": -1})
    plans.record(store, plans.plan(single, name="single"))
    attempt = plans.begun(store, single, folder / "single")

    def commit_each_step() -> None:
        for step in range(STEPS):
            attempt.log(step, dict.fromkeys(names, step / 100))
            attempt.flush()

    stepwise = seconds_of(commit_each_step)
    attempt.complete()
    store.close()
    final = """
        SELECT label, seed, name, value FROM v_latest
        WHERE experiment = 'bench' AND name IN ('metric0', 'metric1', 'metric2', 'metric3')"""
    curves = "SELECT label, step, value FROM v_metrics WHERE experiment = 'bench' AND name = 'metric0'"
    top = """
        SELECT label, seed, value FROM v_latest
        WHERE experiment = 'bench' AND name = 'metric0' AND seed = 1 ORDER BY value DESC LIMIT 10"""
    points = runs * METRICS * STEPS
    return {
        "bulk": points / bulk,
        "stepwise": STEPS * METRICS / stepwise,
        "bytes": grown / points,
        "final": read_ms(url, sql=final),
        "curves": read_ms(url, sql=curves),
        "top": read_ms(url, sql=top),
    }


def size(path: Path) -> int:
    """Bytes of a database and of its log."""
    wal = path.with_name(path.name + "-wal")
    return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)


def large(folder: Path, runs: int) -> dict[str, float]:
    """Last values of many runs, in ms."""
    url = f"sqlite:///{folder / 'large.db'}"
    store = Store.open(url)
    planned = [plans.run("run", config={"steps": i}, point={"x": i}) for i in range(runs)]
    plans.record(store, plans.plan(*planned, name="large"))
    plans.begun(store, planned[0], folder / "one").complete()
    with store.writing() as connection:
        for i in range(METRICS):
            connection.execute(text("INSERT INTO metric_name (name) VALUES (:name)"), {"name": f"metric{i}"})
        add_points(connection, LARGE_STEPS)
    store.close()
    four = 'name in ("metric3", "metric4", "metric5", "metric6")'
    points = f"{runs * METRICS * LARGE_STEPS:,} points in the store"
    return {
        f"ms, last value of one metric of {runs:,} runs, {points}": read_ms(
            url, view="latest", where='name = "metric3"'
        ),
        "ms, last values of four metrics, the same": read_ms(url, view="latest", where=four),
    }


def main() -> None:
    """Measure and print."""
    options = parse_options(__doc__, peers=["mlflow"], runs=200, large=10_000)
    theirs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        mine = ours(Path(name), options.runs)
        if options.mlflow:
            command = [options.mlflow, PEER, name, *map(str, (options.runs, METRICS, STEPS))]
            theirs = json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL).splitlines()[-1])
        many = large(Path(name), options.large)
    rows = []
    for key, (what, goal) in GOALS.items():
        shown = ratio = ""
        if key in theirs:
            shown = f"{theirs[key]:,.4g}"
            quotient = theirs[key] / mine[key] if what.startswith("ms") else mine[key] / theirs[key]
            ratio = f"{quotient:.3g}×"
        rows.append((what, f"{mine[key]:,.4g}", shown, ratio, goal))
    rows += [(what, f"{ms:,.4g}", "", "", "< 1,000") for what, ms in many.items()]
    columns = ("what", "jestlab", f"MLflow {theirs.get('version', '')}", "ratio", "goal")
    print_table(f"{options.runs} runs × {METRICS} metrics × {STEPS} steps", columns, rows)


if __name__ == "__main__":
    main()
