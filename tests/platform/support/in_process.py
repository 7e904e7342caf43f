"""Executors without processes: jobs are threads of the test, or only have a state."""

from __future__ import annotations

import functools
import os
import sqlite3
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import labs_support as labs
import plans_support as plans

from jestlab.platform import logs, processes, programs, worker
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.outcome import LaunchOutcome
from jestlab.platform.planning.plan import Plan
from jestlab.platform.programs import failures
from jestlab.platform.programs.context import Interrupted, RunContext
from jestlab.platform.store import provenance
from jestlab.platform.store.attempt import WorkerAttempt
from jestlab.platform.store.records import AttemptLost, RunRecord
from jestlab.platform.store.store import Store

_SECONDS = 60.0
"""Deadline of everything that is waited for here."""

HARMS = {
    "kill": JobStatus(JobState.FAILED, "killed by SIGKILL", -9),
    "vanish": JobStatus(JobState.GONE),
    "preempt": JobStatus(JobState.PREEMPTED, "node drained"),
}
"""What can be done to a job in mid-run → what its executor then says of it."""


def launch_by(
    executor: Executor, root: Path, study: Plan | Path, listener: Listener | None = None, **options: Any
) -> LaunchOutcome:
    """Record a plan in a lab and launch it, without retries, by an executor that is called kubernetes."""
    how = {"on": "kubernetes", "retries": 0, **options}
    return labs.launch_here(root, study, make=lambda *_: executor, listener=listener, **how)


def rows(root: Path, sql: str) -> list[tuple[Any, ...]]:
    """Query a lab's SQLite store; while it is being made, it has no rows."""
    try:
        with closing(sqlite3.connect(f"file:{root / 'results.db'}?mode=ro", uri=True)) as database:
            return database.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []


class Scripted(Executor):
    """Jobs that do nothing: a job that is not in `states` has the status of all."""

    name = "kubernetes"

    def __init__(self, status: JobStatus, before_launch: Callable[[], object] = lambda: None) -> None:
        self.status = status
        self.states: dict[str, JobStatus] = {}
        self.batches: list[int] = []
        self.launched: list[str] = []
        self.stopped: list[str] = []
        self.asked = 0
        self.before_launch = before_launch
        self.halted = False

    def launch(self, job: Job) -> LaunchedJob:
        raise NotImplementedError

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        self.batches.append(len(jobs))
        self.before_launch()
        if self.halted:
            return [ExecutorError("the launch was stopped") for _ in jobs]
        self.launched += [job.name for job in jobs]
        return [LaunchedJob(job.name, job.key) for job in jobs]

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        self.asked += 1
        return {job: self.states.get(job.handle, self.status) for job in jobs}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        self.stopped.append(job.handle)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        yield b""

    def halt(self) -> None:
        self.halted = True


