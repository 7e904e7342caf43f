"""Real labs for tests: `jestlab` in processes of its own, and what it leaves behind."""

import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from forks_support import COMMAND, Process, fork, forks_of, python_path
from tests.waiting import wait_until as wait_until

from jestlab.platform.cli import main
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import executors
from jestlab.platform.launch.controller import launch
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executors.base import Executor
from jestlab.platform.launch.options import ControllerOptions
from jestlab.platform.launch.outcome import LaunchOutcome
from jestlab.platform.planning import recording
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store

JESTLAB = [sys.executable, "-c", "from jestlab.platform.cli import main; main()"]
_MARKER = "JESTLAB_TEST_LAB"


def variables(root: Path) -> dict[str, str]:
    """Variables that mark a lab's processes, let its workers find `toy_programs`, and make launches quick."""
    fast = {"JESTLAB_POLL_SECONDS": "0.2", "JESTLAB_BACKOFF_SECONDS": "0.1", "JESTLAB_API_PAUSE_SECONDS": "0"}
    return {"PYTHONPATH": python_path(), _MARKER: str(root), **fast}


def write_study(folder: Path, **parts: Any) -> Path:
    study = {
        "name": "toy",
        "program": "toy_programs:loop",
        "base": {"steps": 10},
        "runs": {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 12}},
        "resources": {"retries": 0},
        "metrics": {"toy/*": {"goal": "max", "unit": "percent"}},
    }
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(study | parts))
    return path


def here(*arguments: object, root: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end in this process, which is faster where no signal is the subject."""
    words = [*map(str, arguments), *([] if root is None else ["--root", str(root)])]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code: Any = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(words)
        except SystemExit as stopped:
            code = stopped.code
    said, complained = (bytes(stream.buffer.getvalue()).decode() for stream in (out, err))
    return subprocess.CompletedProcess(words, int(code or 0), said, complained)


def planned(spec: Path) -> Plan:
    """Plan the study of a file."""
    return plan(load(str(spec)))


def launch_here(
    root: Path,
    study: Plan | Path,
    *,
    make: Callable[..., Executor] | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> LaunchOutcome:
    """Record a plan and launch it in this process, by a new executor or the one that `jestlab` finds."""
    whole = study if isinstance(study, Plan) else planned(study)
    lab, wakeup, resources = Lab.find(root), threading.Event(), whole.study.resources
    if make is None:
        executor = executors.get("local", resources, Settings(), lab, wakeup.set)
    else:
        executor = make(lab, resources, wakeup.set)
    how = {"retries": resources.retries, "lease_seconds": resources.lease_seconds, **options}
    given: dict[str, Any] = {"options": ControllerOptions(**how), "listener": listener, "wakeup": wakeup}
    with closing(Store.open(lab.store_url)) as store:
        recording.record(store, whole)
        return launch(lab, store, whole.study.name, whole.runs, lambda _: executor, **given)


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Context in which another thread acts, while this one launches; what goes wrong there is raised here."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(act)
        yield
        done.result()


class Command(Process):
    """`jestlab` in a session of its own. Forked, it starts at once. `stdout` has all that it prints."""

    def __init__(self, *arguments: object, root: Path, ignoring_sigint: bool = False) -> None:
        """Start it; ignoring SIGINT like what a script puts in the background, if that is wanted."""
        how = "ignoring SIGINT" if ignoring_sigint else "1"
        environment = {**os.environ, **variables(root), "JESTLAB_TEST_COMMAND": how}
        pipe = Path(tempfile.mkdtemp(prefix="jestlab-command-")) / "output"
        os.mkfifo(pipe)
        ours = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # or it would wait for the other end
        super().__init__(fork([*map(str, arguments), "--root", str(root)], environment, pipe, COMMAND))
        os.set_blocking(ours, True)
        self.stdout = os.fdopen(ours, encoding="utf-8", errors="replace")

    def communicate(self, timeout: float = 120.0) -> tuple[str, None]:
        """Wait for its end, and return the rest of what it has printed."""
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired("jestlab", timeout)
        self.wait(timeout)
        return said[0], None


@contextmanager
def started(*arguments: object, root: Path, ignoring_sigint: bool = False) -> Iterator[Command]:
    """Start the command line in a session of its own; whatever is left of it is killed in the end."""
    process = Command(*arguments, root=root, ignoring_sigint=ignoring_sigint)
    try:
        yield process
    finally:
        for pid in processes_of(root):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()
        process.stdout.close()


def processes_of(root: Path) -> list[int]:
    """Live processes of a lab, found by their environment, however they were started; and its forks."""
    marker = f"{_MARKER}={root}\0".encode()
    found = forks_of(root)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if marker in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it ended just now
            continue
    return found


def wait_until_ended(root: Path, seconds: float = 30.0) -> None:
    """Wait until no process of a lab is left; a killed one takes a moment to end.

    Raises:
        AssertionError: Some are left; the message names their commands.
    """
    deadline = time.monotonic() + seconds
    while left := processes_of(root):
        if time.monotonic() > deadline:
            status = [Path(f"/proc/{pid}/status").read_text().split("\nUmask")[0].split() for pid in left]
            commands = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in left]
            raise AssertionError(f"processes left after {seconds} s: {commands} {status}")
        time.sleep(0.02)


def starts(root: Path, run: str) -> list[tuple[int, int]]:
    """(pid, first step) of each time a toy run began, over all its seeds."""
    lines = [
        line
        for path in sorted((root / "runs").glob(f"{run}-*/starts.txt"))
        for line in path.read_text().splitlines()
    ]
    return [(int(pid), int(step)) for pid, step in map(str.split, lines)]


def hide_packages(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make packages look as if they were not installed."""
    find = metadata.distribution

    def distribution(name: str) -> metadata.Distribution:
        if name in packages:
            raise metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(metadata, "distribution", distribution)


def hide_modules(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make imports of modules fail as if they were not installed."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
