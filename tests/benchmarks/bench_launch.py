"""What launching costs compared with a plain asyncio subprocess, and plans and launches of large studies.

python tests/benchmarks/bench_launch.py [--rounds 5] [--many 60] [--seeds 5]

Jobs are `/bin/true`, two at a time, by the real controller with its store, executor and XManager's records. A
job's cost is the slope between few and many jobs; a launch's start is the rest. Medians.
"""

import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import labs_support as labs
import plans_support as plans
from sqlalchemy import text
from tests.benchmarks.support import (
    command,
    interleave,
    median_seconds,
    parse_options,
    print_table,
    seconds_of,
)

from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store

JOB = "/bin/true"
FEW = 10
COMMAND_ROUNDS = 3
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


async def by_asyncio(count: int, folder: Path) -> None:
    """Start so many jobs, two at a time."""
    slots = asyncio.Semaphore(2)

    async def one(number: int) -> None:
        async with slots:
            with (folder / f"{number}.txt").open("wb") as log:
                job = await asyncio.create_subprocess_exec(
                    JOB, stdout=log, stderr=log, start_new_session=True
                )
                await job.wait()

    await asyncio.gather(*(one(number) for number in range(count)))


def asyncio_seconds(count: int) -> float:
    """Seconds of so many jobs by asyncio."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds_of(lambda: asyncio.run(by_asyncio(count, Path(folder))))


def jestlab_seconds(count: int) -> float:
    """Seconds of a study of so many runs. None completes: its job reports nothing, and ends."""
    runs = (plans.run(f"run{i}", config={"steps": i}) for i in range(count))
    planned = plans.plan(*runs, resources={"retries": 0, "parallel": 2})

    def launch() -> None:
        with mock.patch("sys.executable", JOB):
            outcome = labs.launch_here(Path(folder) / "lab", planned, keep_going=True)
        assert outcome.stopped is None, outcome.stopped  # else few of the jobs were started

    with tempfile.TemporaryDirectory() as folder:
        return seconds_of(launch)


def jobs(many: int, rounds: int) -> list[tuple[str, float, str]]:
    """The cost of a job by both, and the start of a launch, in ms."""
    measures: dict[str, Callable[[], float]] = {}
    for count in (FEW, many):
        measures[f"asyncio {count}"] = partial(asyncio_seconds, count)
        measures[f"jestlab {count}"] = partial(jestlab_seconds, count)
    ms = {name: 1e3 * statistics.median(times) for name, times in interleave(measures, rounds).items()}
    plain, ours = (
        (ms[f"{name} {many}"] - ms[f"{name} {FEW}"]) / (many - FEW) for name in ("asyncio", "jestlab")
    )
    return [
        ("asyncio: a job", plain, ""),
        ("jestlab: a job", ours, ""),
        ("the second less the first", ours - plain, "≤ 8"),
        ("jestlab: start of a launch", ms[f"jestlab {FEW}"] - FEW * ours, "≤ 1,200"),
    ]


def commands(folder: Path, root: Path, seeds: int) -> list[tuple[str, float, str]]:
    """Whole processes, in ms."""

    def ms(*words: object) -> float:
        return 1e3 * median_seconds(command(*words, "--root", root), COMMAND_ROUNDS)

    large, done = folder / "large.yaml", folder / "done.yaml"
    large.write_text(GRID % ("large", list(range(50)), list(range(20)), seeds))
    done.write_text(GRID % ("done", list(range(10)), list(range(10)), seeds))
    store = Store.open(Lab.find(root).store_url)
    plans.record(store, plan(load(str(done))))
    with store.writing() as connection:
        connection.execute(text("UPDATE run SET state = 'COMPLETED'"))
    store.close()
    completed = f"`jestlab launch` of a study of {200 * seeds:,} completed runs, whole process"
    return [
        (f"`jestlab plan` of {2_000 * seeds:,} runs, whole process", ms("plan", large), "< 5,000"),
        (completed, ms("launch", done, "--no-reports"), "< 3,000"),
        ("the same with its reports", ms("launch", done), ""),
    ]


def main() -> None:
    """Measure and print."""
    options = parse_options(__doc__, rounds=5, many=60, seeds=5)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "lab"
        os.environ |= labs.variables(root)
        found = [*jobs(options.many, options.rounds), *commands(Path(name), root, options.seeds)]
    rows = [(what, f"{ms:,.4g}", goal) for what, ms, goal in found]
    print_table("medians", ("what", "ms", "goal"), rows)


if __name__ == "__main__":
    main()
