"""Heartbeats of this launcher, signs of life of attempts and other launchers, and how jobs are stopped.

Silence is measured with this process's monotonic clock, because the clocks of other machines may differ.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from jestlab.platform.errors import StoreError, UserError
from jestlab.platform.lab.lab import Lab, identify
from jestlab.platform.launch.executors.base import JobState, JobStatus, LaunchedJob, ProcessesRemain
from jestlab.platform.launch.reconcile import Observation, Signs, Target, title
from jestlab.platform.processes import Process, is_running
from jestlab.platform.store import leases
from jestlab.platform.store.identity import enter_lab, lab_places
from jestlab.platform.store.records import Lease, RunState, Standing
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

if TYPE_CHECKING:  # `jestlab status` doesn't need the executors
    from jestlab.platform.launch.executors import Executors
    from jestlab.platform.spec.resources import ExecutorName

SILENT_SECONDS = 120.0
"""Age of a heartbeat at which users are warned; the clocks of two machines may differ by a part of it."""

clock = time.monotonic
"""Measures silence."""

Value = TypeVar("Value")


@dataclass
class Presence:
    """Registers this launcher and its lab in the store at first use, and sends heartbeats."""

    _lab: Lab
    _store: Store
    name: str  # by which others find the launcher
    _heartbeat_seconds: float
    _last_beat: float = 0.0
    _is_registered: bool = False
    _lab_id: str | None = None
    _labs: Mapping[str, str] = field(default_factory=dict)  # lab id → address

    def launcher(self) -> str:
        """Register the launcher and return its name."""
        if not self._is_registered:
            leases.enter_launcher(self._store, self.name, self.lab())
            self._is_registered, self._last_beat = True, time.monotonic()
        return self.name

    def lab(self) -> str:
        """Register the lab and return its id."""
        if self._lab_id is None:
            uid, address, host = identify(self._lab)
            enter_lab(self._store.engine, uid, address, host)
            self._lab_id = uid
        return self._lab_id

    def beat(self) -> None:
        """Send a heartbeat if the launcher is registered and the last heartbeat is old."""
        if self._is_registered and time.monotonic() - self._last_beat > self._heartbeat_seconds:
            leases.beat_launcher(self._store, self.name)
            self._last_beat = time.monotonic()

    async def beating(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Await a coroutine and send heartbeats meanwhile."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait([task], timeout=self._heartbeat_seconds))[0]:
            with suppress(StoreError):  # the work has to continue
                await asyncio.to_thread(self.beat)
        return task.result()

    def leave(self) -> None:
        """Remove the launcher from the store if it is registered."""
        if self._is_registered:
            leases.remove_launcher(self._store, self.name)

    def other_lab(self, lease: Lease | None) -> str | None:
        """Return the address of the lab with an attempt's files; None if it is this lab or unknown."""
        if lease is None or lease.lab in (None, self._lab_id):
            return None
        if lease.lab not in self._labs:
            self._labs = lab_places(self._store.engine)
        return self._labs.get(lease.lab or "")


@dataclass
class Liveness:
    """Checks live attempts for one launcher; other launchers count as lost after `_lease_seconds`."""

    _launcher: str  # its name
    _store: str  # its id
    _executors: Executors
    _lease_seconds: float
    _seen: dict[Hashable, tuple[object, float]] = field(default_factory=dict)  # last sign, and since when

    def check(self, leases: Iterable[Lease], launchers: Mapping[str, object]) -> dict[int, Signs]:
        """Return the signs of life of live attempts by id, with one request to each executor.

        `launchers` has the last heartbeat of each known launcher.
        """
        live = list(leases)
        jobs = self._jobs(live)
        return {
            lease.id: Signs(
                job=jobs[lease.id],
                ours=lease.launcher == self._launcher,
                orphaned=self._is_orphaned(lease.launcher, launchers),
                silent_seconds=self.silence(lease.id, (lease.heartbeat_at, jobs[lease.id].state)),
            )
            for lease in live
        }

    def forget(self) -> None:
        """Restart the measurement of silence: no heartbeat arrives while the store can't be reached."""
        self._seen.clear()

    def silence(self, thing: Hashable, sign: object) -> float:
        """Return the seconds since a thing first showed its current sign, such as its last heartbeat."""
        before = self._seen.get(thing)
        if before is None or before[0] != sign:
            self._seen[thing] = (sign, clock())
            return 0.0
        return clock() - before[1]

    def _is_orphaned(self, launcher: str | None, launchers: Mapping[str, object]) -> bool:
        if launcher == self._launcher:
            return False
        if launcher is None or launcher not in launchers:
            return True
        silent = self.silence(launcher, launchers[launcher])
        return is_running(launcher) is False or silent > self._lease_seconds

    def _jobs(self, leases: Iterable[Lease]) -> dict[int, JobStatus]:
        """Return the status of each attempt's job, by attempt id."""
        launched: dict[ExecutorName, dict[LaunchedJob, int]] = {}
        jobs = {}
        for lease in leases:
            if (job := LaunchedJob.of(self._store, lease)) is not None:
                launched.setdefault(lease.executor, {})[job] = lease.id
            else:
                # A RUNNING attempt has a job even if its launcher died before it stored the handle.
                state = JobState.UNKNOWN if lease.state == RunState.RUNNING else JobState.GONE
                jobs[lease.id] = JobStatus(state, "it was never launched")
        for name, attempts in launched.items():
            try:
                statuses = self._executors(name).statuses(list(attempts))
            except UserError as error:
                statuses = dict.fromkeys(attempts, JobStatus(JobState.UNKNOWN, str(error)))
            jobs |= {attempts[job]: status for job, status in statuses.items()}
        return jobs


