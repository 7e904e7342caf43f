"""State of a launch and its heartbeats, signs of life of attempts and launchers, and termination of jobs.

The time since a heartbeat is measured with this process's monotonic clock, from when the heartbeat was first
read: clocks of other machines may differ.
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

from jestlab.analysis.units import duration
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
"""Users are warned about older heartbeats. Shorter differences may come from the clocks of two machines."""

clock = time.monotonic
"""Clock for the time since a heartbeat was first read; tests replace it."""


@dataclass
class Launcher:
    """State that the parts of one launch share: store, executors, options, and why the launch stops.

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
        self.name = processes.identity()  # unique name: machine and process
        self.store_id = self.store.id()
        self.intervals = Intervals.from_environment()
        self.at_once = self.options.at_once  # whether to kill jobs instead of giving them time to save
        self._is_registered = False
        self._labs: Mapping[str, str] = {}  # lab id → address

    @property
    def executor(self) -> Executor:
        """The executor that launches new attempts."""
        return self.executors(self.options.on)

    @functools.cached_property
    def lab_id(self) -> str:
        """Id of the lab. The first use registers the lab in the store."""
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
    def sending_heartbeats(self) -> Iterator[None]:
        """Context in which a thread sends the launcher's heartbeats to the store, once it is registered."""
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

    def unregister(self) -> None:
        """Remove the launcher from the store if it is registered."""
        if self._is_registered:
            leases.remove_launcher(self.store, self.name)

    def other_lab(self, lease: Lease | None) -> str | None:
        """Return the address of the lab that has an attempt's files; None for this lab or an unknown one."""
        if lease is None or lease.lab in (None, self.lab_id):
            return None
        if lease.lab not in self._labs:
            self._labs = lab_places(self.store.engine)
        return self._labs.get(lease.lab or "")


class Liveness:
    """Checks live attempts for one launcher."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._seen: dict[Hashable, tuple[object, float]] = {}  # last sign, and when it was first seen

    def check(self, attempts: Iterable[Lease]) -> dict[int, Signs]:
        """Return the signs of life of live attempts by id, with one request to each executor."""
        live = list(attempts)
        # Read launchers after attempts: otherwise the launcher of a new attempt might seem to be missing.
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

    def reset(self) -> None:
        """Restart all measurements of silence: no heartbeats arrive while the store is unreachable."""
        self._seen.clear()

    def silence(self, thing: Hashable, sign: object) -> float:
        """Return the seconds since `sign`, such as the heartbeat of `thing`, was first seen."""
        if thing not in self._seen or self._seen[thing][0] != sign:
            self._seen[thing] = (sign, clock())
        return clock() - self._seen[thing][1]

    def _is_orphaned(self, name: str | None, heartbeats: Mapping[str, object]) -> bool:
        """Return whether the launcher with this name is lost: it has left, has ended, or is silent."""
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
    """Stops jobs: asks each to stop, and kills it after the executor's grace period."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._kill_at: dict[LaunchedJob, float] = {}  # end of the grace period of jobs asked to stop
        self._noted: set[LaunchedJob] = set()

    def stop(self, lease: Lease) -> None:
        """Call `stop_job` for an attempt, unless it was imported or never launched."""
        if (job := self._job(lease)) is not None:
            self.stop_job(lease.executor, job)

    def stop_job(self, executor: ExecutorName, job: LaunchedJob) -> None:
        """Ask a job to stop at the first call; kill it at a call after its grace period, or if `at_once`."""
        at, is_new = time.monotonic(), job not in self._kill_at
        kill_at = self._kill_at.setdefault(job, at + self._launcher.executors(executor).grace_seconds)
        kill = self._launcher.at_once or at > kill_at
        if kill or is_new:
            self._send(executor, job, now=kill)

    def kill(self, lease: Lease) -> bool:
        """Kill an attempt's job and all of its processes; return False if some are still running."""
        job = self._job(lease)
        return job is None or self._send(lease.executor, job, now=True)

    def clear(self, lease: Lease) -> bool:
        """Kill a finished attempt's processes on this machine; return False if some are still running."""
        job = self._job(lease)
        is_here = job is not None and lease.executor == "local" and Process.parse(job.handle).is_here
        return not is_here or self.kill(lease)

    def _job(self, lease: Lease) -> LaunchedJob | None:
        # None for imported attempts, which may name any executor.
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

    def _note_once(self, job: LaunchedJob, problem: str) -> None:
        if job not in self._noted:
            self._noted.add(job)
            self._launcher.listener.note(f"attempt {job.key.attempt} {problem}")


def any_launcher_alive(heartbeats: Mapping[str, datetime], at: datetime) -> bool:
    """Return whether any launcher is alive. `heartbeats` are name → last heartbeat in the store."""
    return any(
        (at - heartbeat).total_seconds() <= SILENT_SECONDS and is_running(name) is not False
        for name, heartbeat in heartbeats.items()
    )


def liveness_warning(lease: Lease | None, at: datetime) -> str | None:
    """Return why an attempt that is live in the store may have stopped; None if it seems to be alive."""
    if lease is None or not lease.is_live:
        return None
    if lease.executor == "local" and lease.handle and is_running(lease.handle) is False:
        return "its process has vanished: relaunch to resume"
    if lease.is_submitted and lease.state == RunState.PENDING:  # waits in a queue, perhaps for days
        return None
    silent = (at - lease.heartbeat_at).total_seconds()
    if silent <= SILENT_SECONDS:
        return None
    silence = f"no heartbeat for {duration(silent / 3600)}"
    if lease.launcher is None or is_running(lease.launcher) is False:
        return f"{silence} and no launcher: relaunch to resume"
    return silence
