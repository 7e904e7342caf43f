"""Bring a plan to its end: look at every run again and again, and do what `reconcile` decides.

The launcher is stateless. What is done, and who works on what and where, is in the store: a launcher may be
killed at any moment and started again anywhere, or two may run at once; attempts that still run are found
again by the handles of their jobs.
"""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jestlab.platform.errors import StoreError, UserError
from jestlab.platform.lab import identity
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import failures, logs, looping, processes, reconcile, waiting
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executor import (
    Executor,
    ExecutorAway,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
    Marks,
)
from jestlab.platform.launch.executors import Executors, job_of
from jestlab.platform.launch.liveness import Liveness, Termination
from jestlab.platform.launch.pace import EXAMPLES
from jestlab.platform.launch.reconcile import RetryRules, Seen, Signs, Target
from jestlab.platform.launch.wakeup import Intervals, Wakeup
from jestlab.platform.spec.resources import ExecutorName
from jestlab.platform.store import claims, labs, leases
from jestlab.platform.store.claims import LIMIT, Limits
from jestlab.platform.store.provenance import PARTS, Part
from jestlab.platform.store.records import Lease, RunState, Standing
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import now

if TYPE_CHECKING:  # imports XManager, which takes a second
    from jestlab.platform.launch.xmanager import Experiment, Launched

LAST_SECONDS = 15.0
"""How long after a second Ctrl-C the end of runs is waited for."""

SETTLE_SECONDS = 10.0
"""How long the workers of runs that have ended may take to end themselves."""

TOGETHER = 50
"""Runs that are claimed and launched together; between two such batches all other runs are looked at."""

_AT_A_TIME = 16  # jobs that are stopped at a time
Thing = TypeVar("Thing")
Value = TypeVar("Value")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Outcome:
    """How a launch ended.

    Attributes:
        states: Fingerprint → state, of every run of the plan.
        reasons: Fingerprint → reason, of the runs that did not complete.
        interrupted: Whether its user stopped it.
        stopped: Why it stopped itself; None if it did not.
        launched: Number of runs that had not completed before.
    """

    states: Mapping[str, RunState]
    reasons: Mapping[str, str]
    interrupted: bool
    launched: int
    stopped: str | None = None

    @property
    def exit_code(self) -> int:
        """0 when all runs completed, 130 when interrupted, else 1."""
        if self.interrupted:
            return 130
        return 0 if all(state == RunState.COMPLETED for state in self.states.values()) else 1


@dataclass(frozen=True)
class Options:
    """How to launch.

    Attributes:
        executor: Name of the executor that new attempts go to.
        parallel: Runs at a time, whoever launches them; None for as many as the executor takes.
        retries: How often a run that failed is tried again. Preemptions do not count.
        lease_seconds: How long the workers of new attempts, and other launchers, may be silent.
        fail_fast: Whether the first run that fails for good stops all others.
        keep_going: Whether the launch goes on when all runs fail alike: see `failures.alike`.
        retry_exit_codes: Exit codes of commands that are tried again, whatever they seem to mean.
        at_once: Whether runs that stop are given no time to save.
        launches: Whether runs are started at all, and not only brought to their end.
        record: What attempts record of their code and environment.
        max_chip_hours: Most chip-hours, or hours of machines without chips, that all attempts in the store
            may hold and be planned to hold from `since`; None for no limit.
        since: When the launch began; None: now.
    """

    executor: ExecutorName = "local"
    parallel: int | None = None
    retries: int = 2
    lease_seconds: float = 90.0
    fail_fast: bool = False
    keep_going: bool = False
    retry_exit_codes: tuple[int, ...] = ()
    at_once: bool = False
    launches: bool = True
    record: tuple[Part, ...] = PARTS
    max_chip_hours: float | None = None
    since: datetime | None = None


