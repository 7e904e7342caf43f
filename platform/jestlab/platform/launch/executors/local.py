"""Jobs as processes on this machine. Each has its own session and log, and continues if its launcher ends.

When a worker ends, it ends all processes that it started. If it is killed, this executor ends them; if both
are killed, the next launcher does. The processes are found by their session, and by the job's key in their
environment.

A job with slow imports is forked from a server that has already imported them (see `forkserver`). Any other
job is a new process.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import psutil

from jestlab.platform import logs
from jestlab.platform.errors import StoreUnreachable, UserError, sentence
from jestlab.platform.gpus import VISIBLE_DEVICES, LocalGpus
from jestlab.platform.lab.lab import SERVE_TOKEN, Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    ExecutorUnavailable,
    Job,
    JobKey,
    JobState,
    JobStatus,
    LaunchedJob,
    ProcessesRemain,
    ended,
)
from jestlab.platform.launch.executors.environment import worker_environment
from jestlab.platform.launch.executors.forkserver import Forked, ForkServer, ForkServerError
from jestlab.platform.processes import (
    JOB_KEY,
    Process,
    end_job,
    is_running,
    still_there,
)
from jestlab.platform.spec.resources import LOCAL_PARALLEL, Resources

_EXIT_SECONDS = 5.0
"""How long to wait for the thread that waits for an ended job to kill the job's remaining processes."""
_LOST_SECONDS = 0.5  # between checks of a forked job whose guard has ended


