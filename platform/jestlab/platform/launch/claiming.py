"""Claim attempts at the runs that may start, as far as slots and chip-hours allow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jestlab.platform import logs, processes
from jestlab.platform.errors import StoreError
from jestlab.platform.launch import waiting
from jestlab.platform.launch.executors import Executors
from jestlab.platform.launch.executors.base import Executor, JobState, JobStatus
from jestlab.platform.launch.liveness import Liveness, Termination
from jestlab.platform.launch.options import Options
from jestlab.platform.launch.presence import Presence
from jestlab.platform.launch.reconcile import Signs, Target
from jestlab.platform.launch.together import each
from jestlab.platform.store import claims, leases
from jestlab.platform.store.claims import Limits
from jestlab.platform.store.records import Lease, Standing
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

TOGETHER = 50
"""Runs that are claimed and launched together; between two such batches all other runs are looked at."""


class Claimed(NamedTuple):
    """An attempt that is to be launched.

    Attributes:
        target: The run.
        claim: The attempt.
        executor: Where it goes.
        log: Its log, relative to the lab's root.
    """

    target: Target
    claim: claims.Claim
    executor: Executor
    log: str


class _Room(NamedTuple):
    """How many slots are taken, how many of them by other launchers, and which attempts take none.

    The slots that became free since the launcher's last look count as taken.
    """

    taken: int
    by_others: int
    dead: frozenset[int]
    freed: int


@dataclass
class Claiming:
    """Claims for one launcher.

    Attributes:
        store: The lab's store.
        executors: Executors by name.
        options: How to launch.
        presence: Of the launcher.
        liveness: Of attempts, as the launcher sees it.
        termination: Ends what earlier attempts have left.
        left: How many runs can start beside those that were claimed last.
        freed: How many slots became free between the launcher's last look and its last claim.
        told: Fingerprints of the runs that were told, by the last claim, for what they wait.
        too_dear: Fingerprint → why a run would exceed the limit of chip-hours, as of the last claim.
    """

    store: Store
    executors: Executors
    options: Options
    presence: Presence
    liveness: Liveness
    termination: Termination
    left: int = 0
    freed: int = 0
    told: Collection[str] = ()
    too_dear: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._since = self.options.since or now()

    def claim(
        self, ready: Sequence[tuple[Standing, Target]], ours: Collection[Lease], plan: Collection[str]
    ) -> list[Claimed]:
        """Claim attempts for the free slots, in the order of the plan, so many at a time.

        The slot of an attempt that was live when the launcher looked is taken, even if it has ended since:
        how it ended is judged first, since it may be the failure that stops the launch.

        Args:
            ready: Runs that may start.
            ours: Live attempts that the launcher looks after, as it has seen them.
            plan: Fingerprints of all its runs.
        """
        self.left, self.freed, self.told, self.too_dear = 0, 0, (), {}
        if not ready:
            return []
        executor = self.executors(self.options.executor)
        limits = Limits(
            slots=self.options.parallel or executor.parallel,
            machine=processes.machine() if executor.here else None,
            chip_hours=self.options.max_chip_hours,
            since=self._since,
        )
        room = self._room(limits, plan, ours)
        self.freed = room.freed
        limits = replace(limits, dead=room.dead)
        fingerprints = [run.fingerprint for run, _ in ready]
        dear = {} if limits.chip_hours is None else claims.too_dear(self.store, fingerprints, limits)
        fitting = [pair for pair in ready if pair[0].fingerprint not in dear]
        free = len(fitting) if limits.slots is None else max(limits.slots - room.taken, 0)
        if free and not executor.has_room():
            free = 0 if ours else 1
        if free and (more := executor.room()) is not None:
            free = min(free, more)
        chosen = list(fitting[:free][:TOGETHER])
        tried = [run for run, _ in chosen if run.lease is not None]
        clear = dict(zip([run.fingerprint for run in tried], each(self._cleared, tried), strict=True))
        chosen = [pair for pair in chosen if clear.get(pair[0].fingerprint, True)]
        found = claims.Found({}, [], {}, room.taken, room.by_others)
        if chosen:
            terms = claims.Terms(
                self.presence.launcher(),
                self.options.executor,
                executor.chips,
                self.options.lease_seconds,
                self.presence.lab(),
            )
            their_logs = {run.fingerprint: _log(run) for run, _ in chosen}
            found = claims.claim_all(self.store, their_logs, terms, limits)
        self.too_dear = {**dear, **found.too_dear}
        self.left = 0 if found.no_slot else min(len(fitting), free) - len(chosen)
        with suppress(StoreError):  # what has been claimed has to be launched all the same
            self._tell_waits(ready, found, limits)
        return [
            Claimed(target, found.claims[run.fingerprint], executor, _log(run))
            for run, target in chosen
            if run.fingerprint in found.claims
        ]

    def _room(self, limits: Limits, plan: Collection[str], ours: Collection[Lease]) -> _Room:
        """Count the slots that are taken, by whichever launcher, where they are limited."""
        if limits.slots is None:
            return _Room(0, 0, frozenset(), 0)
        us = self.presence.name
        held = claims.holding(self.store, self.options.executor, limits.machine)
        others = [lease for lease in held if lease.launcher != us]
        # Their launchers are asked for after them: one that has just come must not seem to have gone.
        signs = self.liveness.check(others, leases.heartbeats(self.store)) if others else {}
        dead = frozenset(
            lease.id
            for lease in held
            if lease.id in signs and _is_dead(signs[lease.id], lease) and lease.fingerprint not in plan
        )
        still = {lease.id for lease in held}
        freed = sum(lease.id not in still and self._held(lease, limits) for lease in ours)
        return _Room(len(held) - len(dead) + freed, len(others) - len(dead), dead, freed)

    def _held(self, lease: Lease, limits: Limits) -> bool:
        """Whether an attempt of this launcher held one of the slots, as `claims.holding` counts them."""
        adopted = lease.handle if lease.executor == "local" else None
        is_here = limits.machine is None or adopted is None or adopted.startswith(f"{limits.machine}:")
        return is_here and lease.executor == self.options.executor

    def _tell_waits(
        self, ready: Sequence[tuple[Standing, Target]], found: claims.Found, limits: Limits
    ) -> None:
        """Store what the runs wait for that could start, and have not been claimed."""
        reasons: dict[str, str] = dict(self.too_dear)
        if limits.slots is not None and found.taken >= limits.slots:
            slot = waiting.waits_for_slot(found.taken, limits.slots, found.by_others)
            reasons = {
                run.fingerprint: slot
                for run, _ in ready
                if run.fingerprint not in found.claims and waiting.is_wait(run.reason)
            } | reasons
        before = {run.fingerprint: run.reason for run, _ in ready}
        new = {run: reason for run, reason in reasons.items() if before[run] != reason}
        if new:
            leases.wait(self.store, new)
            self.told = new.keys()

    def _cleared(self, run: Standing) -> bool:
        """Whether nothing of a run's last attempt is left: two must not write into one folder."""
        if run.lease is None:
            return True
        if run.lease.executor != "local":
            self.termination.kill(run.lease)  # a job that was put back into a queue would come again
            return True
        return self.termination.clear(run.lease)


def _is_dead(signs: Signs, lease: Lease) -> bool:
    """Whether an attempt of another study is over, and nobody is there who ends it."""
    job = signs.job or JobStatus(JobState.UNKNOWN)
    if job.state == JobState.UNKNOWN:
        return signs.silent_seconds > lease.lease_seconds
    return signs.orphaned and job.state.is_over


def _log(run: Standing) -> str:
    return f"{run.directory}/{logs.NAME}"
