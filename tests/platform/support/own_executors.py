"""Custom executors: one that wraps the command of a process, and one written from the interface."""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
    ended,
)
from jestlab.platform.launch.executors.local import LocalExecutor
from jestlab.platform.processes import exit_from_shell


class Wrapped(LocalExecutor):
    """Processes of this machine, behind a command such as `nice -n 5 {worker}`."""

    def __init__(self, *args: Any, command: str = "{worker}") -> None:
        super().__init__(*args)
        self._words = shlex.split(command)

    def command(self, job: Job) -> list[str]:
        return [word for part in self._words for word in (job.command if part == "{worker}" else [part])]


class Plain(Executor):
    """Processes that write their output, and how they end, into files of a folder, the handle."""

    here = False  # so that its jobs are known by their marks

    def __init__(self, lab: Lab, resources: Any, on_exit: Any, *, say: str = "") -> None:
        self._lab = lab
        self._say = say
        self._children: list[subprocess.Popen[bytes]] = []

    def launch(self, job: Job) -> LaunchedJob:
        place = self._lab.root / job.name
        if not place.is_dir():
            place.mkdir(parents=True)
            (place / "marks").write_text(str(job.key))
            (place / "out").touch()
            run = (
                f"{shlex.join(job.command)} > out 2>&1 & echo $! > new; mv new pid; wait $!; echo $? > ended"
            )
            environment = {**os.environ, **job.environment, "SAY": self._say}
            child = subprocess.Popen(["sh", "-c", run], cwd=place, env=environment, start_new_session=True)
            self._children.append(child)
        return LaunchedJob(job.name, job.key)

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        return {job: self._status(job) for job in jobs}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        if self._status(job).state is JobState.RUNNING:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self._read(job, "pid")), signal.SIGKILL if now else signal.SIGTERM)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        if not self._is_its(job):
            raise ExecutorError("the job is unknown")
        yield self._read(job, "out").encode()

    def _status(self, job: LaunchedJob) -> JobStatus:
        if not self._is_its(job):
            return JobStatus(JobState.GONE, "another attempt's")
        if not (text := self._read(job, "ended").strip()):
            return JobStatus(JobState.RUNNING if self._read(job, "pid") else JobState.QUEUED)
        return ended(exit_from_shell(int(text)))

    def _is_its(self, job: LaunchedJob) -> bool:
        return self._read(job, "marks") == str(job.key)

    def _read(self, job: LaunchedJob, name: str) -> str:
        file = self._lab.root / job.handle / name
        return file.read_text() if file.exists() else ""


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
        return bool(self._read(job, "marks"))


class Silent(Plain):
    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        return iter(())


class Failing(LocalExecutor):
    def launch(self, job: Job) -> LaunchedJob:
        raise KeyError("no such queue")
