"""Real labs for tests: `jestlab` in processes of its own, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from jestlab.platform.lab import Lab
from jestlab.platform.launch.bell import Bell
from jestlab.platform.launch.controller import Options, Outcome, launch
from jestlab.platform.launch.executors.local import Local
from jestlab.platform.plan import Plan
from jestlab.platform.store.store import Store

SUPPORT = Path(__file__).parent
JESTLAB = [sys.executable, "-c", "from jestlab.platform.cli import main; main()"]
_MARKER = "JESTLAB_TEST_LAB"


def variables(root: Path) -> dict[str, str]:
    """What marks all processes of a lab, and lets its workers find `toy_programs`."""
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), _MARKER: str(root)}


def write_study(folder: Path, **parts: Any) -> Path:
    """A YAML spec of toy runs."""
    study = {
        "name": "toy",
        "program": "toy_programs:loop",
        "base": {"steps": 10},
        "runs": {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 12}},
        "resources": {"retries": 0},
    }
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(study | parts))
    return path


def jestlab(*arguments: object, root: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    command = [*JESTLAB, *map(str, arguments), "--root", str(root)]
    return subprocess.run(
        command, env={**os.environ, **variables(root)}, capture_output=True, text=True, timeout=120, **options
    )


def launch_here(root: Path, planned: Plan, **options: Any) -> Outcome:
    """Record a plan and launch it in this process."""
    lab, bell, resources = Lab.find(root), Bell(), planned.study.resources
    store = Store.open(lab.store_url)
    store.record(planned)
    local = Local(lab, resources, bell.ring)
    how = Options(retries=resources.retries, lease_seconds=resources.lease_seconds, **options)
    try:
        return launch(lab, store, planned.study.name, planned.runs, lambda _: local, options=how, bell=bell)
    finally:
        store.close()


@contextmanager
def started(*arguments: object, root: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the command line in a session of its own; whatever is left of it is killed in the end."""
    command = [*JESTLAB, *map(str, arguments), "--root", str(root)]
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in [*processes_of(root), process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.communicate()


def processes_of(root: Path) -> list[int]:
    """Live processes of a lab, found by their environment, however they were started."""
    marker = f"{_MARKER}={root}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if marker in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it ended just now
            continue
    return found


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


def starts(root: Path, run: str) -> list[tuple[int, int]]:
    """(pid, first step) of each time a toy run began, over all its seeds."""
    lines = [
        line
        for path in sorted((root / "runs").glob(f"{run}-*/starts.txt"))
        for line in path.read_text().splitlines()
    ]
    return [(int(pid), int(step)) for pid, step in map(str.split, lines)]
