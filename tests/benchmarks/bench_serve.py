"""The pages of `jestlab serve` over very many runs: `bench_serve.py [--runs 10000] [--points 100000000]`.

One experiment of 1,000 labels by ten seeds, 200 of whose runs go on while the pages are asked for: each
reports ten metrics and its progress every second. The server is a process of its own; times are those that
a client on the same machine waits for an answer, medians. Nothing here passes or fails: figures go into
BENCHMARKS.md with their date.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert, text, update

from jestlab.platform.store import schema
from jestlab.platform.store.engine import create_file, writable, writing
from jestlab.platform.store.tables import (
    Attempt,
    Base,
    Cost,
    Evaluation,
    Experiment,
    Launcher,
    Member,
    Metric,
    MetricName,
    Run,
)

SEEDS = 10
METRICS = ("loss", "examples_seen", "flops_total", *(f"metric{i}" for i in range(7)))
RUNNING = 200
ROUNDS = 21
TICKS = 30
SPIKE = 137
"""A step at which every loss has a spike, which a thinned curve has to show."""

GOALS = {
    "experiments": ("ms, list of experiments", 300),
    "experiment, first": ("ms, page of the experiment, the first time", None),
    "experiment": ("ms, page of the experiment, later", 300),
    "sorted": ("ms, sorted by loss", 300),
    "search": ("ms, search by a condition on config keys", 300),
    "run": ("ms, page of a run", 300),
    "curve": ("ms, a curve of a run", 300),
    "losses": ("ms, losses of 200 runs", 300),
    "tick": ("ms, live tick with 200 runs that train", 50),
    "task": ("ms, the browser's longest task in 20 s of live updates", 100),
}


def now() -> datetime:
    """The time as the store keeps it."""
    return datetime.now(UTC).replace(tzinfo=None)


def fill(path: Path, runs: int, points: int, running: int = RUNNING) -> str:
    """Make a store with so many runs and points, some of which go on; return its URL."""
    url = f"sqlite:///{path}"
    create_file(path)
    engine = writable(url)
    schema.ensure(engine, create=True)
    began, steps = now() - timedelta(hours=2), max(1, points // runs // len(METRICS))
    labels = [
        "uniform",
        *(f"joint filtering_ratio={i / runs:.5f}" for i in range(1, math.ceil(runs / SEEDS))),
    ]
    numbered = [(n + 1, labels[n // SEEDS], n % SEEDS) for n in range(runs)]
    whole = {"created_at": began, "updated_at": began}
    config: dict[str, Any] = {
        "selection": {"rule": "joint", "filtering_ratio": 0.8, "chunks": 16},
        "model": {"vision": {"width": 64, "depth": 2}, "text": {"width": 64}},
        "schedule": {"examples_seen": 64 * steps, "batch_size": 64},
        "optimizer": {"name": "adam", "learning_rate": 1e-3, "notes": "x" * 1_500},
    }
    spec = {"name": "large", "runs": {"uniform": {}}}
    experiment = {"id": 1, "name": "large", "question": "Does it scale?", "spec": json.dumps(spec)}
    rows: list[tuple[type[Base], list[dict[str, Any]]]] = [
        (Experiment, [experiment | whole]),
        (Launcher, [{"id": 1, "name": "elsewhere:1:1", "heartbeat_at": now() + timedelta(hours=1)}]),
        (MetricName, [{"id": i, "name": name} for i, name in enumerate(METRICS, start=1)]),
        (
            Run,
            [
                {
                    "id": n, "fingerprint": f"{n:08x}{n:056x}", "program": "train", "seed": seed,
                    "directory": f"runs/{n}", "config": json.dumps(config | {"label": label, "seed": seed}),
                    "state": "RUNNING" if n <= running else "COMPLETED", "step": steps,
                    "total_steps": 2 * steps if n <= running else steps, **whole,
                }
                for n, label, seed in numbered
            ],
        ),
        (
            Member,
            [
                {
                    "experiment_id": 1, "run_id": n, "name": label.split()[0], "label": label, "point": "{}",
                    "needed": 0, "position": n,
                }
                for n, label, _ in numbered
            ],
        ),
        (
            Attempt,
            [
                {
                    "id": n, "run_id": n, "number": 1, "launcher_id": 1, "executor": "kubernetes",
                    "state": "RUNNING" if n <= running else "COMPLETED", "log": "log", "claimed_at": began,
                    "started_at": began, "heartbeat_at": now() + timedelta(hours=1), "lease_seconds": 9e4,
                    "ended_at": None if n <= running else began + timedelta(hours=1), "device": "cpu",
                }
                for n, _, _ in numbered
            ],
        ),
        (Cost, [{"run_id": n, "component": "image_tower", "flops": 3e11} for n, _, _ in numbered]),
        (
            Evaluation,
            [
                {
                    "run_id": n, "dataset": "shapes", "metric": "zero_shot", "step": steps, "attempt_id": n,
                    "value": 0.4 + (n * 7_919 % 1_000) / 5_000, "examples_seen": 64 * steps,
                    "flops_total": 1e9 * steps, "seconds": 3_600.0,
                }
                for n, _, _ in numbered
            ],
        ),
    ]  # fmt: skip
    with engine.begin() as connection:
        for table, values in rows:
            connection.execute(insert(table), values)
    with writing(engine) as connection:
        # In the order of the primary key, so that the table is written from its beginning to its end.
        connection.execute(
            text(
                "WITH RECURSIVE step(s) AS (SELECT 1 UNION ALL SELECT s + 1 FROM step WHERE s < :last) "
                "INSERT INTO metric (run_id, name_id, step, value) "
                "SELECT run.id, metric_name.id, s, CASE WHEN s = :spike THEN 1000.0 ELSE 5.0 / s + "
                "0.001 * ((s * 7919 + run.id) % 100) END "
                "FROM run CROSS JOIN metric_name CROSS JOIN step"
            ),
            {"last": steps, "spike": SPIKE},
        )
    engine.dispose()
    return url


class Training(threading.Thread):
    """Runs that go on: each reports its metrics and its progress every second."""

    def __init__(self, url: str, steps: int) -> None:
        """Continue after so many steps."""
        super().__init__(daemon=True)
        self._url = url
        self._step = steps
        self.over = threading.Event()

    def run(self) -> None:
        """Report until it is over."""
        engine = writable(self._url)
        while not self.over.wait(1.0):
            self._step += 1
            points = [
                {"run_id": n, "name_id": i, "step": self._step, "value": 1.0 / n + i}
                for n in range(1, RUNNING + 1)
                for i in range(1, len(METRICS) + 1)
            ]
            with writing(engine) as connection:
                connection.execute(insert(Metric), points)
                progress = {"step": self._step, "updated_at": now()}
                connection.execute(update(Run).where(Run.id <= RUNNING).values(**progress))
        engine.dispose()


class Client:
    """Asks one server."""

    def __init__(self, url: str) -> None:
        """Connect to it."""
        self._place = url.removeprefix("http://").rstrip("/")

    def get(self, path: str) -> tuple[float, bytes]:
        """Return the seconds until an answer is whole, and the answer."""
        connection = http.client.HTTPConnection(self._place, timeout=120)
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        took = time.perf_counter() - began
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body[:200]!r}")
        connection.close()
        return took, body


def measured(client: Client, fingerprint: str) -> dict[str, float]:
    """Times of all pages, ms."""

    def median(path: str) -> float:
        return 1e3 * statistics.median(client.get(path)[0] for _ in range(ROUNDS))

    found = {"experiment, first": 1e3 * client.get("/experiment/large")[0]}
    found["experiments"] = median("/")
    found["experiment"] = median("/experiment/large")
    found["sorted"] = median("/experiment/large?sort=loss")
    client.get("/runs?where=selection.chunks+%3D+16+and+seed+%3C+2&columns=label,seed")
    found["search"] = median("/runs?where=selection.chunks+%3D+16+and+seed+%3C+2&columns=label,seed")
    found["run"] = median(f"/run/{fingerprint}")
    found["curve"] = median(f"/run/{fingerprint}/curves?metric=loss&width=800")
    found["losses"] = median("/experiment/large/losses")
    curve = json.loads(client.get(f"/run/{fingerprint}/curves?metric=loss&width=100")[1])["curves"]["loss"]
    assert max(curve["y"]) == 1000.0, "the spike is lost"
    cursor, ticks = "", []
    for _ in range(TICKS):
        took, body = client.get(f"/experiment/large/live?since={cursor}")
        if cursor:
            ticks.append(took)
        cursor = json.loads(body)["cursor"]
        time.sleep(1.1)
    found["tick"] = 1e3 * statistics.median(ticks)
    found["tick, worst"] = 1e3 * max(ticks)
    return found


def longest_task(url: str) -> float:
    """Look at the experiment in a browser while runs train; return its longest task in ms, once it is drawn.

    A browser that is busy for long takes no click and no key; tasks under 50 ms it does not report.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{url}experiment/large")
        page.wait_for_timeout(10_000)
        page.evaluate(
            "window.tasks = []; new PerformanceObserver((list) => window.tasks.push("
            "...list.getEntries().map((each) => each.duration))).observe({type: 'longtask'})"
        )
        page.wait_for_timeout(20_000)
        tasks: list[float] = page.evaluate("window.tasks")
        browser.close()
    return max(tasks, default=0.0)


