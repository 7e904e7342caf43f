"""Executors without processes: jobs are threads of the test, or only have a state."""

from __future__ import annotations

import os
import sqlite3
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
from workers_support import replace_local_executor

from jestlab.models.training.phases import PhaseClock
from jestlab.platform import processes, worker
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.sync import LocalFolder
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
    ended,
)
from jestlab.platform.launch.outcome import LaunchOutcome
from jestlab.platform.planning.plan import Plan
from jestlab.platform.programs.context import RunContext
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

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        """Let launches on "this machine" start threads instead of processes."""
        _patch_worker(patch)
        replace_local_executor(patch, self.executor)
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
        return Threads(self, lab, on_exit)

    def start(self, job: Job, launched: LaunchedJob, on_exit: Callable[[], object]) -> None:
        """Start the thread of a job, unless it exists."""
        if launched not in self.threads:
            self.jobs.append(job)
            harm = self._harms.pop(job.labels["run"], None)
            thread = _Thread(self, job, launched.handle, harm, on_exit)
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
            if now:
                thread.kill()
            else:
                thread.stop.reason = "stopped by SIGTERM"

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        yield self._machine.threads[job].job.log.read_bytes()

    def halt(self) -> None:
        self._halted = True

    def settle(self, seconds: float) -> None:
        for launched in self._launched:
            self._machine.threads[launched].join(seconds)


class _Killed(AttemptLost):
    """Ends a killed job at its next call, which writes nothing more."""


class _Stop(worker.Stop):
    """Requests to stop, which a job may ignore."""

    ignored = False

    def requested(self) -> bool:
        return super().requested() and not self.ignored


@dataclass(eq=False, repr=False)
class _Thread(threading.Thread):
    """The worker of one job."""

    machine: Machine
    job: Job
    handle: str
    harm: tuple[str, int] | None
    on_exit: Callable[[], object]
    status: JobStatus = field(default_factory=lambda: JobStatus(JobState.RUNNING))
    stop: _Stop = field(default_factory=_Stop)
    killed: threading.Event = field(default_factory=threading.Event)
    end: JobStatus | None = None
    attempt: WorkerAttempt | None = None

    def __post_init__(self) -> None:
        super().__init__(name=self.job.name, daemon=True)

    @property
    def was_stopped(self) -> bool:
        """Whether it was asked to stop, or killed."""
        return self.stop.reason is not None or self.killed.is_set()

    def kill(self) -> None:
        """Kill it, and wait until it has ended."""
        self.killed.set()
        self.join(_SECONDS)
        assert not self.is_alive()

    def run(self) -> None:
        given = dict(zip(self.job.arguments[::2], self.job.arguments[1::2], strict=True))
        lab = Lab.find(given["--root"], self.job.environment["JESTLAB_STORE"])
        with closing(Store.open(lab.store_url, create=False)) as store:
            run = store.run(given["--run"])
            lab.make_folder(run.directory)
            parts = (lab, store, run, int(given["--attempt"]), self.stop, LocalFolder(), PhaseClock())
            code = worker._guarded(lambda: worker._attempt(*parts))
        self.status = self.end or ended(code)
        self.on_exit()

    def say(self, text: str) -> None:
        with self.job.log.open("a") as log:
            log.write(f"{text}\n")

    def begin(self, *values: Any, **options: Any) -> WorkerAttempt:
        self.attempt = WorkerAttempt(*values, **options | {"handle": self.handle})
        return self.attempt

    def context(self, *values: Any, **options: Any) -> RunContext:
        context = _context(*values, **options)
        progress = context.progress

        def observed(step: int, total_steps: int) -> None:
            progress(step, total_steps)
            self._look(step)

        context.progress = observed  # type: ignore[method-assign]
        return context

    def _look(self, step: int) -> None:
        """Do the harm that is planned for a step; raise if the job was killed."""
        how = "kill" if self.killed.is_set() else ""
        if self.harm is not None and step >= self.harm[1]:
            how, self.harm = self.harm[0], None
        if how == "interrupt":
            self.stop.reason = "stopped by SIGTERM"
        elif how == "ignore":
            self.stop.ignored = True
        elif how:
            assert self.attempt is not None
            self.end, self.attempt._ended = HARMS.get(how, HARMS["kill"]), True
            self.attempt._wake.set()
            self.attempt._ticker.join()
            if how == "freeze":
                self.machine.on_freeze()
                self.killed.wait(_SECONDS)
            raise _Killed


_context, _wanted, _collect = worker._context, worker._wanted, provenance.collect


def _here() -> _Thread:
    thread = threading.current_thread()
    assert isinstance(thread, _Thread)
    return thread


def _recorded(run: RunRecord, studies: Any) -> provenance.RunDetails:
    if run.program != "command":  # the sources of toy programs are the whole repository
        return provenance.RunDetails()
    return replace(_wanted(run, studies), interpreter=None)


def _collected(code: Path, parts: Any, wanted: provenance.RunDetails) -> provenance.Provenance:
    return _collect(code, (), wanted) if wanted.sources else plans.HERE


def _patch_worker(patch: pytest.MonkeyPatch) -> None:
    """Let the worker's functions run in threads of this process, whose children are not theirs."""
    printed = SimpleNamespace(print_exc=lambda: _here().say(traceback.format_exc()))
    changes: dict[str, Any] = {
        "WorkerAttempt": lambda *values, **options: _here().begin(*values, **options),
        "_context": lambda *values, **options: _here().context(*values, **options),
        "_say": lambda line: _here().say(line),
        "_wanted": _recorded,
        "_end_descendants": lambda: None,
        "_log_to_standard_error": lambda: None,
        "traceback": printed,
    }
    for name, value in changes.items():
        patch.setattr(worker, name, value)
    patch.setattr(provenance, "collect", _collected)