def launch(
    lab: Lab,
    store: Store,
    title: str,
    runs: Sequence[Target],
    executors: Executors,
    *,
    options: Options | None = None,
    listener: Listener | None = None,
    wakeup: Wakeup | None = None,
) -> Outcome:
    """Bring recorded runs to states in which they stay.

    SIGINT and SIGTERM stop all runs that this controller looks after; a second signal kills them at once. If
    the controller dies otherwise, its jobs go on, and the next launcher finds them. Below an event loop that
    runs already, as in a notebook, SIGINT alone does, and outside the main thread no signal.

    Args:
        lab: Where runs write.
        store: The lab's store, in which the runs are recorded.
        title: Name of the study.
        runs: The runs, each after those that it depends on.
        executors: Executors by name.
        options: How to launch.
        listener: Told what happens.
        wakeup: Set by whoever knows that there is something to see, such as the end of a process.

    Raises:
        UserError: An environment variable that sets an interval is not a number of seconds.
    """
    fingerprints = [run.fingerprint for run in runs]
    states = store.states(fingerprints)
    waiting = [run for run in runs if states[run.fingerprint] != RunState.COMPLETED]
    interrupted, stopped = False, None
    if waiting:
        lab.root.mkdir(parents=True, exist_ok=True)  # the only time: later it may have been moved away
        options, listener, wakeup = options or Options(), listener or Listener(), wakeup or Wakeup()
        controller = _Controller(lab, store, title, waiting, executors, options, listener, wakeup)
        interrupted = looping.run(controller.run, controller.interrupt)
        stopped = controller.stopped
    states, reasons = store.states(fingerprints), store.reasons(fingerprints)
    return Outcome(states, reasons, interrupted, len(waiting), stopped)


class _Room(NamedTuple):
    """How many slots are taken, how many of them by other launchers, and which attempts take none."""

    taken: int
    by_others: int
    dead: frozenset[int]


class _Claimed(NamedTuple):
    """An attempt that is to be launched."""

    target: Target
    claim: claims.Claim
    executor: Executor
    log: str


