"""Workers without a launcher, forked from one process that has imported them: they start at once."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from forks_support import Process, fork

from jestlab.platform.launch.executor import Job
from jestlab.platform.launch.executors.local import Forked, Local


class ForkingLocal(Local):
    """The executor of this machine, whose processes are all forks of the server.

    So no launch of this test process has to import the worker, or JAX, again.
    """

    def _forked(self, job: Job) -> Forked:
        variables = {**os.environ, **self.environment(), **job.environment}
        return fork(job.arguments, variables, job.log, job.imports, job.marks)


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
