"""Pages of `jestlab serve` compared with MLflow's and Aim's.

python tests/benchmarks/bench_pages.py --mlflow PYTHON --aim PYTHON [--runs 1000]

Each PYTHON has the tool, in an environment of its own: `python -m venv mlflow && mlflow/bin/pip install
mlflow`. Each tool's server shows runs that the tool itself has recorded. Each look, in a new browser context
with an empty cache, opens the list of runs and the page of one run. Seconds are medians from the click until
a name is shown, and until a curve of 100 points is drawn.
"""

import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_serve import METRICS, served, store
from tests.benchmarks.large_store import NAME, fingerprint
from tests.benchmarks.support import parse_options, print_table
from tests.cluster.ports import free_port
from tests.waiting import wait_until

STEPS = 100
ROUNDS = 5
TIMEOUT = 60
"""Seconds after which a page is given up."""

PEERS = Path(__file__).with_name("peers")
TITLES = {"list": "the list of runs is there", "run": "a run's curve is there"}
SHOWN = {
    "list": "name => document.body?.innerText.includes(name)",
    "run": "() => document.querySelector('path.js-line') !== null || "  # of plotly, which MLflow draws with
    "[...document.querySelectorAll('svg path')].some((path) => "
    "(path.getAttribute('d') ?? '').length > 300 && path.getBoundingClientRect().width > 99)",
}
"""When a page is there: in the list a run's name, on a run's page a curve."""


@contextmanager
def ours(folder: Path, runs: int) -> Iterator[dict[str, str]]:
    """Serve jestlab's pages; yields the addresses of both, and a name in the list."""
    store(folder, runs, STEPS)
    with served(folder) as url:
        page, run = f"{url}/experiment/{NAME}", f"{url}/run/{fingerprint(runs)}"
        yield {"list": page, "run": run, "name": "uniform"}


@contextmanager
def theirs(tool: str, python: Path, folder: Path, runs: int) -> Iterator[dict[str, str]]:
    """Record runs with another tool, and serve its pages."""
    binary, quiet, port = python.parent, subprocess.DEVNULL, free_port()
    if tool == "aim":
        subprocess.run([binary / "aim", "init", "--repo", folder], check=True, stdout=quiet, stderr=quiet)
    made: list[str | Path] = [python, PEERS / f"{tool}_ui.py", folder, *map(str, (runs, len(METRICS), STEPS))]
    paths = json.loads(
        subprocess.run(made, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )
    commands: dict[str, list[str | Path]] = {
        "mlflow": [binary / "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"],
        "aim": [binary / "aim", "up", "--repo", folder],
    }
    server = subprocess.Popen(
        [*commands[tool], "--port", str(port)], cwd=folder, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(url), 120.0)
        yield {"list": url + paths["list"], "run": url + paths["run"], "name": f"run-{runs - 1}"}
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def _answers(url: str) -> bool:
    try:
        urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


def measured(browser: Any, pages: dict[str, str]) -> dict[str, float]:
    """Median seconds until each page is there; the server's first answer isn't counted."""
    found = {}
    for what, shown in SHOWN.items():
        look = partial(_seconds_until, browser, pages[what], shown, pages["name"])
        first = look()
        found[what] = statistics.median(look() for _ in range(ROUNDS)) if math.isfinite(first) else first
    return found


def _seconds_until(browser: Any, url: str, shown: str, name: str) -> float:
    from playwright.sync_api import TimeoutError as TimedOut

    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page = context.new_page()
    start = time.perf_counter()
    try:
        page.goto(url, wait_until="commit")
        page.wait_for_function(shown, arg=name, polling=20, timeout=1_000 * TIMEOUT)
        return time.perf_counter() - start
    except TimedOut:
        return math.inf
    finally:
        context.close()


def _format(seconds: float) -> str:
    return f"over {TIMEOUT}" if math.isinf(seconds) else f"{seconds:.2f}"


def main() -> None:
    """Measure and print."""
    from playwright.sync_api import sync_playwright

    options = parse_options(__doc__, peers=("mlflow", "aim"), runs=1_000)
    found = {}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for tool in ("jestlab", "mlflow", "aim"):
            folder, python = Path(name) / tool, getattr(options, tool, None)
            if tool != "jestlab" and python is None:
                continue
            folder.mkdir()
            serving = theirs(tool, python, folder, options.runs) if python else ours(folder, options.runs)
            with serving as pages:
                found[tool] = measured(browser, pages)
            # Printed at once, so that it isn't lost if the next tool fails.
            print(tool, {what: _format(seconds) for what, seconds in found[tool].items()}, file=sys.stderr)
        browser.close()
    rows = [(TITLES[what], *(_format(seconds[what]) for seconds in found.values())) for what in SHOWN]
    about = f"{options.runs:,} runs of {len(METRICS)} × {STEPS} points"
    print_table(about, ("seconds until", *found), rows)


if __name__ == "__main__":
    main()
