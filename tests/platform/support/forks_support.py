"""Processes that start at once: forks of servers that have imported what they need."""

import functools
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from jestlab.platform.launch.executors.base import Job, JobKey
from jestlab.platform.launch.executors.forkserver import Forked, ForkServer

SUPPORT = Path(__file__).parent

COMMAND = (
    "jestlab.platform.cli.launch",
    "jestlab.platform.launch.session",
    "jestlab.platform.launch.controller",
    "jestlab.platform.launch.xmanager",
)
"""What a launch from the command line imports."""

KEY = JobKey("f0" * 16, "f" * 64, 1, "0f" * 16)
"""Of forks that are no job of any store."""

_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
"""Of this test process, before any test has changed it."""

_forks: list[tuple[str, psutil.Process]] = []


def python_path() -> str:
    """PYTHONPATH of processes that shall find `toy_programs`."""
    return os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])


@functools.cache
def _server(kind: str) -> ForkServer:
    """A server of this test process; it ends with it.

    Those who do without JAX have one of their own: once JAX is imported, it complains of later forks.
    """
    folder = Path(tempfile.mkdtemp(prefix="jestlab-test-forkserver-"))
    return ForkServer({**_ENVIRONMENT, "PYTHONPATH": python_path()}, folder / "log.txt")


def fork(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    log: Path,
    imports: Sequence[str] = (),
    key: JobKey = KEY,
) -> Forked:
    """Fork a worker, or what `forked` makes of it, with this process's working directory.

    The lab's root is among its arguments; it finds `imports` imported.
    """
    kind = "command" if imports == COMMAND else "JAX" if imports else "worker"
    environment = {**variables, "JESTLAB_TEST_FOLDER": str(Path.cwd())}
    job = Job("fork", "fork", list(arguments), environment, log, key, imports=("forked", *imports))
    process = _server(kind).start(job)
    root = arguments[arguments.index("--root") + 1]
    with suppress(psutil.NoSuchProcess):  # it has ended already
        _forks.append((root, psutil.Process(process.pid)))
    return process


class Process:
    """A fork, as far as tests use `subprocess.Popen`."""

    def __init__(self, forked: Forked) -> None:
        self.pid = forked.pid
        self.poll = forked.poll
        self._forked = forked

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def wait(self, timeout: float = 120.0) -> int:
        code = self._forked.wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    terminate = functools.partialmethod(send_signal, signal.SIGTERM)
    kill = functools.partialmethod(send_signal, signal.SIGKILL)


def forks_of(root: Path) -> list[int]:
    """Live forks of a lab. Their environment, as the system shows it, is their server's."""
    _forks[:] = [fork for fork in _forks if _lives(fork[1])]
    return [process.pid for lab, process in _forks if lab == str(root)]


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
