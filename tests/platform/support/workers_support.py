"""Workers without a launcher, forked from one process that has imported them: they start at once."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import labs_support as labs

from jestlab.platform.launch.executor import Job
from jestlab.platform.launch.executors.local import Forked, ForkServer, Local

_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
"""Of this test process, before any test has changed it."""


@functools.cache
def _server(heavy: bool) -> ForkServer:
    """A server of this test process; it ends with it.

    Those who do without JAX have a server of their own: once JAX is imported, it complains of later forks.
    """
    environment = {**_ENVIRONMENT, "PYTHONPATH": labs.variables(Path())["PYTHONPATH"]}
    return ForkServer(environment, Path(tempfile.gettempdir()) / f"jestlab-test-forkserver-{os.getpid()}.txt")


def _forked(job: Job) -> Forked:
    """Fork a job with this process's working directory, and with nothing but the variables it is given."""
    imports = ("forked", *job.imports)
    process = _server(bool(job.imports)).start(
        dataclasses.replace(
            job, imports=imports, environment={**job.environment, "JESTLAB_TEST_FOLDER": str(Path.cwd())}
        )
    )
    labs.note_fork(job.arguments, process.pid)
    return process


class ForkingLocal(Local):
    """The executor of this machine, whose processes are all forks of the server.

    So no launch of this test process has to import the worker, or JAX, again.
    """

    def _forked(self, job: Job) -> Forked:
        variables = {**os.environ, **self.environment(), **job.environment}
        return _forked(dataclasses.replace(job, environment=variables))


class Worker:
    """A worker with this process's environment, as far as tests use `subprocess.Popen`."""

    def __init__(
        self,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        """Start it.

        Args:
            arguments: Of `python -m jestlab.platform.worker`.
            environment: Variables besides this process's.
            log: What it prints; None for a temporary file.
            imports: Modules that it finds imported.
        """
        self._log = log or Path(tempfile.mkdtemp(prefix="jestlab-worker-")) / "log.txt"
        words = [str(argument) for argument in arguments]
        variables = {**os.environ, **(environment or {})}
        self._process = _forked(Job("worker", "worker", words, variables, self._log, imports=imports))
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout: float = 120.0) -> int:
        code = self._process.wait(timeout)
        if code is None:
            self.kill()
            raise subprocess.TimeoutExpired("worker", timeout, self._log.read_bytes())
        return code

    def communicate(self, timeout: float = 60.0) -> tuple[None, str]:
        """What it has printed, once it has ended."""
        self.wait(timeout)
        return None, self._log.read_text()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
