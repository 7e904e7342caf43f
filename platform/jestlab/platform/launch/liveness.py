"""A launcher and its heartbeats, signs of life of attempts and other launchers, and how jobs are stopped.

Silence is measured with this process's monotonic clock, because the clocks of other machines may differ.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from jestlab.platform import processes
from jestlab.platform.errors import StoreError, UserError
from jestlab.platform.lab.lab import Lab, identify
from jestlab.platform.launch.executors.base import Executor, JobState, JobStatus, LaunchedJob, ProcessesRemain
from jestlab.platform.launch.options import ControllerOptions, Intervals
from jestlab.platform.launch.reconcile import Signs
from jestlab.platform.processes import Process, is_running
from jestlab.platform.store import leases
from jestlab.platform.store.identity import enter_lab, lab_places
from jestlab.platform.store.records import Lease, RunState
from jestlab.platform.store.store import Store

if TYPE_CHECKING:  # `jestlab status` doesn't need the executors
    from jestlab.platform.launch.display import Listener
    from jestlab.platform.launch.executors import Executors
    from jestlab.platform.spec.resources import ExecutorName

SILENT_SECONDS = 120.0
"""Age of a heartbeat at which users are warned; the clocks of two machines may differ by a part of it."""

clock = time.monotonic
"""Measures silence."""


@dataclass
class Launcher:
    """The store, executors, and options of one launch, and why the launch stops.

    Attributes:
        title: Name of the study.
        stopping: Why no further run starts; None while runs may start.
    """

    lab: Lab
    store: Store
    title: str
    executors: Executors
    options: ControllerOptions
    listener: Listener
    stopping: str | None = None

    def __post_init__(self) -> None:
        self.name = processes.identity()  # by which others find the launcher
        self.store_id = self.store.id()
        self.intervals = Intervals.from_environment()
        self.at_once = self.options.at_once  # whether jobs are killed without time to save
        self._is_registered = False
        self._labs: Mapping[str, str] = {}  # lab id → address

    @property
    def executor(self) -> Executor:
        """Executor of new attempts."""
        return self.executors(self.options.on)

    @functools.cached_property
    def lab_id(self) -> str:
        """Id of the lab, which the first use registers in the store."""
        uid, address, host = identify(self.lab)
        enter_lab(self.store.engine, uid, address, host)
        return uid

    def register(self) -> str:
        """Register the launcher in the store at first use, and return its name."""
        if not self._is_registered:
            leases.enter_launcher(self.store, self.name, self.lab_id)
            self._is_registered = True
        return self.name

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Context in which another thread sends heartbeats, once the launcher is registered."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(self.intervals.heartbeat):
                with suppress(StoreError):  # the next heartbeat may succeed
                    if self._is_registered:
                        leases.beat_launcher(self.store, self.name)

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def leave(self) -> None:
        """Remove the launcher from the store if it is registered."""
        if self._is_registered:
            leases.remove_launcher(self.store, self.name)

    def other_lab(self, lease: Lease | None) -> str | None:
        """Return the address of the lab with an attempt's files; None if it is this lab or unknown."""
        if lease is None or lease.lab in (None, self.lab_id):
            return None
        if lease.lab not in self._labs:
            self._labs = lab_places(self.store.engine)
        return self._labs.get(lease.lab or "")