class Machine:
    """Runs jobs as threads; its executors share them, as processes share a computer."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.threads: dict[LaunchedJob, _Thread] = {}
        self.before_launch: Callable[[Job], object] = lambda job: None
        self.on_freeze: Callable[[], object] = lambda: None
        self._harms: dict[str, tuple[str, int]] = {}

    def harm(self, run: str, how: str, step: int) -> None:
        """Let the next job of a run come to harm at a step.

        `how` is one of `HARMS`; "freeze", as by SIGSTOP; "interrupt", as by SIGTERM; or "ignore", for a job
        that ignores every later request to stop.
        """
        self._harms[run] = (how, step)

    def executor(
        self, lab: Lab, resources: Any = None, on_exit: Callable[[], object] = lambda: None
    ) -> Threads:
        """Create an executor, which takes the place of `LocalExecutor`."""
        return Threads(self, lab, on_exit)

    def start(self, job: Job, launched: LaunchedJob, on_exit: Callable[[], object]) -> None:
        """Start the thread of a job, unless it exists."""
        if launched not in self.threads:
            self.jobs.append(job)
            thread = _Thread(self, job, launched, self._harms.pop(job.labels["run"], None), on_exit)
            self.threads[launched] = thread
            thread.start()

    def count(self, run: str) -> int:
        """Count the jobs of a run."""
        return sum(job.labels["run"] == run for job in self.jobs)

    def close(self) -> None:
        """Kill the remaining jobs."""
        for thread in self.threads.values():
            thread.kill()


class Threads(Executor):
    """Launches the jobs of a `Machine`."""

    name = "local"
    here = True
    parallel = 2
    grace_seconds = 0.5

    def __init__(self, machine: Machine, lab: Lab, on_exit: Callable[[], object]) -> None:
        self._machine = machine
        self._lab = lab
        self._on_exit = on_exit
        self._launched: list[LaunchedJob] = []
        self._halted = False

    def launch(self, job: Job) -> LaunchedJob:
        if self._halted:
            raise ExecutorError("the launch was stopped")
        self._machine.before_launch(job)
        handle = f"{processes.Process.of(os.getpid())}:{job.log.relative_to(self._lab.root)}"
        launched = LaunchedJob(handle, job.key)
        self._machine.start(job, launched, self._on_exit)
        self._launched.append(launched)
        return launched

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        threads = self._machine.threads
        return {job: threads[job].status if job in threads else JobStatus(JobState.GONE) for job in jobs}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        if (thread := self._machine.threads.get(job)) is not None:
            thread.kill() if now else thread.interrupt()

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        yield self._machine.threads[job].job.log.read_bytes()

    def halt(self) -> None:
        self._halted = True

    def settle(self, seconds: float) -> None:
        for launched in self._launched:
            self._machine.threads[launched].join(seconds)


class _Killed(BaseException):
    """Ends the program of a killed job at its next call."""


class _Thread(threading.Thread):
    """The worker of one job."""

    def __init__(
        self,
        machine: Machine,
        job: Job,
        launched: LaunchedJob,
        harm: tuple[str, int] | None,
        on_exit: Callable[[], object],
    ) -> None:
        super().__init__(name=job.name, daemon=True)
        self.job = job
        self.status = JobStatus(JobState.RUNNING)
        self._machine = machine
        self._handle = launched.handle
        self._harm = harm
        self._on_exit = on_exit
        self._asked: str | None = None
        self._ignores = False
        self._killed = threading.Event()
        self._end = HARMS["kill"]

    @property
    def was_stopped(self) -> bool:
        """Whether it was asked to stop, or killed."""
        return self._asked is not None or self._killed.is_set()

    def interrupt(self) -> None:
        self._asked = "stopped by SIGTERM"

    def kill(self) -> None:
        """Kill it, and wait until it has ended."""
        self._killed.set()
        self.join(_SECONDS)
        assert not self.is_alive()

    def run(self) -> None:
        given = dict(zip(self.job.arguments[::2], self.job.arguments[1::2], strict=True))
        lab = Lab.find(given["--root"], self.job.environment["JESTLAB_STORE"])
        with closing(Store.open(lab.store_url, create=False)) as store:
            try:
                self.status = self._work(lab, store, given["--run"], int(given["--attempt"]))
            except _Killed:
                self.status = self._end
        self._on_exit()

    def _work(self, lab: Lab, store: Store, fingerprint: str, number: int) -> JobStatus:
        run = store.run(fingerprint)
        try:
            attempt = self._begin(lab, store, run, number)
            try:
                return _status(self._compute(lab, run, attempt))
            finally:
                attempt._ended = True  # also where the job was killed: nothing more is written
                attempt._wake.set()
                attempt._ticker.join()
        except AttemptLost:
            return _status(processes.EXIT_BUSY)

    def _begin(self, lab: Lab, store: Store, run: RunRecord, number: int) -> WorkerAttempt:
        """Begin an attempt, as a worker does."""
        recorded, wanted = plans.HERE, provenance.RunDetails()
        if run.program == "command":  # the sources of toy programs are the whole repository
            wanted = replace(worker._wanted(run, store.studies(run.fingerprint)), interpreter=None)
            recorded = provenance.collect(Path(__file__).parent, [], wanted)
        given = {"directory": lab.make_folder(run.directory), "provenance": recorded, "handle": self._handle}
        attempt = WorkerAttempt(store, run.fingerprint, number, **given)
        attempt.catch_up()
        if wanted.sources is not None:
            provenance.store_texts(store, wanted.sources.values(), provenance.cleaner())
        with self.job.log.open("a") as log:
            log.write(f"--- attempt {number}\n")
        return attempt

    def _compute(self, lab: Lab, run: RunRecord, attempt: WorkerAttempt) -> int:
        """Run a program, store how it ended, and return the exit code, as a worker does."""
        stop = worker.Stop()
        stop.asked = lambda: None if self._ignores else self._asked or attempt.stop_requested()
        artifact = functools.partial(attempt.artifact, root=lab.root)
        context = worker._context(lab, run, attempt, artifact, stop)

        def progress(step: int, total_steps: int) -> None:
            RunContext.progress(context, step, total_steps)
            self._look(attempt, step)

        try:
            with mock.patch.object(context, "progress", progress):
                programs.get(run.program).entry(run.config, context)
        except Interrupted:
            attempt.interrupt(stop.reason or "")
            return processes.EXIT_STOPPED
        except Exception as error:
            with self.job.log.open("a") as file:
                traceback.print_exc(file=file)
            code = processes.EXIT_REFUSED if failures.recurs(error, lab.root) else processes.EXIT_FAILED
            attempt.fail(logs.one_line(f"{type(error).__name__}: {error}"), code)
            return code
        attempt.complete()
        return processes.EXIT_COMPLETED

    def _look(self, attempt: WorkerAttempt, step: int) -> None:
        """Do the harm that is planned for a step; raise if the job was killed."""
        if self._harm is not None and step >= self._harm[1]:
            how, self._harm = self._harm[0], None
            if how == "interrupt":
                self.interrupt()
                return
            if how == "ignore":
                self._ignores = True
                return
            if how == "freeze":
                attempt._ended = True
                attempt._wake.set()
                self._machine.on_freeze()
                self._killed.wait(_SECONDS)
            else:
                self._end = HARMS[how]
            raise _Killed
        if self._killed.is_set():
            raise _Killed


def _status(code: int) -> JobStatus:
    if code == processes.EXIT_COMPLETED:
        return JobStatus(JobState.SUCCEEDED, "", code)
    return JobStatus(JobState.FAILED, processes.describe_exit(code), code)