@dataclass
class Observer:
    """Reads the runs of one launch and everything else that `reconcile.decide` uses.

    Attributes:
        ours: Live attempts of this launcher, as of the last `read`.
        changed: Fingerprints of runs that this launcher has changed since then.
    """

    _lab: Lab
    _store: Store
    _runs: Mapping[str, Target]
    _presence: Presence
    _liveness: Liveness
    _poll_seconds: float
    ours: list[Lease] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        needed = {need for run in self._runs.values() for need in run.needs.values()}
        self._outside = needed - self._runs.keys()
        self._outside_states: Mapping[str, RunState] = {}
        self._standings: dict[str, Standing] = {}
        self._read_at = -math.inf  # when all standings were last read
        self._signs: Mapping[int, Signs] = {}
        self._now = datetime.min

    def read(self) -> Mapping[str, Standing]:
        """Read the standings of all runs and the signs of life of their attempts.

        Runs without a live attempt are read once per poll interval, because launchers of thousands of runs
        wake up many times within it.
        """
        at = time.monotonic()
        if at - self._read_at >= self._poll_seconds:
            self._read_at = at
            self._standings = leases.standings(self._store, self._runs)
        else:
            live_runs = {run.fingerprint for run in self._standings.values() if run.is_live}
            self._standings |= leases.standings(self._store, live_runs | self.changed)
        self.changed.clear()
        self._outside_states = self._store.states(self._outside) if self._outside else {}
        live = [run.lease for run in self._standings.values() if run.lease is not None and run.is_live]
        self.ours = [lease for lease in live if lease.launcher == self._presence.name]
        launchers = leases.heartbeats(self._store) if len(self.ours) < len(live) else {}
        self._signs = self._liveness.check(live, launchers)
        self._now = now()
        return self._standings

    def forget(self) -> None:
        """Read everything again, and restart the measurement of silence: the store can't be reached."""
        self._read_at = -math.inf
        self._liveness.forget()

    def observe(self, target: Target, final: Mapping[str, RunState], stopping: str | None) -> Observation:
        """Return everything about a run that its standing doesn't contain.

        `final` has the runs of the launch in a final state; `stopping` is why the launch stops all runs.
        """
        run = self._standings[target.fingerprint]
        signs = self._signs[run.lease.id] if run.lease is not None and run.is_live else Signs()
        return Observation(
            **vars(signs),
            needs=[self._dependency(needed, final) for needed in target.needs.values()],
            stopping=stopping,
            now=self._now,
            other_lab=self._presence.other_lab(run.lease) if run.is_live else None,
            missing=self._missing_files(target),
        )

    def _dependency(self, fingerprint: str, final: Mapping[str, RunState]) -> tuple[str, RunState | None]:
        """Return the title of a dependency and its final state; None if that is still open."""
        if fingerprint in self._runs:
            return title(self._runs[fingerprint]), final.get(fingerprint)
        state = self._outside_states.get(fingerprint)
        is_open = state is None or not state.is_terminal or state == RunState.PREEMPTED
        return f"run {fingerprint[:8]}", None if is_open else state

    def _missing_files(self, target: Target) -> str | None:
        """Return which dependency has no files here because another lab completed it."""
        for fingerprint in target.needs.values():
            run = self._standings.get(fingerprint)
            if run is None or run.state != RunState.COMPLETED:
                continue
            place = self._presence.other_lab(run.lease)
            if place is not None and not (self._lab.root / run.directory).is_dir():
                return f"depends on {title(self._runs[fingerprint])}, completed in the lab at {place}"
        return None


@dataclass
class Termination:
    """Stops jobs: first with a request, after the executor's grace period by killing them."""

    _store: str  # its id
    _executors: Executors
    _note: Callable[[str], None]  # receives the reason, once, if a job can't be stopped
    at_once: bool  # kill without time to save
    _asked: dict[int, float] = field(default_factory=dict)  # attempt id → time of the request
    _noted: set[int] = field(default_factory=set)

    def stop(self, lease: Lease) -> None:
        """Request an attempt's job to stop; kill it once the grace period is over."""
        asked = self._asked.get(lease.id)
        if LaunchedJob.of(self._store, lease) is None:
            return  # an imported attempt may name any executor, so don't create that
        if self.at_once:
            self.kill(lease)
        elif asked is None:
            self._asked[lease.id] = time.monotonic()
            self._send(lease, now=False)
        elif time.monotonic() - asked > self._executors(lease.executor).grace_seconds:
            self.kill(lease)

    def kill(self, lease: Lease) -> bool:
        """Kill an attempt's job and its remaining processes; return False if some of them still run."""
        return self._send(lease, now=True)

    def clear(self, lease: Lease) -> bool:
        """Kill the remaining processes of a finished attempt here; return False if some still run."""
        job = LaunchedJob.of(self._store, lease)
        if job is None or lease.executor != "local" or not Process.parse(job.handle).is_here:
            return True
        return self.kill(lease)

    def _send(self, lease: Lease, *, now: bool) -> bool:
        if (job := LaunchedJob.of(self._store, lease)) is None:
            return True
        try:
            self._executors(lease.executor).stop(job, now=now)
        except ProcessesRemain as error:
            self._note_once(lease, f"is still running: {error}; its next attempt starts after it ended")
            return False
        except UserError as error:
            self._note_once(lease, f"can't be stopped: {error}")
        return True

    def _note_once(self, lease: Lease, why: str) -> None:
        if lease.id not in self._noted:
            self._note(f"attempt {lease.number} {why}")
        self._noted.add(lease.id)


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