@dataclass
class _Controller:
    """One launch, from its first look at the runs to the state in which all of them stay."""

    lab: Lab
    store: Store
    title: str
    targets: Sequence[Target]
    executors: Executors
    options: Options
    listener: Listener
    wakeup: Wakeup

    def __post_init__(self) -> None:
        self._intervals = Intervals.from_environment()
        self._rules = RetryRules(self.options.retries, self._intervals.backoff, self._intervals.max_backoff)
        self._name = processes.identity()
        self._id: int | None = None  # this launcher's in the store
        self._store_id = self.store.id()
        self._beaten_at = 0.0
        self._liveness = Liveness(self._name, self._store_id, self.executors, self.options.lease_seconds)
        self._termination = Termination(
            self._store_id, self.executors, self.listener.note, at_once=self.options.at_once
        )
        self._ours: list[Lease] = []  # live attempts that this controller looks after
        self._final: dict[str, RunState] = {}
        self._runs = {run.fingerprint: run for run in self.targets}
        self._outside = {need for run in self.targets for need in run.needs.values()} - self._runs.keys()
        self._needed_inside = {need for run in self.targets for need in run.needs.values()}
        self._needed: Mapping[str, RunState] = {}  # of runs that others bring to their end
        self._shown: dict[str, tuple[RunState, str | None]] = {}
        self._stopping: str | None = None
        self.stopped: str | None = None  # why this launch stopped itself
        self._interrupted = False
        self._interrupted_at = math.inf  # when for the second time
        self._opened = False  # whether XManager's experiment has been asked for
        self._has_to_open = False
        self._store_away = False
        self._experiment: Experiment | None = None
        self._records = True  # whether XManager keeps them
        self._batch = _Batch()
        self._lab_id: int | None = None  # this lab's in the store
        self._labs: Mapping[int, str] = {}  # where the labs of the store are
        self._since = self.options.since or now()
        self._too_dear: Mapping[str, str] = {}
        self._is_stuck = False  # whether nothing more can start within the limit

    async def run(self) -> bool:
        """Bring all runs to their end; return whether the user stopped it."""
        self.listener.begin(len(self._runs))
        before = {number: signal.getsignal(number) for number in _SIGNALS if looping.receives_signals()}
        try:
            for number in before:
                asyncio.get_running_loop().add_signal_handler(number, self.interrupt)
            while not await self._pass():
                await self.wakeup.wait(self._intervals.poll)
            if self.options.launches:
                executor = self.executors(self.options.executor)
                await asyncio.to_thread(executor.settle, SETTLE_SECONDS)
        finally:
            for number, handler in before.items():
                asyncio.get_running_loop().remove_signal_handler(number)
                signal.signal(number, handler)  # a script may have its own
            self.listener.end()
            if self._experiment is not None:
                try:
                    await self._experiment.__aexit__(None, None, None)
                except Exception as error:
                    self._unrecorded(error)
            if self._id is not None and not self._store_away:
                with suppress(StoreError):  # other launchers will notice that this one has gone
                    await asyncio.to_thread(leases.leave, self.store, self._id)
        return self._interrupted

    async def _pass(self) -> bool:
        """Look at every run once and do what there is to do; return whether all stay as they are."""
        try:
            claimed = await self._while_beating(asyncio.to_thread(self._reconcile))
        except StoreError as error:
            if not self._store_away:
                self.listener.note(f"{error}: waiting for the store; what runs goes on")
            self._store_away = True
            self._liveness.forget()
            return self._termination.at_once
        if self._store_away:
            self.listener.note("the store is back")
            self._store_away = False
        if self._has_to_open and not self._opened:
            await self._open()
        if claimed:
            await self._start(claimed)
            self._batch.tell(self.listener, len(claimed))
            if self._batch.left:
                self.wakeup.set()
        if self._termination.at_once and self._interrupted_at + LAST_SECONDS < time.monotonic():
            for lease in self._ours:
                self.listener.note(f"attempt {lease.number} may still run: {lease.executor} {lease.handle}")
            return True
        return self._is_stuck or len(self._final) == len(self._runs)

    # ---- one pass

    def _reconcile(self) -> list[_Claimed]:
        """Read, decide and act; what is returned has been claimed and is still to be launched."""
        self._beat()
        self._enter_lab()
        standings = leases.standings(self.store, self._runs)
        self._needed = self.store.states(self._outside) if self._outside else {}
        live = [run.lease for run in standings.values() if run.lease is not None and run.lease.is_live]
        self._ours = [lease for lease in live if lease.launcher == self._name]
        signs = self._liveness.check(live, leases.heartbeats(self.store))
        self._final, ready = {}, []
        todo, actions = _Todo(), []
        for fingerprint, target in self._runs.items():
            run = standings[fingerprint]
            action = reconcile.decide(run, self._seen(run, target, signs, standings), self._rules)
            if isinstance(action, reconcile.Claim) and not self.options.launches:
                action = reconcile.Done(run.state, run.reason)  # somebody has launched it again meanwhile
            if isinstance(action, reconcile.Claim):
                ready.append((run, target))
            else:
                self._decided(todo, run, target, action)
            actions.append((run, target, action))
        self._do(todo)
        for each in actions:
            self._show(*each)
        self._stop_if_alike(standings)
        running = [fingerprint for fingerprint, run in standings.items() if run.state == RunState.RUNNING]
        if running:
            self.listener.progress(self.store.progress(running, ("loss", EXAMPLES)))
        claimed = self._claim(ready)
        if not live and not claimed:
            self._stop_if_stuck()
        return claimed

    def _seen(
        self, run: Standing, target: Target, signs: Mapping[int, Signs], standings: Mapping[str, Standing]
    ) -> Seen:
        """Collect what is known of a run beyond its row in the store."""
        known = signs[run.lease.id] if run.lease is not None and run.is_live else Signs()
        needs = dict(self._needed_run(needed) for needed in target.needs.values())
        return Seen(
            **vars(known),
            needs=needs,
            stopping=self._stopping,
            now=now(),
            elsewhere=self._elsewhere(run.lease) if run.is_live else None,
            missing=self._missing(target, standings) if target.needs else None,
        )

    def _needed_run(self, fingerprint: str) -> tuple[str, RunState | None]:
        """Return the title of a needed run and the state in which it stays; None where that is open."""
        if fingerprint in self._runs:
            return _name(self._runs[fingerprint]), self._final.get(fingerprint)
        state = self._needed.get(fingerprint)
        waits = state is None or not state.is_terminal or state == RunState.PREEMPTED
        return f"run {fingerprint[:8]}", None if waits else state

    def _decided(self, todo: _Todo, run: Standing, target: Target, action: reconcile.Action) -> None:
        """Add what has been decided about a run to what is done about all of them."""
        match action:
            case reconcile.Done(state):
                self._final[run.fingerprint] = state
                if state == RunState.FAILED and self.options.fail_fast and self._stopping is None:
                    self._stopping = f"{_name(target)} failed"
            case reconcile.Enter(state, reason):
                todo.entries.append((run, state, reason))
            case reconcile.Wait(str(reason)) if run.lease is not None and reason != run.reason:
                todo.waits[run.lease.id] = reason
            case reconcile.Adopt(lease):
                todo.adopted.append(lease)
            case reconcile.Stop(lease):
                todo.stopped.append(lease)
            case reconcile.End():
                todo.ended.append(action)

    def _do(self, todo: _Todo) -> None:
        """Do what has been decided: one transaction of a kind, whatever the number of runs."""
        if todo.entries:
            leases.enter(self.store, todo.entries)
        if todo.waits:
            leases.waits(self.store, todo.waits)
        if todo.adopted:
            leases.adopt(self.store, todo.adopted, self._enter())
        _each(self._termination.stop, todo.stopped)
        # An attempt has not ended as long as anything of it runs.
        over = _each(lambda end: end.kill or self._termination.clear(end.lease), todo.ended)
        endings = {
            end.lease.id: self._ending(end) for end, clear in zip(todo.ended, over, strict=True) if clear
        }
        if endings:
            done = {ending.attempt_id for ending in leases.end_all(self.store, endings.values())}
            killed = [end.lease for end in todo.ended if end.kill and end.lease.id in done]
            _each(self._termination.kill, killed)
        if todo.entries or todo.adopted or endings:
            self.wakeup.set()

    def _ending(self, end: reconcile.End) -> leases.Ending:
        lease = end.lease
        said = self._said(lease.log) if end.state == RunState.FAILED else ""
        return leases.Ending(
            lease.fingerprint,
            lease.id,
            end.state,
            f"{end.reason}: {said}" if said else end.reason,
            end.exit_code,
            lease.heartbeat_at if end.kill else None,
        )

    def _stop_if_alike(self, standings: Mapping[str, Standing]) -> None:
        """Stop a launch of which all runs would fail for the reason for which the first ones failed."""
        is_over = len(self._final) == len(self._runs)
        if is_over or self._stopping is not None or self.options.keep_going or not self.options.launches:
            return
        reasons = {fingerprint: run.reason for fingerprint, run in standings.items()}
        reason = failures.alike(self._final, reasons, self._needed_inside)
        if reason is not None:
            count = sum(state == RunState.FAILED for state in self._final.values())
            self.stopped = f"{count} runs failed alike: {reason}"
            self._stopping = f"{count} runs failed alike"
            self.listener.note(f"stopped: {self.stopped}; mend it and launch again, or --keep-going")
            self.wakeup.set()

    def _said(self, log: str) -> str:
        """Return the last lines of a log; nothing of one that leads out of the lab."""
        try:
            return logs.summary(self.lab.inside(log))
        except UserError:
            return ""

    def _claim(self, ready: Sequence[tuple[Standing, Target]]) -> list[_Claimed]:
        """Claim attempts for the free slots, in the order of the plan, so many at a time."""
        self._batch.left, self._too_dear = 0, {}
        if not ready or self._stopping is not None:
            return []
        if not self._opened:
            self._has_to_open = True
            return []
        executor = self.executors(self.options.executor)
        limits = Limits(
            slots=self.options.parallel or executor.parallel,
            machine=processes.machine() if executor.here else None,
            chip_hours=self.options.max_chip_hours,
            since=self._since,
        )
        room = self._room(limits)
        limits = replace(limits, dead=room.dead)
        fingerprints = [run.fingerprint for run, _ in ready]
        dear = {} if limits.chip_hours is None else claims.too_dear(self.store, fingerprints, limits)
        fitting = [pair for pair in ready if pair[0].fingerprint not in dear]
        free = len(fitting) if limits.slots is None else max(limits.slots - room.taken, 0)
        if free and not executor.has_room():
            free = 0 if self._ours else 1
        if free and (more := executor.room()) is not None:
            free = min(free, more)
        chosen = list(fitting[:free][:TOGETHER])
        clear = _each(lambda pair: self._cleared(pair[0]), chosen)
        chosen = [pair for pair, is_clear in zip(chosen, clear, strict=True) if is_clear]
        found = claims.Found({}, [], {}, room.taken, room.by_others)
        if chosen:
            found = claims.claim_all(
                self.store,
                {run.fingerprint: f"{run.directory}/{logs.NAME}" for run, _ in chosen},
                claims.Terms(
                    self._enter(),
                    self.options.executor,
                    executor.chips,
                    self.options.lease_seconds,
                    self._enter_lab(),
                ),
                limits,
            )
        self._too_dear = {**dear, **found.too_dear}
        self._batch.left = 0 if found.no_slot else min(len(fitting), free) - len(chosen)
        with suppress(StoreError):  # what has been claimed has to be launched all the same
            self._tell_waits(ready, found, limits)
        return [
            _Claimed(target, found.claims[run.fingerprint], executor, f"{run.directory}/{logs.NAME}")
            for run, target in chosen
            if run.fingerprint in found.claims
        ]

    def _room(self, limits: Limits) -> _Room:
        """Count the slots that are taken, by whichever launcher, where they are limited."""
        if limits.slots is None:
            return _Room(0, 0, frozenset())
        held = claims.holding(self.store, self.options.executor, limits.machine)
        others = [lease for lease in held if lease.launcher != self._name]
        # Their launchers are asked for after them: one that has just come must not seem to have gone.
        signs = self._liveness.check(others, leases.heartbeats(self.store)) if others else {}
        dead = frozenset(
            lease.id
            for lease in held
            if lease.id in signs and _is_dead(signs[lease.id], lease) and lease.fingerprint not in self._runs
        )
        return _Room(len(held) - len(dead), len(others) - len(dead), dead)

    def _tell_waits(
        self, ready: Sequence[tuple[Standing, Target]], found: claims.Found, limits: Limits
    ) -> None:
        """Store what the runs wait for that could start, and have not been claimed."""
        reasons: dict[str, str] = dict(self._too_dear)
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

    def _stop_if_stuck(self) -> None:
        """End a launch of which nothing runs, and nothing more can start within the limit of chip-hours."""
        left = [run for fingerprint, run in self._runs.items() if fingerprint not in self._final]
        if not self._too_dear or self._stopping is not None:
            return
        if all(
            run.fingerprint in self._too_dear
            or any(need in self._runs and need not in self._final for need in run.needs.values())
            for run in left
        ):
            self._is_stuck = True
            for run in left:
                self.listener.state(run, RunState.PENDING, self._too_dear.get(run.fingerprint))
            runs = f"{len(left)} run{'s are' if len(left) > 1 else ' is'} left"
            self.stopped = (
                f"{LIMIT} of {self.options.max_chip_hours:g} chip-hours is reached, {runs}: launch again, "
                "with a higher --max-chip-hours, to go on"
            )
            self.listener.note(f"stopped: {self.stopped}")

    def _cleared(self, run: Standing) -> bool:
        """Whether nothing of a run's last attempt is left: two must not write into one folder."""
        if run.lease is None:
            return True
        if run.lease.executor != "local":
            self._termination.kill(run.lease)  # a job that was put back into a queue would come again
            return True
        return self._termination.clear(run.lease)

    async def _open(self) -> None:
        """Create XManager's experiment. Not at the beginning: it takes a second, and may not be needed."""
        self._opened = True
        try:
            from jestlab.platform.launch.xmanager import Experiment

            made = await asyncio.to_thread(Experiment, self.lab.xmanager, self.title)
            self._experiment = await made.__aenter__()
        except Exception as error:  # its records are a courtesy: what runs does not depend on them
            self._unrecorded(error)
        self.wakeup.set()

    def _unrecorded(self, error: Exception) -> None:
        why = logs.one_line(f"{type(error).__name__}: {error}", 200)
        if self._records:
            self.listener.note(f"XManager keeps no record of this launch, or no whole one: {why}")
        self._records = False

    async def _start(self, claimed: Sequence[_Claimed]) -> None:
        """Launch claimed attempts together, each as a work unit of XManager."""
        executor = claimed[0].executor
        jobs = [self._job(one) for one in claimed]
        if self._stopping is None:
            found = await self._while_beating(self._launched(executor, jobs))
        else:
            found = [ExecutorError(self._stopping)] * len(jobs)
        handles: dict[int, str] = {}
        started: list[LaunchedJob] = []
        endings: list[leases.Ending] = []
        for one, job in zip(claimed, found, strict=True):
            if isinstance(job, LaunchedJob):
                handles[one.claim.attempt_id] = job.handle
                started.append(job)
                continue
            ended = RunState.PREEMPTED if isinstance(job, ExecutorAway) else RunState.FAILED
            ended = ended if self._stopping is None else RunState.CANCELLED
            endings.append(leases.Ending(one.target.fingerprint, one.claim.attempt_id, ended, str(job)))

        def stop(*, now: bool) -> None:
            _each(lambda job: _stopped(executor, job, now), started)

        if handles:
            await self._write_surely(claims.launched, handles, stop=stop)
        if endings:
            await self._write_surely(leases.end_all, endings)
            self.wakeup.set()

    def _job(self, one: _Claimed) -> Job:
        marks = Marks(self._store_id, one.target.fingerprint, one.claim.number, one.claim.token)
        return job_of(
            self.lab,
            self.title,
            one.target,
            marks,
            one.log,
            one.executor.here,
            self.options.record,
            self.options.retry_exit_codes,
        )

    async def _launched(
        self, executor: Executor, jobs: Sequence[Job]
    ) -> Sequence[LaunchedJob | ExecutorError]:
        """Launch jobs at once; XManager knows them as long as that works."""
        units: Sequence[Launched] = ()
        if self._experiment is not None and self._records:
            try:
                units = await self._experiment.add(executor, jobs)
            except Exception as error:
                self._unrecorded(error)
        try:
            found: Sequence[LaunchedJob | ExecutorError] = await asyncio.to_thread(executor.launch_all, jobs)
        except ExecutorError as error:
            found = [error] * len(jobs)
        for unit, job in zip(units, found, strict=False):
            unit.tell(job)
        return found

    async def _while_beating(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Wait for work that may take long, while other launchers hear from this one."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait([task], timeout=self._intervals.heartbeat))[0]:
            with suppress(StoreError):  # the work has to be done all the same
                await asyncio.to_thread(self._beat)
        return task.result()

    async def _write_surely(
        self, write: Callable[..., object], *values: object, stop: Callable[..., None] | None = None
    ) -> None:
        """Write what must not be lost while the store is away; the user may still stop the job meanwhile."""
        while True:
            try:
                await asyncio.to_thread(write, self.store, *values)
                return
            except StoreError:
                if self._stopping is not None and stop is not None:
                    await asyncio.to_thread(stop, now=self._termination.at_once)
                if self._termination.at_once:
                    return
                await asyncio.sleep(self._intervals.poll)

    # ---- its user, and itself

    def interrupt(self) -> None:
        """Stop the runs on the first SIGINT or SIGTERM, and kill them on the second; called in its loop."""
        if self._interrupted:
            self._termination.at_once = True
            self._interrupted_at = time.monotonic()
        else:
            self._interrupted, self._stopping = True, "the launch was stopped"
            if self.options.launches:
                self.executors(self.options.executor).halt()
            self.listener.note("stopping the runs; once more to end them at once")
        # Now, and not in the next pass alone: that may be waiting for a store that is away.
        for lease in self._ours:
            asyncio.get_running_loop().run_in_executor(None, self._termination.stop, lease)
        self.wakeup.set()

    def _enter(self) -> int:
        """Return this launcher's id in the store, where it enters itself the first time."""
        if self._id is None:
            self._id = leases.enter_launcher(self.store, self._name, self._enter_lab())
            self._beaten_at = time.monotonic()
        return self._id

    def _enter_lab(self) -> int:
        """Return this lab's key in the store, where it enters itself the first time."""
        if self._lab_id is None:
            here = identity.identify(self.lab)
            self._lab_id = labs.enter_lab(self.store, *here)
        return self._lab_id

    def _elsewhere(self, lease: Lease | None) -> str | None:
        """Say which other lab has the files of an attempt; None if this one has, or if it is unknown."""
        if lease is None or lease.lab_id in (None, self._lab_id):
            return None
        if lease.lab_id not in self._labs:
            self._labs = labs.places(self.store)
        return self._labs.get(lease.lab_id or 0)

    def _missing(self, target: Target, standings: Mapping[str, Standing]) -> str | None:
        """Say which needed run has no files here, because another lab completed it."""
        for fingerprint in target.needs.values():
            run = standings.get(fingerprint)
            if run is None or run.state != RunState.COMPLETED:
                continue
            place = self._elsewhere(run.lease)
            if place is not None and not (self.lab.root / run.directory).is_dir():
                return f"needs {_name(self._runs[fingerprint])}, which was completed in the lab at {place}"
        return None

    def _beat(self) -> None:
        if self._id is not None and time.monotonic() - self._beaten_at > self._intervals.heartbeat:
            leases.beat(self.store, self._id)
            self._beaten_at = time.monotonic()

    def _show(self, run: Standing, target: Target, action: reconcile.Action) -> None:
        """Tell the listener what is new."""
        match action:
            case reconcile.Done(state, reason):
                shown = (state, reason)
            case reconcile.End(_, RunState.PREEMPTED, reason, _, _):
                shown = (RunState.PENDING, f"{reason}; goes on from its last checkpoint")
            case reconcile.Enter(RunState.PENDING, reason):
                shown = (RunState.PENDING, reason)
            case reconcile.Wait(str(reason)):
                shown = (RunState.PENDING, reason.partition("\n")[0])  # its place in line changes often
            case reconcile.Wait() if run.state == RunState.RUNNING:
                another = run.lease is not None and run.lease.launcher != self._name
                place = self._elsewhere(run.lease)
                where = "by another launch" if place is None else f"in the lab at {place}"
                shown = (RunState.RUNNING, where if another else None)
            case _:
                return
        if self._shown.get(run.fingerprint) != shown:
            self._shown[run.fingerprint] = shown
            self.listener.state(target, *shown)


@dataclass
class _Todo:
    """What is to be done about runs, of all that a pass has decided.

    Attributes:
        entries: Runs that get another state, and why.
        waits: Attempts, by their ids, whose jobs wait, and for what.
        adopted: Attempts to look after.
        stopped: Attempts whose jobs are to stop.
        ended: Attempts that are over.
    """

    entries: list[tuple[Standing, RunState, str | None]] = field(default_factory=list)
    waits: dict[int, str] = field(default_factory=dict)
    adopted: list[Lease] = field(default_factory=list)
    stopped: list[Lease] = field(default_factory=list)
    ended: list[reconcile.End] = field(default_factory=list)


@dataclass
class _Batch:
    """Runs that start one after another, more than are launched at a time.

    Attributes:
        left: How many can start now, beside those that are being launched.
    """

    left: int = 0
    _submitted: int = 0

    def tell(self, listener: Listener, count: int) -> None:
        """Tell a listener that so many more have been submitted, if they are not all that there are."""
        if self.left or self._submitted:
            self._submitted += count
            listener.submitted(self._submitted, self._submitted + self.left)
        if not self.left:
            self._submitted = 0


def _each(act: Callable[[Thing], Value], things: Sequence[Thing]) -> list[Value]:
    """Do something about each of some things, several at a time, since APIs take a while to answer."""
    if len(things) < 2:
        return [act(thing) for thing in things]
    with ThreadPoolExecutor(min(len(things), _AT_A_TIME), thread_name_prefix="controller") as pool:
        return list(pool.map(act, things))


def _is_dead(signs: Signs, lease: Lease) -> bool:
    """Whether an attempt of another study is over, and nobody is there who ends it."""
    job = signs.job or JobStatus(JobState.UNKNOWN)
    if job.state == JobState.UNKNOWN:
        return signs.silent_seconds > lease.lease_seconds
    return signs.orphaned and job.state.is_over


def _stopped(executor: Executor, job: LaunchedJob, now: bool) -> None:
    with suppress(ExecutorError):
        executor.stop(job, now=now)


def _name(run: Target) -> str:
    return f"{run.label}/{run.seed}"