class LocalExecutor(Executor):
    """Launches jobs as processes on this machine. A handle is `machine:pid:start:log` (see `processes`)."""

    name = "local"
    here = True
    grace_seconds = 10.0

    def __init__(
        self, lab: Lab, resources: Resources | None = None, on_exit: Callable[[], None] = lambda: None
    ) -> None:
        """Create an executor, without starting any process.

        Args:
            lab: Lab with the logs and the cache of compiled functions.
            resources: Resources of each job: threads, GPUs that it doesn't share, and memory. While less
                memory is free, a job starts only if no other job runs.
            on_exit: Called from another thread when a job has ended.

        Raises:
            UserError: A job requests more GPUs than this machine has.
        """
        resources = resources or Resources()
        # As many jobs as memory allows, at least one.
        fit = psutil.virtual_memory().total / 1e9 / resources.memory_gb if resources.memory_gb else math.inf
        self._gpus = LocalGpus(resources) if resources.gpus else None
        most = LOCAL_PARALLEL if self._gpus is None else self._gpus.jobs
        self.parallel: int | None = int(max(min(most, fit), 1))
        self._threads = resources.threads_per_task
        self._memory_gb = resources.memory_gb
        self._lab = lab
        self._on_exit = on_exit
        self._children: dict[JobKey, _Child] = {}
        self._server: ForkServer | None = None
        self._forks = type(self).command is LocalExecutor.command
        self._halted = False
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls, lab: Lab, _: Settings, resources: Resources | None, on_exit: Callable[[], None]
    ) -> LocalExecutor:
        """Create an executor."""
        return cls(lab, resources, on_exit)

    def launch(self, job: Job) -> LaunchedJob:
        """Start a job, or return the one that this object started for the same attempt."""
        with self._lock:
            if job.key not in self._children:
                self._children[job.key] = self._start(job)
            return self._children[job.key].job

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the status of each job: UNKNOWN if it is on another machine, or its process is hidden."""
        return {job: self._status(job) for job in jobs}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Send SIGTERM to a job's process group; with `now`, kill its processes and wait for their end."""
        process = Process.parse(job.handle)
        if not process.is_here:
            raise ExecutorError(f"process {process.pid} runs on {process.machine}: stop it there")
        child = self._child(job)
        if child is not None and child.over.is_set() and not child.left:
            return
        try:
            if process.runs() or process.is_hidden():
                os.killpg(process.pid, signal.SIGKILL if now else signal.SIGTERM)
        except ProcessLookupError:
            pass
        except PermissionError:
            reason = f"process {process.pid} belongs to another user: ask them to stop it"
            raise ExecutorError(reason) from None
        if now and (left := end_job(process, str(job.key))):
            raise ProcessesRemain(still_there(left))
        if now and child is not None:
            child.over.wait(_EXIT_SECONDS)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Yield the content of the job's log in the lab."""
        try:
            yield from logs.blocks(self._lab.inside(job.handle.split(":", 3)[3]))
        except (OSError, UserError) as error:
            raise ExecutorError(f"no log: {sentence(error)}") from error

    def halt(self) -> None:
        """Refuse to launch further jobs, including one that is being forked."""
        self._halted = True
        if (server := self._server) is not None:
            server.halt()

    def settle(self, seconds: float) -> None:
        """Wait up to `seconds` until the jobs that this object launched and their processes have ended."""
        deadline = time.monotonic() + seconds
        for child in list(self._children.values()):
            child.over.wait(max(deadline - time.monotonic(), 0.0))

    def close(self) -> None:
        """End the fork server; its jobs continue."""
        self.halt()
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None

    def room(self) -> int | None:
        """Return the number of further jobs that the free GPUs and memory allow; None without a limit.

        While less memory is free than a job requests, return at most 1, and 0 if another job runs.
        """
        room = None if self._gpus is None else self._gpus.room()
        if self._memory_gb is None or psutil.virtual_memory().available / 1e9 >= self._memory_gb:
            return room
        alone = all(child.over.is_set() for child in list(self._children.values()))
        return min(1 if room is None else room, int(alone))

    def command(self, job: Job) -> list[str]:
        """Return the command of a job's process. A derived class may add a prefix; its jobs aren't forked."""
        return job.command

    def environment(self) -> dict[str, str]:
        """Return the variables of a worker in addition to those of this process."""
        return worker_environment(self._threads, self._lab)

    def _child(self, job: LaunchedJob) -> _Child | None:
        """Return the process of a job if this object started it, otherwise None."""
        child = self._children.get(job.key)
        return child if child is not None and child.job == job else None

    def _start(self, job: Job) -> _Child:
        log = job.log.relative_to(self._lab.root)
        self._check_not_halted()
        try:
            self._lab.make_folder(log.parent)
        except StoreUnreachable as error:
            raise ExecutorUnavailable(str(error)) from None
        try:
            worker = self._forked(job) or self._executed(job)
        except OSError as error:
            raise ExecutorError(f"cannot start {self.command(job)[0]}: {sentence(error)}") from error
        name = Process.of(worker.pid)
        child = _Child(LaunchedJob(f"{name}:{log}", job.key), worker, name)
        threading.Thread(target=self._wait, args=(child,), name=job.name, daemon=True).start()
        return child

    def _executed(self, job: Job) -> subprocess.Popen[bytes] | Forked:
        """Start a job as a new process."""
        self._check_not_halted()  # again, because the fork server may have been slow
        taken = {} if self._gpus is None else self._gpus.take()
        if taken is None:
            raise ExecutorUnavailable("all GPUs of this machine are taken")
        gpus = {VISIBLE_DEVICES: ",".join(taken)} if taken else {}
        variables = {**_inherited(), **self.environment(), **gpus, **job.environment, JOB_KEY: str(job.key)}
        try:
            with job.log.open("ab") as log:
                return subprocess.Popen(
                    self.command(job),
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=list(taken.values()),
                    start_new_session=True,
                )
        finally:
            for descriptor in taken.values():
                os.close(descriptor)

    def _forked(self, job: Job) -> Forked | None:
        """Fork a job from the server; return None if the job must start as a new process."""
        if not job.imports or not self._forks or self._gpus is not None:
            return None  # a fork inherits neither the locks of GPUs nor CUDA_VISIBLE_DEVICES
        try:
            if self._server is None:
                self._server = ForkServer({**_inherited(), **self.environment()}, job.log)
            return self._server.start(job, lambda: not self._halted)
        except ForkServerError as error:
            self._forks = False
            if not self._halted:
                with job.log.open("a", encoding="utf-8") as log:
                    log.write(f"jestlab: {error}: from now on each run imports its modules itself\n")
            return None

    def _check_not_halted(self) -> None:
        if self._halted:
            raise ExecutorError("the launch was stopped")

    def _wait(self, child: _Child) -> None:
        child.worker.wait()
        while isinstance(child.worker, Forked) and child.worker.lost and child.name.runs():
            time.sleep(_LOST_SECONDS)
        child.left = end_job(child.name, str(child.job.key))
        child.over.set()
        self._on_exit()

    def _status(self, job: LaunchedJob) -> JobStatus:
        running = is_running(job.handle)
        if (child := self._child(job)) is None:
            if running is None:
                return JobStatus(JobState.UNKNOWN, "on another machine, or owned by another user")
            return JobStatus(JobState.RUNNING if running else JobState.GONE)
        if running is False or child.worker.poll() is not None:
            child.over.wait(_EXIT_SECONDS)  # `_wait` is killing the remaining processes
        if not child.over.is_set():
            return JobStatus(JobState.RUNNING)
        code = child.worker.poll()
        return JobStatus(JobState.GONE) if code is None else ended(code)


@dataclass(eq=False)
class _Child:
    """Process of a job that this object started.

    Attributes:
        name: Name of the worker's process.
        over: Set when the worker has ended and its remaining processes have been killed.
        left: Ids of processes that were killed but are still running.
    """

    job: LaunchedJob
    worker: subprocess.Popen[bytes] | Forked
    name: Process
    over: threading.Event = field(default_factory=threading.Event)
    left: set[int] = field(default_factory=set)


_KERNEL_VARIABLES = ("MPLBACKEND", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "JPY_PARENT_PID")
"""Variables that a notebook's kernel sets for its cells, such as the figure backend and colored output."""


def _inherited() -> dict[str, str]:
    """Return the environment that workers inherit, without a notebook kernel's variables."""
    left_out = (SERVE_TOKEN, *(_KERNEL_VARIABLES if "ipykernel" in sys.modules else ()))
    return {name: value for name, value in os.environ.items() if name not in left_out}
