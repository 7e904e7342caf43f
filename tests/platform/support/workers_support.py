"""Workers without a launcher, forked from one process that has imported them, so that they start at once."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import plans_support as plans
import pytest
from forks_support import Process, fork

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import Executor, Job
from jestlab.platform.launch.executors.forkserver import Forked
from jestlab.platform.launch.executors.local import LocalExecutor
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store.store import Store


class ForkingLocal(LocalExecutor):
    """The executor of this machine, whose processes are all forks of the server.

    So no launch of this test process has to import the worker, or JAX, again.
    """

    def _forked(self, job: Job) -> Forked:
        variables = {**os.environ, **self.environment(), **job.environment}
        return fork(job.arguments, variables, job.log, job.imports, job.key)


class Worker(Process):
    def __init__(
        self,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        self._log = log or Path(tempfile.mkdtemp(prefix="jestlab-worker-")) / "log.txt"
        words = [str(argument) for argument in arguments]
        variables = {**os.environ, **(environment or {})}
        super().__init__(fork(words, variables, self._log, imports))

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for its end; one that does not end is killed, and what it has printed is told."""
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise subprocess.TimeoutExpired("worker", timeout, self._log.read_bytes()) from error

    def communicate(self, timeout: float = 60.0) -> tuple[None, str]:
        self.wait(timeout)
        return None, self._log.read_text()


def recorded(lab: Lab, *runs: PlannedRun) -> Store:
    """Record runs as the experiment `toy`, and return the store."""
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(*runs))
    return store


def worker(lab: Lab, run: PlannedRun, attempt: int | None = None) -> Worker:
    """Start a worker for an attempt; without one, for a new attempt."""
    if attempt is None:
        attempt = plans.claimed(Store.open(lab.store_url), run)
    return Worker("--root", lab.root, "--run", run.fingerprint, "--attempt", attempt)


def finished(lab: Lab, run: PlannedRun, attempt: int | None = None) -> tuple[int | None, str]:
    """Run a worker to its end, and return its exit code and output."""
    process = worker(lab, run, attempt)
    output = process.communicate()[1]
    return process.returncode, output


def replace_local_executor(patch: pytest.MonkeyPatch, make: Callable[..., Executor]) -> None:
    """Let launches on this machine use what `make` returns for a lab, resources, and `on_exit`."""
    patch.setattr(LocalExecutor, "create", lambda lab, _, resources, on_exit: make(lab, resources, on_exit))
