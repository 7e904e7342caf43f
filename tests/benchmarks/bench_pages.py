"""Pages of `jestlab serve` beside MLflow's and Aim's: `bench_pages.py --mlflow PYTHON --aim PYTHON`.

Each is a Python that has the tool, in an environment of its own: `python -m venv mlflow && mlflow/bin/pip
install mlflow`. Each tool's server shows runs that it has recorded itself; a browser of its own for each
look, with nothing kept, opens the list of runs and the page of one run. Seconds are medians from the click
until a name is shown, and until a curve of 100 points is drawn. Nothing here passes or fails: figures go
into BENCHMARKS.md with their date.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_serve import fill, serve

METRICS, STEPS = 10, 100
ROUNDS = 5
PATIENCE = 60
"""Seconds after which a page is given up."""

PEERS = Path(__file__).with_name("peers")
SHOWN = {
    "list": "name => document.body?.innerText.includes(name)",
    "run": "() => document.querySelector('path.js-line') !== null || "  # of plotly, which MLflow draws with
    "[...document.querySelectorAll('svg path')].some((path) => "
    "(path.getAttribute('d') ?? '').length > 300 && path.getBoundingClientRect().width > 99)",
}
"""When a page is there: in the list a run's name, on a run's page a curve."""


def free_port() -> int:
    """Return a port that nobody listens at."""
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        return int(found.getsockname()[1])


@contextmanager
def ours(folder: Path, runs: int) -> Iterator[dict[str, str]]:
    """Serve jestlab's pages; yields the addresses of both, and a name in the list."""
    fill(folder / "results.db", runs, runs * METRICS * STEPS, running=0)
    server, url = serve(folder)
    try:
        last = f"{runs:08x}{runs:056x}"
        yield {"list": f"{url}experiment/large", "run": f"{url}run/{last}", "name": "uniform"}
    finally:
        server.terminate()
        server.wait()


@contextmanager
def theirs(tool: str, python: Path, folder: Path, runs: int) -> Iterator[dict[str, str]]:
    """Record runs with another tool, and serve its pages."""
    binary, port, quiet = python.parent, free_port(), subprocess.DEVNULL
    if tool == "aim":
        subprocess.run([binary / "aim", "init", "--repo", folder], check=True, stdout=quiet, stderr=quiet)
    made: list[str | Path] = [python, PEERS / f"{tool}_ui.py", folder, *map(str, (runs, METRICS, STEPS))]
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
        _wait(url)
        yield {"list": url + paths["list"], "run": url + paths["run"], "name": f"run-{runs - 1}"}
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def _wait(url: str) -> None:
    for _ in range(240):
        try:
            urlopen(url, timeout=5).close()
            return
        except (URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"{url} does not answer")


def measured(browser: Any, pages: dict[str, str]) -> dict[str, float]:
    """Seconds until each page is there."""
    return {what: _median(partial(_seen, browser, pages[what], SHOWN[what], pages["name"])) for what in SHOWN}


def _median(look: Callable[[], float]) -> float:
    if math.isinf(look()):  # the server's first answer is not what people wait for every day
        return math.inf
    return statistics.median(look() for _ in range(ROUNDS))


def _seen(browser: Any, url: str, shown: str, name: str) -> float:
    from playwright.sync_api import TimeoutError as TooLong

    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page = context.new_page()
    began = time.perf_counter()
    try:
        page.goto(url, wait_until="commit")
        page.wait_for_function(shown, arg=name, polling=20, timeout=1_000 * PATIENCE)
        return time.perf_counter() - began
    except TooLong:
        return math.inf
    finally:
        context.close()


def _told(seconds: float) -> str:
    return f"over {PATIENCE}" if math.isinf(seconds) else f"{seconds:.2f}"


def main() -> None:
    """Measure all and print a table."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--mlflow", type=Path, help="a Python that has MLflow")
    parser.add_argument("--aim", type=Path, help="a Python that has Aim")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for tool in ("jestlab", "mlflow", "aim"):
            folder = Path(name) / tool
            folder.mkdir()
            python = getattr(options, tool, None)
            if tool == "jestlab":
                with ours(folder, options.runs) as pages:
                    found[tool] = measured(browser, pages)
            elif python:
                with theirs(tool, python, folder, options.runs) as pages:
                    found[tool] = measured(browser, pages)
            if tool in found:  # what was seen is not lost if the next one fails
                print(tool, {what: _told(seconds) for what, seconds in found[tool].items()}, file=sys.stderr)
        browser.close()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}, {time.strftime('%Y-%m-%d')}; {options.runs:,} runs of {METRICS} × {STEPS} points\n")
    print(f"| seconds until | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for what, title in (("list", "the list of runs is there"), ("run", "a run's curve is there")):
        print(f"| {title} | {' | '.join(_told(found[tool][what]) for tool in found)} |")


if __name__ == "__main__":
    main()