def serve(root: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the server; return it and its URL."""
    code = "from jestlab.platform.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--root", str(root), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


def main() -> None:
    """Measure all and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=100_000_000)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "results.db"
        began = time.perf_counter()
        url = fill(path, options.runs, options.points)
        made, size = time.perf_counter() - began, path.stat().st_size
        training = Training(url, max(1, options.points // options.runs // len(METRICS)))
        server, address = serve(Path(name))
        try:
            training.start()
            found = measured(Client(address), f"{options.runs:08x}{options.runs:056x}")
            found["task"] = longest_task(address)
        finally:
            training.over.set()
            training.join()
            server.terminate()
            server.wait()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    about = {"machine": machine, "runs": options.runs, "points": options.points, "bytes": size, "made": made}
    if options.json:
        print(json.dumps(about | {"ms": found}, indent=2))
        return
    print(f"{machine}, {time.strftime('%Y-%m-%d')}; {options.runs:,} runs, {options.points:,} points, "
          f"{size / 1e9:.1f} GB, made in {made:.0f} s\n")  # fmt: skip
    print("| what | jestlab | goal |\n|---|---|---|")
    for key, (what, goal) in GOALS.items():
        worst = f" (at most {found['tick, worst']:,.0f})" if key == "tick" else ""
        print(f"| {what} | {found[key]:,.0f}{worst} | {f'< {goal}' if goal else ''} |")


if __name__ == "__main__":
    main()
