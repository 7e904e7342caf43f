"""Claim attempts at runs that can start, within the limits of slots and chip-hours, and launch their jobs."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jestlab.platform import logs, processes, programs
from jestlab.platform.dependencies import NO_RECORD, installed
from jestlab.platform.errors import StoreError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.concurrency import map_parallel
from jestlab.platform.launch.executors.base import (
    ExecutorError,
    ExecutorUnavailable,
    Job,
    JobKey,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.liveness import Launcher, Liveness, Termination
from jestlab.platform.launch.options import ControllerOptions
from jestlab.platform.launch.reconcile import SLOT, Signs, Target, is_plain_wait
from jestlab.platform.processes import EXIT_REFUSED
from jestlab.platform.programs.failures import RETRIED_CODES
from jestlab.platform.programs.ranks import TASKS
from jestlab.platform.redaction import PARTS
from jestlab.platform.store import claims, leases
from jestlab.platform.store.claims import ClaimLimits
from jestlab.platform.store.provenance import RECORD
from jestlab.platform.store.records import Lease, RunState, Standing
from jestlab.platform.store.rows import now

if TYPE_CHECKING:  # importing XManager takes a second
    from jestlab.platform.launch.xmanager import XManagerExperiment

BATCH = 50
"""Maximum number of runs that one pass of the controller claims and launches."""


def job_of(
    lab: Lab,
    title: str,
    run: Target,
    key: JobKey,
    log: str,
    is_local: bool,
    options: ControllerOptions | None = None,
    claimed: bool = True,
    after: Sequence[LaunchedJob] = (),
) -> Job:
    """Return the job for an attempt at a run of the study `title`.

    The log is relative to the lab's root. If `is_local`, the executor writes the output to the log; else the
    worker does. If the attempt isn't `claimed`, the worker claims one when it starts.
    """
    options = options or ControllerOptions()
    environment = {"JESTLAB_STORE": lab.store_url}
    if not is_local:
        environment[logs.COPIED] = "1"
    if options.record != PARTS:
        environment[RECORD] = ",".join(options.record)
    if options.retry_exit_codes:
        environment[RETRIED_CODES] = ",".join(map(str, options.retry_exit_codes))
    if options.tasks_per_node > 1:
        environment[TASKS] = str(options.tasks_per_node)
    if options.time_seconds is not None:
        environment[processes.TIME_LIMIT] = str(options.time_seconds)
    number = ("--attempt", str(key.attempt)) if claimed else ()
    code = ("--code", options.code[run.fingerprint]) if run.fingerprint in options.code else ()
    return Job(
        name=f"jestlab-{key.store[:6]}-{run.fingerprint[:8]}-{key.attempt}",
        title=run.name,
        arguments=["--root", lab.address, "--run", run.fingerprint, *number, *code],
        environment=environment,
        log=lab.root / log,
        key=key,
        labels={"experiment": title, "run": run.name, "seed": str(run.seed)},
        imports=programs.imports_of(run.program),
        after=after,
    )


class Claimed(NamedTuple):
    """A claimed attempt, whose job has to be launched."""

    run: Target
    log: str  # relative to the lab's root
    claim: claims.ClaimedAttempt


class ClaimedBatch(NamedTuple):
    """Result of one call of `Claiming.claim`.

    Attributes:
        claimed: Attempts to launch.
        more: Whether further runs can start at once in another pass, after ended attempts are evaluated.
        changed: Fingerprints of the runs that were claimed or whose reason for waiting has changed.
        over_budget: Fingerprint → reason, for each run that would exceed the limit of chip-hours.
    """

    claimed: Sequence[Claimed] = ()
    more: bool = False
    changed: Collection[str] = ()
    over_budget: Mapping[str, str] = {}


class Claiming:
    """Claims and launches attempts for one launcher."""

    def __init__(self, launcher: Launcher, liveness: Liveness, termination: Termination) -> None:
        self._launcher = launcher
        self._liveness = liveness
        self._termination = termination
        self._since = launcher.options.since or now()
        self.record = XManagerRecord(launcher)

    # ---- claim

    def claim(
        self, ready: Sequence[tuple[Standing, Target]], own_attempts: Collection[Lease], plan: Collection[str]
    ) -> ClaimedBatch:
        """Claim attempts for the free slots, in the order of the plan, at most `BATCH` of them.

        An attempt that was live at the start of this pass keeps its slot until the next pass, even if it has
        ended since. The next pass evaluates its end first, because a failure may stop the launch.

        Args:
            ready: Runs that can start.
            own_attempts: Live attempts that this launcher manages, as read in this pass.
            plan: Fingerprints of all runs of the launch.
        """
        if not ready:
            return ClaimedBatch()
        launcher, options, executor = self._launcher, self._launcher.options, self._launcher.executor
        limits = ClaimLimits(
            slots=options.parallel or executor.parallel,
            machine=processes.machine() if executor.here else None,
            chip_hours=options.max_chip_hours,
            since=self._since,
        )
        limits, result, freed = self._usage(limits, own_attempts, plan)
        fingerprints = [run.fingerprint for run, _ in ready]
        with launcher.store.reading() as connection:
            over_budget = claims.over_budget(connection, fingerprints, limits, len(fingerprints))
        affordable = [pair for pair in ready if pair[0].fingerprint not in over_budget]
        free = len(affordable) if limits.slots is None else max(limits.slots - result.taken, 0)
        if free and (room := executor.room()) is not None:
            free = min(free, room)
        chosen = affordable[:free][:BATCH]
        clear = map_parallel(self._clear, [run.lease for run, _ in chosen])
        chosen = [pair for pair, is_clear in zip(chosen, clear, strict=True) if is_clear]
        if chosen:
            name, lab = launcher.register(), launcher.lab_id
            terms = claims.ClaimTerms(name, options.on, executor.chips, options.lease_seconds, lab)
            result = claims.claim_all(
                launcher.store, {run.fingerprint: _log(run) for run, _ in chosen}, terms, limits
            )
        over_budget |= result.over_budget
        changed = set(result.claims)
        with suppress(StoreError):  # claimed attempts have to be launched anyway
            changed |= self._store_wait_reasons(ready, result, limits, over_budget)
        claimed = [
            Claimed(target, _log(run), result.claims[run.fingerprint])
            for run, target in chosen
            if run.fingerprint in result.claims
        ]
        has_more = claimed and not result.no_slot and min(len(affordable), free) > len(chosen)
        return ClaimedBatch(claimed, bool(has_more or freed), changed, over_budget)

    def _usage(
        self, limits: ClaimLimits, own_attempts: Collection[Lease], plan: Collection[str]
    ) -> tuple[ClaimLimits, claims.ClaimResult, int]:
        """If slots are limited, count the slots that all launchers use.

        Returns:
            The limits, with lost attempts in `dead`; the used slots; and how many of them were freed since
            the controller last read the store, but stay used until its next pass.
        """
        no_claims = claims.ClaimResult({}, [], {})
        if limits.slots is None:
            return limits, no_claims, 0
        name, executor = self._launcher.name, self._launcher.options.on
        with self._launcher.store.reading() as connection:
            held = claims.holding(connection, executor, limits.machine)
        others = [lease for lease in held if lease.launcher != name]
        signs = self._liveness.check(others)
        dead = frozenset(
            lease.id for lease in others if _is_dead(signs[lease.id], lease) and lease.fingerprint not in plan
        )
        # Which ended attempts had used a slot: by the same rules as `claims.holding`.
        prefix = f"{limits.machine}:" if limits.machine and executor == "local" else ""
        ended = {lease.id for lease in own_attempts} - {lease.id for lease in held}
        freed = sum(
            lease.id in ended and lease.executor == executor and (lease.handle or prefix).startswith(prefix)
            for lease in own_attempts
        )
        used = no_claims._replace(taken=len(held) - len(dead) + freed, by_others=len(others) - len(dead))
        return replace(limits, dead=dead), used, freed

    def _store_wait_reasons(
        self,
        ready: Sequence[tuple[Standing, Target]],
        result: claims.ClaimResult,
        limits: ClaimLimits,
        over_budget: Mapping[str, str],
    ) -> Set[str]:
        """Store the reasons why `ready` runs were not claimed; return the runs whose reason has changed."""
        reasons = dict(over_budget)
        if limits.slots is not None and result.taken >= limits.slots:
            others = f", {result.by_others} by another launch" if result.by_others else ""
            slot = f"{SLOT}: {result.taken} of {limits.slots} taken{others}"
            waiting = [run for run, _ in ready if run.fingerprint not in result.claims]
            reasons = {run.fingerprint: slot for run in waiting if is_plain_wait(run.reason)} | reasons
        before = {run.fingerprint: run.reason for run, _ in ready}
        new = {run: reason for run, reason in reasons.items() if before[run] != reason}
        if new:
            leases.set_reasons(self._launcher.store, new, claimed=False)
        return new.keys()

    def _clear(self, lease: Lease | None) -> bool:
        """Kill processes of a run's last attempt, which use the same folder; return False if any remain."""
        if lease is None or lease.executor == "local":
            return lease is None or self._termination.clear(lease)
        self._termination.kill(lease)  # otherwise, a requeued job would start again
        return True

    # ---- launch

    def launch(
        self, claimed: Sequence[Claimed], after: Callable[[Target], Sequence[LaunchedJob] | None]
    ) -> bool:
        """Launch claimed attempts together, and store their handles. End attempts that fail to launch.

        Args:
            claimed: The attempts.
            after: Returns the jobs that must complete before the job of a run starts.

        Returns:
            Whether any attempt failed to launch.
        """
        launcher, executor = self._launcher, self._launcher.executor
        self.record.open()
        jobs = []
        for run, log, claim in claimed:
            key = JobKey(launcher.store_id, run.fingerprint, claim.number, claim.token)
            jobs.append(
                job_of(
                    launcher.lab, launcher.title, run, key, log, executor.here, launcher.options,
                    after=after(run) or (),
                )
            )  # fmt: skip
        results: Sequence[LaunchedJob | ExecutorError]
        try:
            if launcher.stopping is not None:
                raise ExecutorError(launcher.stopping)
            results = executor.launch_all(jobs)
        except ExecutorError as error:
            results = [error] * len(jobs)
        started = [job for job in results if isinstance(job, LaunchedJob)]
        handles: dict[int, str] = {}
        endings: list[leases.Ending] = []
        for attempt, job in zip(claimed, results, strict=True):
            if isinstance(job, LaunchedJob):
                handles[attempt.claim.attempt_id] = job.handle
                continue
            state = RunState.PREEMPTED if isinstance(job, ExecutorUnavailable) else RunState.FAILED
            state = state if launcher.stopping is None else RunState.CANCELLED
            refused = EXIT_REFUSED if state == RunState.FAILED else None  # it would be rejected again
            ending = leases.Ending(
                attempt.run.fingerprint, attempt.claim.attempt_id, state, str(job), refused
            )
            endings.append(ending)
        while True:
            try:
                if handles:
                    claims.store_handles(launcher.store, handles)
                if endings:
                    leases.end_all(launcher.store, endings)
                break
            except StoreError:  # try again; meanwhile, only the user can end the launch
                if launcher.stopping is not None:
                    map_parallel(partial(self._termination.stop_job, launcher.options.on), started)
                if launcher.at_once:
                    break
                time.sleep(launcher.intervals.poll)
        self.record.add(jobs, results)
        return bool(endings)


