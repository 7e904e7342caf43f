"""What launching costs beside a plain asyncio subprocess, and plans and launches of large studies.

    python tests/benchmarks/bench_launch.py

Jobs are `/bin/true`, two at a time, by the real controller with its store, executor and XManager's records; a
job's cost is the slope between few and many jobs, the start what is left. Rounds are interleaved; medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import labs_support as labs
import plans_support as plans
from sqlalchemy import text

from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store

BIN = Path(sys.executable).parent
JOB = "/bin/true"
FEW, MANY, ROUNDS = 10, 60, 5
GRID = """
name: %s
program: toy_programs:loop
base: {steps: 10}
runs: {uniform: {}, joint: {}}
axes:
  - runs: [uniform, joint]
    grid: {a: %s, b: %s}
seeds: %d
"""


def by_asyncio(count: int, folder: Path) -> float:
    """Seconds of so many jobs, two at a time."""

    async def one(slots: asyncio.Semaphore, number: int) -> None:
        async with slots:
            with (folder / f"{number}.txt").open("wb") as log:
                job = await asyncio.create_subprocess_exec(
                    JOB, stdout=log, stderr=log, start_new_session=True
                )
                await job.wait()

    async def everything() -> None:
        slots = asyncio.Semaphore(2)
        await asyncio.gather(*(one(slots, number) for number in range(count)))

    start = time.perf_counter()
    asyncio.run(everything())
    return time.perf_counter() - start


def by_jestlab(count: int, folder: Path) -> float:
    """The same of a study of so many runs. None completes: its job says nothing, and ends."""
    runs = (plans.run(f"run{i}", config={"steps": i}) for i in range(count))
    planned = plans.plan(*runs, resources={"retries": 0, "parallel": 2})
    start = time.perf_counter()
    with mock.patch("sys.executable", JOB):
        outcome = labs.launch_here(folder / "lab", planned, keep_going=True)
    seconds = time.perf_counter() - start
    assert outcome.stopped is None, outcome.stopped  # else few of the jobs were started
    return seconds


def jobs() -> dict[str, float]:
    """Start and slope of both, in ms."""
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(ROUNDS + 1):  # the first, in which modules are imported, is not counted
        for name, launch in (("asyncio", by_asyncio), ("jestlab", by_jestlab)):
            for count in (FEW, MANY):
                with tempfile.TemporaryDirectory() as folder:
                    times.setdefault((name, count), []).append(launch(count, Path(folder)))
    found = {}
    for name in ("asyncio", "jestlab"):
        few, many = (statistics.median(times[name, count][1:]) for count in (FEW, MANY))
        slope = (many - few) / (MANY - FEW)
        found[f"{name}: a job"] = 1e3 * slope
        found[f"{name}: start"] = 1e3 * (few - FEW * slope)
    found["jestlab over asyncio: a job (goal ≤ 8)"] = found["jestlab: a job"] - found["asyncio: a job"]
    return found


def commands(folder: Path) -> dict[str, float]:
    """Whole processes, in ms."""
    root = folder / "lab"
    environment = {**os.environ, **labs.variables(root)}

    def timed(*arguments: object, runs: int = 3) -> float:
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            command = [str(BIN / "jestlab"), *map(str, arguments), "--root", str(root)]
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
        return 1e3 * statistics.median(times)

    large, done = folder / "large.yaml", folder / "done.yaml"
    large.write_text(GRID % ("large", list(range(50)), list(range(20)), 5))
    done.write_text(GRID % ("done", list(range(10)), list(range(10)), 5))
    store = Store.open(Lab.find(root).store_url)
    store.record(plan(load(str(done))))
    with store.writing() as connection:
        connection.execute(text("UPDATE run SET state = 'COMPLETED'"))
    store.close()
    return {
        "plan of 10,000 runs (goal < 5,000)": timed("plan", large),
        "launch of a study of 1,000 completed runs, no reports (goal < 3,000)": timed(
            "launch", done, "--no-reports"
        ),
        "the same with its reports": timed("launch", done),
    }


def main() -> None:
    """Measure all and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(labs.variables(Path(folder) / "lab"))
        figures = jobs() | commands(Path(folder))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    if as_json:
        print(json.dumps({"machine": machine, "milliseconds": figures}, indent=2))
        return
    print(f"{machine}, {time.strftime('%Y-%m-%d')}; medians\n\n| what | ms |\n|---|---|")
    for name, value in figures.items():
        print(f"| {name} | {value:,.4g} |")


if __name__ == "__main__":
    main()