class Liveness:
    """Checks live attempts for one launcher."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._seen: dict[Hashable, tuple[object, float]] = {}  # last sign, and since when

    def check(self, attempts: Iterable[Lease]) -> dict[int, Signs]:
        """Return the signs of life of live attempts by id, with one request to each executor."""
        live = list(attempts)
        # Launchers are read after attempts: otherwise a new launcher would look lost.
        has_others = any(lease.launcher != self._launcher.name for lease in live)
        heartbeats = leases.heartbeats(self._launcher.store) if has_others else {}
        jobs = self._jobs(live)
        return {
            lease.id: Signs(
                job=jobs[lease.id],
                ours=lease.launcher == self._launcher.name,
                orphaned=self._is_orphaned(lease.launcher, heartbeats),
                silent_seconds=self.silence(lease.id, (lease.heartbeat_at, jobs[lease.id].state)),
            )
            for lease in live
        }

    def forget(self) -> None:
        """Restart the measurement of silence: no heartbeat arrives while the store can't be reached."""
        self._seen.clear()

    def silence(self, thing: Hashable, sign: object) -> float:
        """Return the seconds since a thing first showed its current sign, such as its last heartbeat."""
        if thing not in self._seen or self._seen[thing][0] != sign:
            self._seen[thing] = (sign, clock())
        return clock() - self._seen[thing][1]

    def _is_orphaned(self, name: str | None, heartbeats: Mapping[str, object]) -> bool:
        """Return whether a launcher is lost."""
        if name == self._launcher.name:
            return False
        if name is None or name not in heartbeats:
            return True
        silent = self.silence(name, heartbeats[name])
        return is_running(name) is False or silent > self._launcher.options.lease_seconds

    def _jobs(self, attempts: Iterable[Lease]) -> dict[int, JobStatus]:
        """Return the status of each attempt's job, by attempt id."""
        launched: dict[ExecutorName, dict[LaunchedJob, int]] = {}
        jobs = {}
        for lease in attempts:
            if (job := LaunchedJob.of(self._launcher.store_id, lease)) is not None:
                launched.setdefault(lease.executor, {})[job] = lease.id
            else:
                # A RUNNING attempt has a job even if its launcher died before it stored the handle.
                state = JobState.UNKNOWN if lease.state == RunState.RUNNING else JobState.GONE
                jobs[lease.id] = JobStatus(state, "it was never launched")
        for name, ids in launched.items():
            try:
                statuses = self._launcher.executors(name).statuses(list(ids))
            except UserError as error:
                statuses = dict.fromkeys(ids, JobStatus(JobState.UNKNOWN, str(error)))
            jobs |= {ids[job]: status for job, status in statuses.items()}
        return jobs


class Termination:
    """Stops jobs: first with a request, after the executor's grace period by killing them."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._kill_at: dict[LaunchedJob, float] = {}  # end of the grace period of jobs asked to stop
        self._noted: set[LaunchedJob] = set()

    def stop(self, lease: Lease) -> None:
        """Stop the job of an attempt, if this store launched it."""
        if (job := self._job(lease)) is not None:
            self.stop_job(lease.executor, job)

    def stop_job(self, executor: ExecutorName, job: LaunchedJob) -> None:
        """Request a job to stop; kill it once the grace period is over."""
        at, is_new = time.monotonic(), job not in self._kill_at
        kill_at = self._kill_at.setdefault(job, at + self._launcher.executors(executor).grace_seconds)
        kill = self._launcher.at_once or at > kill_at
        if kill or is_new:
            self._send(executor, job, now=kill)

    def kill(self, lease: Lease) -> bool:
        """Kill an attempt's job and its remaining processes; return False if some of them still run."""
        job = self._job(lease)
        return job is None or self._send(lease.executor, job, now=True)

    def clear(self, lease: Lease) -> bool:
        """Kill the remaining processes of a finished attempt here; return False if some still run."""
        job = self._job(lease)
        is_here = job is not None and lease.executor == "local" and Process.parse(job.handle).is_here
        return not is_here or self.kill(lease)

    def _job(self, lease: Lease) -> LaunchedJob | None:
        # An imported attempt has none, and may name any executor.
        return LaunchedJob.of(self._launcher.store_id, lease)

    def _send(self, executor: ExecutorName, job: LaunchedJob, *, now: bool) -> bool:
        try:
            self._launcher.executors(executor).stop(job, now=now)
        except ProcessesRemain as error:
            self._note_once(job, f"is still running: {error}; its next attempt starts after it ended")
            return False
        except UserError as error:
            self._note_once(job, f"can't be stopped: {error}")
        return True

    def _note_once(self, job: LaunchedJob, why: str) -> None:
        if job not in self._noted:
            self._noted.add(job)
            self._launcher.listener.note(f"attempt {job.key.attempt} {why}")


def any_launcher(heartbeats: Mapping[str, datetime], at: datetime) -> bool:
    """Return whether any launcher in the store is alive, from names and last heartbeats."""
    return any(
        (at - heartbeat).total_seconds() <= SILENT_SECONDS and is_running(name) is not False
        for name, heartbeat in heartbeats.items()
    )


def doubts(lease: Lease | None, at: datetime) -> str | None:
    """Return why an attempt that is RUNNING in the store may have stopped; None if nothing indicates it."""
    if lease is None or not lease.is_live:
        return None
    if lease.executor == "local" and lease.handle and is_running(lease.handle) is False:
        return "its process has vanished: relaunch to resume"
    silent = (at - lease.heartbeat_at).total_seconds()
    if silent <= SILENT_SECONDS:
        return None
    if lease.launcher is None or is_running(lease.launcher) is False:
        return f"no heartbeat for {silent:.0f} s and no launcher: relaunch to resume"
    return f"no heartbeat for {silent:.0f} s"