class XManagerRecord:
    """Records a launch as an XManager experiment. If this fails, the user is notified, and runs continue."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._experiment: XManagerExperiment | None = None
        self._is_opened = False
        self._is_complete = True
        self._runner = asyncio.Runner()

    def open(self) -> None:
        """Create the experiment at the first call. This takes a second, so call it only to launch runs."""
        if self._is_opened:
            return
        self._is_opened = True
        if installed("xmanager"):
            self._try(self._create)
        elif NO_RECORD not in self._launcher.listener.notes:  # by an earlier round
            self._launcher.listener.note(NO_RECORD)

    def add(self, jobs: Sequence[Job], results: Sequence[LaunchedJob | ExecutorError]) -> None:
        """Add a work unit for each job. `results` are the launched jobs, or the errors of failed launches."""
        if (experiment := self._experiment) is not None and self._is_complete:
            self._try(lambda: experiment.add(self._launcher.executor, jobs, results))

    def close(self) -> None:
        """Close the experiment."""
        if (experiment := self._experiment) is not None:
            self._try(lambda: experiment.__aexit__(None, None, None))
        self._runner.close()

    async def _create(self) -> None:
        from jestlab.platform.launch.xmanager import XManagerExperiment

        experiment = XManagerExperiment(self._launcher.lab.xmanager, self._launcher.title)
        self._experiment = await experiment.__aenter__()

    def _try(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        try:
            self._runner.run(work())
        except Exception as error:
            if self._is_complete:  # report only the first error
                summary = logs.one_line(f"{type(error).__name__}: {error}", 200)
                self._launcher.listener.note(f"XManager's record of this launch is incomplete: {summary}")
            self._is_complete = False


def _is_dead(signs: Signs, lease: Lease) -> bool:
    """Return whether another launcher's attempt is lost: silent, or over without a launcher to end it."""
    job = signs.job or JobStatus(JobState.UNKNOWN)
    if job.state == JobState.UNKNOWN:
        return signs.silent_seconds > lease.lease_seconds
    return signs.orphaned and job.state.is_over


def _log(run: Standing) -> str:
    return f"{run.directory}/{logs.NAME}"
