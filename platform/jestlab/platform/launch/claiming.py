"""Claim runs that can start, within the limits on slots and chip-hours, and launch their jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from jestlab.platform import logs, processes
from jestlab.platform.errors import StoreError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.concurrency import each
from jestlab.platform.launch.executors import Executors
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    ExecutorUnavailable,
    Job,
    JobKey,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.jobs import job_of
from jestlab.platform.launch.liveness import Liveness, Presence, Termination
from jestlab.platform.launch.options import ControllerOptions
from jestlab.platform.launch.reconcile import SLOT, Signs, Target, is_plain_wait
from jestlab.platform.launch.record import XManagerRecord
from jestlab.platform.store import claims, leases
from jestlab.platform.store.claims import ClaimLimits
from jestlab.platform.store.records import Lease, RunState, Standing
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

BATCH = 50
"""Number of runs that are claimed and launched in one pass of the controller."""


class Claimed(NamedTuple):
    """An attempt that is claimed and has to be launched."""

    target: Target
    claim: claims.ClaimedAttempt
    log: str  # relative to the lab's root


class ClaimedBatch(NamedTuple):
    """Result of one call of `Claiming.claim`.

    Attributes:
        claimed: Attempts to launch.
        left: Number of further runs that can start now.
        freed: Number of slots that were freed since the controller last read the store.
        updated: Fingerprints of the runs that got a new reason for waiting.
        over_budget: Fingerprint → reason, for runs that would exceed the limit of chip-hours.
    """

    claimed: Sequence[Claimed] = ()
    left: int = 0
    freed: int = 0
    updated: Collection[str] = ()
    over_budget: Mapping[str, str] = {}


class _Usage(NamedTuple):
    """Slots in use; those freed since the controller last read the store count as used."""

    taken: int
    by_others: int  # of those
    dead: frozenset[int]  # attempts that use no slot: their worker and their launcher are lost
    freed: int


@dataclass
class Claiming:
    """Claims and launches attempts for one launcher."""

    lab: Lab
    store: Store
    title: str
    executors: Executors
    options: ControllerOptions
    presence: Presence
    liveness: Liveness
    termination: Termination
    record: XManagerRecord
    poll_seconds: float

    def __post_init__(self) -> None:
        self._since = self.options.since or now()
        self._store_id = self.store.id()

    # ---- claim

    def claim(
        self, ready: Sequence[tuple[Standing, Target]], ours: Collection[Lease], plan: Collection[str]
    ) -> ClaimedBatch:
        """Claim attempts for the free slots, in the order of the plan, at most `BATCH` of them.

        An attempt that was live in this pass keeps its slot until the next pass even if it has ended since:
        its end has to be evaluated first, because it may be the failure that stops the launch.

        Args:
            ready: Runs that can start.
            ours: Live attempts that this launcher manages, as of this pass.
            plan: Fingerprints of all runs of the launch.
        """
        if not ready:
            return ClaimedBatch()
        executor = self.executors(self.options.executor)
        limits = ClaimLimits(
            slots=self.options.parallel or executor.parallel,
            machine=processes.machine() if executor.here else None,
            chip_hours=self.options.max_chip_hours,
            since=self._since,
        )
        usage = self._usage(limits, plan, ours)
        limits = replace(limits, dead=usage.dead)
        fingerprints = [run.fingerprint for run, _ in ready]
        over = {} if limits.chip_hours is None else claims.over_budget(self.store, fingerprints, limits)
        fitting = [pair for pair in ready if pair[0].fingerprint not in over]
        free = len(fitting) if limits.slots is None else max(limits.slots - usage.taken, 0)
        if free and (room := executor.room()) is not None:
            free = min(free, room)
        chosen = list(fitting[:free][:BATCH])
        last = [run.lease for run, _ in chosen if run.lease is not None]
        clear = dict(zip([lease.fingerprint for lease in last], each(self._clear, last), strict=True))
        chosen = [pair for pair in chosen if clear.get(pair[0].fingerprint, True)]
        result = claims.ClaimResult({}, [], {}, usage.taken, usage.by_others)
        if chosen:
            terms = claims.ClaimTerms(
                self.presence.launcher(),
                self.options.executor,
                executor.chips,
                self.options.lease_seconds,
                self.presence.lab(),
            )
            paths = {run.fingerprint: _log(run) for run, _ in chosen}
            result = claims.claim_all(self.store, paths, terms, limits)
        over |= result.over_budget
        updated: Collection[str] = ()
        with suppress(StoreError):  # claimed attempts have to be launched anyway
            updated = self._store_waits(ready, result, limits, over)
        return ClaimedBatch(
            [
                Claimed(target, result.claims[run.fingerprint], _log(run))
                for run, target in chosen
                if run.fingerprint in result.claims
            ],
            0 if result.no_slot else min(len(fitting), free) - len(chosen),
            usage.freed,
            updated,
            over,
        )

    def _usage(self, limits: ClaimLimits, plan: Collection[str], ours: Collection[Lease]) -> _Usage:
        """Count the used slots of all launchers if slots are limited."""
        if limits.slots is None:
            return _Usage(0, 0, frozenset(), 0)
        held = claims.holding(self.store, self.options.executor, limits.machine)
        others = [lease for lease in held if lease.launcher != self.presence.name]
        # Read launchers after attempts: otherwise a new launcher would look lost.
        signs = self.liveness.check(others, leases.heartbeats(self.store)) if others else {}
        dead = frozenset(
            lease.id for lease in others if _is_dead(signs[lease.id], lease) and lease.fingerprint not in plan
        )
        still = {lease.id for lease in held}
        freed = sum(lease.id not in still and self._used_slot(lease, limits) for lease in ours)
        return _Usage(len(held) - len(dead) + freed, len(others) - len(dead), dead, freed)

    def _used_slot(self, lease: Lease, limits: ClaimLimits) -> bool:
        """Return whether an attempt of this launcher used a slot, by the rules of `claims.holding`."""
        handle = lease.handle if lease.executor == "local" else None
        is_here = limits.machine is None or handle is None or handle.startswith(f"{limits.machine}:")
        return is_here and lease.executor == self.options.executor

    def _store_waits(
        self,
        ready: Sequence[tuple[Standing, Target]],
        result: claims.ClaimResult,
        limits: ClaimLimits,
        over_budget: Mapping[str, str],
    ) -> Collection[str]:
        """Store why runs wait that can start but were not claimed; return the runs with a new reason."""
        reasons = dict(over_budget)
        if limits.slots is not None and result.taken >= limits.slots:
            others = f", {result.by_others} by another launch" if result.by_others else ""
            slot = f"{SLOT}: {result.taken} of {limits.slots} taken{others}"
            waiting = {
                run.fingerprint: slot
                for run, _ in ready
                if run.fingerprint not in result.claims and is_plain_wait(run.reason)
            }
            reasons = waiting | reasons
        before = {run.fingerprint: run.reason for run, _ in ready}
        new = {run: reason for run, reason in reasons.items() if before[run] != reason}
        if new:
            leases.set_waiting_reasons(self.store, new)
        return new.keys()

    def _clear(self, lease: Lease) -> bool:
        """Return whether nothing of a run's last attempt is left: two must not write into one folder."""
        if lease.executor != "local":
            self.termination.kill(lease)  # a requeued job would start again
            return True
        return self.termination.clear(lease)

    # ---- launch

    async def launch(self, claimed: Sequence[Claimed], stopping: Callable[[], str | None]) -> bool:
        """Launch claimed attempts together, and store their handles.

        `stopping` returns why the launch stops; None while it doesn't.

        Returns:
            Whether an attempt has ended already because it was not launched.
        """
        if not self.record.opened:
            await self.presence.beating(self.record.open())
        executor = self.executors(self.options.executor)
        jobs = [self._job(one, executor.here) for one in claimed]
        results: Sequence[LaunchedJob | ExecutorError]
        if (reason := stopping()) is None:
            results = await self.presence.beating(asyncio.to_thread(_launch_all, executor, jobs))
        else:
            results = [ExecutorError(reason)] * len(jobs)
        handles: dict[int, str] = {}
        started: list[LaunchedJob] = []
        endings: list[leases.Ending] = []
        for one, job in zip(claimed, results, strict=True):
            if isinstance(job, LaunchedJob):
                handles[one.claim.attempt_id] = job.handle
                started.append(job)
                continue
            state = RunState.PREEMPTED if isinstance(job, ExecutorUnavailable) else RunState.FAILED
            state = state if stopping() is None else RunState.CANCELLED
            endings.append(leases.Ending(one.target.fingerprint, one.claim.attempt_id, state, str(job)))

        def write() -> None:
            if handles:
                claims.store_handles(self.store, handles)
            if endings:
                leases.end_all(self.store, endings)

        while True:
            try:
                await asyncio.to_thread(write)
                break
            except StoreError:  # write later; only the user ends the launch before that
                if stopping() is not None:
                    stop = partial(_stop, executor, at_once=self.termination.at_once)
                    await asyncio.to_thread(each, stop, started)
                if self.termination.at_once:
                    break
                await asyncio.sleep(self.poll_seconds)
        if reason is None:
            await self.presence.beating(self.record.add(executor, jobs, results))
        return bool(endings)

    def _job(self, one: Claimed, here: bool) -> Job:
        key = JobKey(self._store_id, one.target.fingerprint, one.claim.number, one.claim.token)
        record, codes = self.options.record, self.options.retry_exit_codes
        return job_of(self.lab, self.title, one.target, key, one.log, here, record, codes)


def _is_dead(signs: Signs, lease: Lease) -> bool:
    """Return whether an attempt of another study is over and no launcher is left to end it."""
    job = signs.job or JobStatus(JobState.UNKNOWN)
    if job.state == JobState.UNKNOWN:
        return signs.silent_seconds > lease.lease_seconds
    return signs.orphaned and job.state.is_over


def _log(run: Standing) -> str:
    return f"{run.directory}/{logs.NAME}"


def _launch_all(executor: Executor, jobs: Sequence[Job]) -> Sequence[LaunchedJob | ExecutorError]:
    try:
        return executor.launch_all(jobs)
    except ExecutorError as error:
        return [error] * len(jobs)


def _stop(executor: Executor, job: LaunchedJob, *, at_once: bool) -> None:
    with suppress(ExecutorError):
        executor.stop(job, now=at_once)
