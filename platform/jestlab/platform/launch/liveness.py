"""Which attempts are alive, by their jobs, heartbeats and launchers; and how their jobs are stopped.

Silence is measured by this process's own monotonic clock: the clocks of other machines may differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from jestlab.platform.errors import UserError
from jestlab.platform.launch.executors.base import JobState, JobStatus, LaunchedJob, ProcessesRemain
from jestlab.platform.launch.reconcile import Signs
from jestlab.platform.processes import Process, is_running
from jestlab.platform.store.records import Lease, RunState

if TYPE_CHECKING:  # `jestlab status` shall not wait for the executors
    from jestlab.platform.launch.executors import Executors
    from jestlab.platform.spec.resources import ExecutorName

SILENT_SECONDS = 120.0
"""How old a heartbeat is before users are told; clocks of two machines may differ by some of it."""


class Liveness:
    """Watches live attempts for one launcher; others count as gone after `lease_seconds` of silence."""

    def __init__(self, launcher: str, store: str, executors: Executors, lease_seconds: float) -> None:
        """Create it, for a launcher by its name and a store by its id; nothing has been seen yet."""
        self._launcher = launcher
        self._store = store
        self._executors = executors
        self._lease_seconds = lease_seconds
        self._silence = Silence()

    def check(self, leases: Iterable[Lease], launchers: Mapping[str, object]) -> dict[int, Signs]:
        """Check live attempts, with one question per executor.

        Args:
            leases: The attempts.
            launchers: Name of each known launcher → its last heartbeat.

        Returns:
            Attempt id → what is known of it.
        """
        live = list(leases)
        jobs = self._jobs(live)
        return {
            lease.id: Signs(
                job=jobs[lease.id],
                ours=lease.launcher == self._launcher,
                orphaned=self._is_orphaned(lease.launcher, launchers),
                silent_seconds=self._silence.seconds(lease.id, (lease.heartbeat_at, jobs[lease.id].state)),
            )
            for lease in live
        }

    def forget(self) -> None:
        """Start over: while the store is away nobody can be heard, which is not the same as silence."""
        self._silence.clear()

    def _is_orphaned(self, launcher: str | None, launchers: Mapping[str, object]) -> bool:
        if launcher == self._launcher:
            return False
        if launcher is None or launcher not in launchers:
            return True
        silent = self._silence.seconds(launcher, launchers[launcher])
        return is_running(launcher) is False or silent > self._lease_seconds

    def _jobs(self, leases: Iterable[Lease]) -> dict[int, JobStatus]:
        """States of the attempts' jobs."""
        launched: dict[ExecutorName, dict[LaunchedJob, int]] = {}
        found = {}
        for lease in leases:
            if (job := LaunchedJob.of(self._store, lease)) is not None:
                launched.setdefault(lease.executor, {})[job] = lease.id
            else:
                # An attempt that has begun runs, even if its launcher died before it could record the handle.
                state = JobState.UNKNOWN if lease.state == RunState.RUNNING else JobState.GONE
                found[lease.id] = JobStatus(state, "it was never launched")
        for name, attempts in launched.items():
            try:
                statuses = self._executors(name).statuses(list(attempts))
            except UserError as error:
                statuses = dict.fromkeys(attempts, JobStatus(JobState.UNKNOWN, str(error)))
            found |= {attempts[job]: status for job, status in statuses.items()}
        return found


class Silence:
    """Measures how long things have shown no new sign of life, by a clock in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Create it; nothing has been seen yet."""
        self._clock = clock
        self._seen: dict[Hashable, tuple[object, float]] = {}

    def seconds(self, thing: Hashable, sign: object) -> float:
        """Return the seconds since a thing was first seen with its present sign of life.

        The sign is anything that changes while the thing lives, such as its last heartbeat.
        """
        before = self._seen.get(thing)
        if before is None or before[0] != sign:
            self._seen[thing] = (sign, self._clock())
            return 0.0
        return self._clock() - before[1]

    def clear(self) -> None:
        """Forget all that was seen."""
        self._seen.clear()


class Termination:
    """Remembers which jobs were asked to stop, and when; `at_once` gives them no time to save."""

    def __init__(
        self, store: str, executors: Executors, complain: Callable[[str], None], *, at_once: bool
    ) -> None:
        """Create it for a store by its id; `complain` is told, once a job, why it cannot be stopped."""
        self._store = store
        self._executors = executors
        self._complain = complain
        self._asked: dict[int, float] = {}  # attempt → when
        self._failed: set[int] = set()
        self.at_once = at_once

    def stop(self, lease: Lease) -> None:
        """Ask an attempt's job to stop; once its executor's grace period is over, kill it."""
        asked = self._asked.get(lease.id)
        if LaunchedJob.of(self._store, lease) is None:
            return  # nor is its executor asked, which an archive may name
        if self.at_once:
            self.kill(lease)
        elif asked is None:
            self._asked[lease.id] = time.monotonic()
            self._send(lease, now=False)
        elif time.monotonic() - asked > self._executors(lease.executor).grace_seconds:
            self.kill(lease)

    def kill(self, lease: Lease) -> bool:
        """Kill an attempt's job now, and what it has left; False if processes of it are seen to run still."""
        return self._send(lease, now=True)

    def clear(self, lease: Lease) -> bool:
        """End what an attempt that is over may have left on this machine; False if that runs still."""
        job = LaunchedJob.of(self._store, lease)
        if job is None or lease.executor != "local" or not Process.parse(job.handle).is_here:
            return True
        return self.kill(lease)

    def _send(self, lease: Lease, now: bool) -> bool:
        if (job := LaunchedJob.of(self._store, lease)) is None:
            return True
        try:
            self._executors(lease.executor).stop(job, now=now)
        except ProcessesRemain as error:
            self._once(lease, f"has not ended: {error}; nothing is started in its folder before it has")
            return False
        except UserError as error:
            self._once(lease, f"cannot be stopped from here: {error}")
        return True

    def _once(self, lease: Lease, why: str) -> None:
        if lease.id not in self._failed:
            self._complain(f"attempt {lease.number} {why}")
        self._failed.add(lease.id)


def any_launcher(heartbeats: Mapping[str, datetime], now: datetime) -> bool:
    """Whether any launcher is alive, by the names and heartbeats that the store has of them."""
    return any(
        (now - heartbeat).total_seconds() <= SILENT_SECONDS and is_running(name) is not False
        for name, heartbeat in heartbeats.items()
    )


def doubts(lease: Lease | None, now: datetime) -> str | None:
    """Say why a run that the store calls RUNNING may have stopped, and what to do; None without doubts."""
    if lease is None or not lease.is_live:
        return None
    if lease.executor == "local" and lease.handle and is_running(lease.handle) is False:
        return "its process has vanished: launch again to go on"
    silent = (now - lease.heartbeat_at).total_seconds()
    if silent <= SILENT_SECONDS:
        return None
    if lease.launcher is None or is_running(lease.launcher) is False:
        return f"no sign of life for {silent:.0f} s, and no launcher looks after it: launch again to go on"
    return f"no sign of life for {silent:.0f} s"
