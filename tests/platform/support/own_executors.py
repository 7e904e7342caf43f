"""Custom executors: one that wraps the command of a process, and one written from the interface."""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.executors.local import LocalExecutor


class Wrapped(LocalExecutor):
    """Processes of this machine, behind a command such as `nice -n 5 {worker}`."""

    def __init__(self, *args: Any, command: str = "{worker}") -> None:
        super().__init__(*args)
        self._words = shlex.split(command)

    def command(self, job: Job) -> list[str]:
        return [word for part in self._words for word in (job.command if part == "{worker}" else [part])]


class Plain(Executor):
    """Processes that write their output, and how they end, into files next to the log."""

    here = False  # so that its jobs are known by their marks

    def __init__(self, lab: Lab, resources: Any, on_exit: Any, *, say: str = "") -> None:
        self._lab = lab
        self._say = say
        self._children: list[subprocess.Popen[bytes]] = []

    def launch(self, job: Job) -> LaunchedJob:
        place = self._lab.root / job.name
        launched = LaunchedJob(job.name, job.key)
        if place.is_dir():
            return launched
        place.mkdir(parents=True)
        (place / "marks").write_text(str(job.key))
        (place / "out").touch()
        script = f"{shlex.join(job.command)} > out 2>&1 & echo $! > new; mv new pid; wait $!; echo $? > ended"
        environment = {**os.environ, **job.environment, "SAY": self._say}
        self._children.append(
            subprocess.Popen(["sh", "-c", script], cwd=place, env=environment, start_new_session=True)
        )
        return launched

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        return {job: self._status(job) for job in jobs}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        if self._status(job).state is JobState.RUNNING:
            with contextlib.suppress(ProcessLookupError):
                pid = int((self._place(job) / "pid").read_text())
                os.kill(pid, signal.SIGKILL if now else signal.SIGTERM)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        if not self._is_its(job):
            raise ExecutorError("the job is unknown")
        yield (self._place(job) / "out").read_bytes()

    def _status(self, job: LaunchedJob) -> JobStatus:
        if not self._is_its(job):
            return JobStatus(JobState.GONE, "another attempt's")
        ended = self._place(job) / "ended"
        if not ended.exists() or not ended.read_text().strip():
            return JobStatus(JobState.RUNNING if (self._place(job) / "pid").exists() else JobState.QUEUED)
        code = int(ended.read_text())
        code = 128 - code if code > 128 and code != 143 else code
        return JobStatus(JobState.FAILED if code else JobState.SUCCEEDED, f"exit code {code}", code)

    def _is_its(self, job: LaunchedJob) -> bool:
        key = self._place(job) / "marks"
        return key.exists() and key.read_text() == str(job.key)

    def _place(self, job: LaunchedJob) -> Path:
        return self._lab.root / job.handle


class NoStop(LocalExecutor):
    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        if now:
            super().stop(job, now=now)


class Twice(LocalExecutor):
    def launch(self, job: Job) -> LaunchedJob:
        self._children.clear()
        return super().launch(job)


class AnyMarks(Plain):
    def _is_its(self, job: LaunchedJob) -> bool:
        return self._place(job).is_dir()


class Silent(Plain):
    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        return iter(())


class Failing(LocalExecutor):
    def launch(self, job: Job) -> LaunchedJob:
        raise KeyError("no such queue")
