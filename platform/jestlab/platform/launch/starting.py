"""Start claimed attempts: their jobs are launched together, and their handles stored whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from jestlab.platform.errors import StoreError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.claiming import Claimed
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    ExecutorUnavailable,
    Job,
    JobKey,
    LaunchedJob,
)
from jestlab.platform.launch.jobs import job_of
from jestlab.platform.launch.liveness import Termination
from jestlab.platform.launch.options import Options
from jestlab.platform.launch.presence import Presence
from jestlab.platform.launch.record import Record
from jestlab.platform.launch.together import each
from jestlab.platform.store import claims, leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store


@dataclass
class Starting:
    """Starts attempts for one launcher.

    Attributes:
        lab: Where runs write.
        store: The lab's store.
        title: Name of the study.
        options: How to launch.
        presence: Of the launcher, which sends heartbeats meanwhile.
        record: Receives each attempt.
        termination: Says whether runs that stop are given no time to save.
        poll_seconds: How long to wait before retrying a store that can't be reached.
    """

    lab: Lab
    store: Store
    title: str
    options: Options
    presence: Presence
    record: Record
    termination: Termination
    poll_seconds: float

    def __post_init__(self) -> None:
        self._store_id = self.store.id()

    async def start(self, claimed: Sequence[Claimed], stopping: Callable[[], str | None]) -> bool:
        """Launch claimed attempts together, each as a work unit of XManager.

        Args:
            claimed: The attempts, all for one executor.
            stopping: Says why nothing more is to run; None while that is not so.

        Returns:
            Whether any of them has ended already, because it was not launched.
        """
        executor = claimed[0].executor
        jobs = [self._job(one) for one in claimed]
        if (reason := stopping()) is None:
            found = await self.presence.beating(asyncio.to_thread(_launched, executor, jobs))
        else:
            found = [ExecutorError(reason)] * len(jobs)
        handles: dict[int, str] = {}
        started: list[LaunchedJob] = []
        endings: list[leases.Ending] = []
        for one, job in zip(claimed, found, strict=True):
            if isinstance(job, LaunchedJob):
                handles[one.claim.attempt_id] = job.handle
                started.append(job)
                continue
            ended = RunState.PREEMPTED if isinstance(job, ExecutorUnavailable) else RunState.FAILED
            ended = ended if stopping() is None else RunState.CANCELLED
            endings.append(leases.Ending(one.target.fingerprint, one.claim.attempt_id, ended, str(job)))

        def stop_if_asked() -> None:
            if stopping() is not None:
                each(lambda job: _stop(executor, job, now=self.termination.at_once), started)

        if handles:
            await self._write_surely(lambda: claims.launched(self.store, handles), stop_if_asked)
        if endings:
            await self._write_surely(lambda: leases.end_all(self.store, endings), lambda: None)
        if reason is None:
            await self.presence.beating(self.record.add(executor, jobs, found))
        return bool(endings)

    def _job(self, one: Claimed) -> Job:
        key = JobKey(self._store_id, one.target.fingerprint, one.claim.number, one.claim.token)
        return job_of(
            self.lab,
            self.title,
            one.target,
            key,
            one.log,
            one.executor.here,
            self.options.record,
            self.options.retry_exit_codes,
        )

    async def _write_surely(self, write: Callable[[], object], meanwhile: Callable[[], None]) -> None:
        """Write what must not be lost while the store is away, if its user does not give up."""
        while True:
            try:
                await asyncio.to_thread(write)
                return
            except StoreError:
                await asyncio.to_thread(meanwhile)
                if self.termination.at_once:
                    return
                await asyncio.sleep(self.poll_seconds)


def _launched(executor: Executor, jobs: Sequence[Job]) -> Sequence[LaunchedJob | ExecutorError]:
    """Launch jobs at once."""
    try:
        return executor.launch_all(jobs)
    except ExecutorError as error:
        return [error] * len(jobs)


def _stop(executor: Executor, job: LaunchedJob, *, now: bool) -> None:
    with suppress(ExecutorError):
        executor.stop(job, now=now)
