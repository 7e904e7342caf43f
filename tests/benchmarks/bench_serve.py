"""The pages of `jestlab serve` over very many runs.

python tests/benchmarks/bench_serve.py [--runs 10000] [--steps 1000] [--ticks 30]

The experiment has ten seeds of each label and ten metrics. While the pages are requested, 200 of its runs
continue: each reports ten metrics and its progress every second. The server is a process of its own. Times
are those that a client on the same machine waits for an answer.
"""

import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sqlalchemy import insert, update
from tests.benchmarks.large_store import NAME, fill, fingerprint, key, now
from tests.benchmarks.support import JESTLAB, parse_options, print_table

from jestlab.platform.store.engine import writable, writing
from jestlab.platform.store.tables import MetricRow, RunRow

METRICS = ("loss", "examples_seen", "flops_total", *(f"metric{i}" for i in range(7)))
RUNNING = 200
ROUNDS = 21
LIVE_MS = 20_000
GOALS = {
    "list of experiments": 300,
    "page of the experiment, the first time": None,
    "its results, the first time": None,
    "page of the experiment with its results, later": 3_000,
    "sorted by loss": 300,
    "search by a condition on config keys": 300,
    "page of a run": 300,
    "a curve of a run": 300,
    f"losses of {RUNNING} runs": 300,
    f"live tick with {RUNNING} runs that train": 50,
    "the same, at most": None,
    "the browser's longest task in 20 s of live updates": 100,
}
"""Name of each figure → its goal in ms."""


def store(folder: Path, runs: int, steps: int, running: int = 0) -> str:
    """Make the lab's store; return its URL."""
    return fill(
        folder / "results.db",
        runs,
        steps,
        metrics=METRICS,
        scores=[("shapes", "zero_shot")],
        evaluation_steps=[steps],
        config={"optimizer": {"name": "adam", "learning_rate": 1e-3, "notes": "x" * 1_500}},
        running=running,
    )


@contextmanager
def served(root: Path) -> Iterator[str]:
    """Context with the server of a lab; yields its URL."""
    server = subprocess.Popen(
        [JESTLAB, "serve", "--root", str(root), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip().rstrip("/")
    finally:
        server.terminate()
        server.wait()


@contextmanager
def training(url: str, step: int) -> Iterator[None]:
    """Context in which the first runs continue after a step: each reports every second."""
    over = threading.Event()

    def report() -> None:
        engine = writable(url)
        last = step
        while not over.wait(1.0):
            last += 1
            points = [
                {"run_id": key(n), "name_id": i, "step": last, "value": 1.0 / n + i}
                for n in range(1, RUNNING + 1)
                for i in range(1, len(METRICS) + 1)
            ]
            with writing(engine) as connection:
                connection.execute(insert(MetricRow), points)
                progress = {"step": last, "updated_at": now()}
                connection.execute(update(RunRow).where(RunRow.id <= key(RUNNING)).values(**progress))
        engine.dispose()

    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join()


def get(url: str, path: str, **headers: str) -> tuple[float, bytes]:
    """Return the ms until an answer is complete, and the answer."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
    start = time.perf_counter()
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - start
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {body[:200]!r}")
    return 1e3 * took, body


def pages(url: str, last_run: str, ticks: int) -> list[float]:
    """The ms of each page, in the order of `GOALS`."""

    def median(path: str) -> float:
        return statistics.median(get(url, path)[0] for _ in range(ROUNDS))

    experiment, run = f"/experiment/{NAME}", f"/run/{last_run}"
    search = "/runs?where=selection.chunks+%3D+16+and+seed+%3C+2&columns=label,seed"
    first, results = get(url, experiment)[0], get(url, f"{experiment}/results")[0]
    with_results = statistics.median(
        get(url, experiment)[0] + get(url, f"{experiment}/results")[0] for _ in range(5)
    )
    found = [median("/"), first, results, with_results, median(f"{experiment}?sort=loss")]
    get(url, search)
    found += [median(search), median(run), median(f"{run}/curves?metric=loss&width=800")]
    found.append(median(f"{experiment}/losses"))
    curve = json.loads(get(url, f"{run}/curves?metric=loss&width=100")[1])["charts"]["loss"][0]
    assert max(curve["y"]) == 1000.0, "the curve doesn't show the spike"
    waits = []
    for _ in range(ticks):
        time.sleep(1.1)
        waits.append(get(url, experiment, live="1")[0])
    return [*found, statistics.median(waits), max(waits)]


def longest_task(url: str) -> float:
    """Show the experiment in a browser while runs train; return the browser's longest task in ms.

    During a long task, a browser reacts to no click and no key. It doesn't report tasks under 50 ms.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{url}/experiment/{NAME}")
        page.wait_for_timeout(10_000)  # until it is drawn
        page.evaluate(
            "window.tasks = []; new PerformanceObserver((list) => window.tasks.push("
            "...list.getEntries().map((each) => each.duration))).observe({type: 'longtask'})"
        )
        page.wait_for_timeout(LIVE_MS)
        tasks: list[float] = page.evaluate("window.tasks")
        browser.close()
    return max(tasks, default=0.0)


def main() -> None:
    """Measure and print."""
    options = parse_options(__doc__, runs=10_000, steps=1_000, ticks=30)
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        url = store(Path(name), options.runs, options.steps, RUNNING)
        made = time.perf_counter() - start
        gigabytes = (Path(name) / "results.db").stat().st_size / 1e9
        with served(Path(name)) as address, training(url, options.steps):
            figures = [*pages(address, fingerprint(options.runs), options.ticks), longest_task(address)]
    about = f"{options.runs:,} runs × {len(METRICS)} metrics × {options.steps:,} steps, "
    about += f"{gigabytes:.1f} GB, made in {made:.0f} s"
    rows = [
        (what, f"{ms:,.0f}", f"< {goal}" if goal else "")
        for (what, goal), ms in zip(GOALS.items(), figures, strict=True)
    ]
    print_table(about, ("what", "ms", "goal"), rows)


if __name__ == "__main__":
    main()
