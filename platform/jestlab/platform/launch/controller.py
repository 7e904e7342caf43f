"""Bring a plan to its end: look at every run again and again, and do what `reconcile` decides.

The launcher is stateless. What is done, and who works on what and where, is in the store: a launcher may be
killed at any moment and started again anywhere, or two may run at once; attempts that still run are found
again by the handles of their jobs.
"""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from jestlab.platform import logs, processes
from jestlab.platform.errors import StoreError, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import looping, reconcile
from jestlab.platform.launch.claiming import Claimed, Claiming
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executors import Executors
from jestlab.platform.launch.liveness import Liveness, Termination
from jestlab.platform.launch.options import Options
from jestlab.platform.launch.pace import EXAMPLES
from jestlab.platform.launch.presence import Presence
from jestlab.platform.launch.reconcile import RetryRules, Seen, Signs, Target
from jestlab.platform.launch.record import Record
from jestlab.platform.launch.starting import Starting
from jestlab.platform.launch.together import each
from jestlab.platform.launch.wakeup import Intervals, Wakeup
from jestlab.platform.programs import failures
from jestlab.platform.store import leases
from jestlab.platform.store.claims import LIMIT
from jestlab.platform.store.engine import is_full
from jestlab.platform.store.records import Lease, RunState, Standing
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

LAST_SECONDS = 15.0
"""How long the end of runs is waited for after a second Ctrl-C; after the first, if none can be seen."""

SETTLE_SECONDS = 10.0
"""How long the workers of runs that have ended may take to end themselves."""

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

    def then(self, later: Outcome) -> Outcome:
        """Add how other runs of the same launch ended, after these."""
        return Outcome(
            {**self.states, **later.states},
            {**self.reasons, **later.reasons},
            later.interrupted,
            self.launched + later.launched,
            later.stopped,
        )

    @property
    def exit_code(self) -> int:
        """0 when all runs completed, 130 when interrupted, else 1."""
        if self.interrupted:
            return 130
        return 0 if all(state == RunState.COMPLETED for state in self.states.values()) else 1


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
        self._store_id = self.store.id()
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
        self._standings: dict[str, Standing] = {}
        self._settled: dict[str, Standing] = {}  # of runs that stay as they are, whatever becomes of others
        self._looked_at = -math.inf  # at all runs
        self._changed: set[str] = set()  # by this launcher, since it has looked at them
        self._shown: dict[str, tuple[RunState, str | None]] = {}
        self._stopping: str | None = None
        self.stopped: str | None = None  # why this launch stopped itself
        self._interrupted = False
        self._interrupted_at = math.inf  # when for the last time
        self._has_to_open = False
        self._store_away = False
        self._disk_full = False
        self._presence = Presence(self.lab, self.store, self._name, self._intervals.heartbeat)
        self._record = Record(self.lab.xmanager, self.title, self.listener.note)
        self._claiming = Claiming(
            self.store, self.executors, self.options, self._presence, self._liveness, self._termination
        )
        self._starting = Starting(
            self.lab, self.store, self.title, self.options, self._presence, self._record, self._termination,
            self._intervals.poll,
        )  # fmt: skip
        self._batch = _Batch()
        self._is_stuck = False  # whether nothing more can start within the limit

    async def run(self) -> bool:
        """Bring all runs to their end; return whether the user stopped it."""
        self.listener.begin(len(self._runs))
        thresholds = gc.get_threshold()
        # Each pass leaves thousands of small objects, few of them in cycles: to look for those as often as
        # Python does takes a fifth of a launcher's time.
        gc.set_threshold(max(thresholds[0], 10_000), *thresholds[1:])
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
            gc.set_threshold(*thresholds)
            self.listener.end()
            await self._record.close()
            if not self._store_away:
                with suppress(StoreError):  # other launchers will notice that this one has gone
                    await asyncio.to_thread(self._presence.leave)
        return self._interrupted

    async def _pass(self) -> bool:
        """Look at every run once and do what there is to do; return whether all stay as they are."""
        self._look_at_disk()
        try:
            claimed = await self._presence.beating(asyncio.to_thread(self._reconcile))
        except StoreError as error:
            if not self._store_away:
                self.listener.note(f"{error}: waiting for the store; what runs goes on")
            self._store_away = True
            self._looked_at = -math.inf
            self._liveness.forget()
            return self._termination.at_once or self._gives_up()
        if self._store_away:
            self.listener.note("the store is back")
            self._store_away = False
        if self._has_to_open and not self._record.opened:
            await self._record.open()
            self.wakeup.set()
        if claimed:
            ended = await self._starting.start(claimed, lambda: self._stopping)
            self._batch.tell(self.listener, len(claimed), self._claiming.left)
            if ended or self._claiming.left:
                self.wakeup.set()
        over = self._is_stuck or len(self._final) == len(self._runs)
        return over or ((self._termination.at_once or self._disk_full) and self._gives_up())

    def _look_at_disk(self) -> None:
        """Say at once when the lab's disk is full, and when it's not full any more."""
        was_full, self._disk_full = self._disk_full, is_full(self.lab.root)
        if self._disk_full and not was_full:
            self.listener.note(f"disk full: {self.lab.root}: make room; what runs goes on")
        elif was_full and not self._disk_full:
            self.listener.note(f"there is room at {self.lab.root} again")

    def _gives_up(self) -> bool:
        """Whether a launch that was stopped has waited long enough for runs whose end it can't see."""
        if not self._interrupted or (self._ours and self._interrupted_at + LAST_SECONDS > time.monotonic()):
            return False
        for lease in self._ours:
            self.listener.note(f"attempt {lease.number} may still run: {lease.executor} {lease.handle}")
        return True

    # ---- one pass

    def _reconcile(self) -> list[Claimed]:
        """Read, decide and act; what is returned has been claimed and is still to be launched."""
        self._presence.beat()
        self._presence.lab()
        standings, ready, has_acted = self._judge()
        if has_acted:  # what it led to, such as a free slot, is seen at once
            standings, ready, has_acted = self._judge()
        if has_acted:
            self.wakeup.set()
        running = [fingerprint for fingerprint, run in standings.items() if run.state == RunState.RUNNING]
        if running:
            self.listener.progress(self.store.progress(running, ("loss", EXAMPLES)))
        if ready and self._stopping is None and not self._record.opened:
            self._has_to_open = True
            return []
        claimed = self._claiming.claim(ready if self._stopping is None else [], self._ours, self._runs)
        self._changed.update(self._claiming.told, (one.target.fingerprint for one in claimed))
        if self._claiming.freed:
            self.wakeup.set()
        if not claimed and not any(run.is_live for run in standings.values()):
            self._stop_if_stuck()
        return claimed

    def _judge(self) -> tuple[Mapping[str, Standing], list[tuple[Standing, Target]], bool]:
        """Look at all runs, decide about each, and do it.

        Returns:
            How the runs stood, those that may start, and whether anything was done to the others.
        """
        standings = self._look()
        self._needed = self.store.states(self._outside) if self._outside else {}
        live = [run.lease for run in standings.values() if run.lease is not None and run.lease.is_live]
        self._ours = [lease for lease in live if lease.launcher == self._name]
        # Of the launchers, those are asked for that others' attempts have.
        launchers = leases.heartbeats(self.store) if len(self._ours) < len(live) else {}
        signs = self._liveness.check(live, launchers)
        at = now()
        self._final, ready = {}, []
        todo, actions = _Todo(), []
        for fingerprint, target in self._runs.items():
            run = standings[fingerprint]
            if self._settled.get(fingerprint) is run:
                self._final[fingerprint] = run.state
                continue
            action = reconcile.decide(run, self._seen(run, target, signs, standings, at), self._rules)
            if isinstance(action, reconcile.Claim) and not self.options.launches:
                action = reconcile.Done(run.state, run.reason)  # somebody has launched it again meanwhile
            if isinstance(action, reconcile.Claim):
                ready.append((run, target))
            else:
                self._decided(todo, run, target, action)
            actions.append((run, target, action))
            if isinstance(action, reconcile.Done) and run.state in (RunState.COMPLETED, RunState.FAILED):
                self._settled[fingerprint] = run
        has_acted = self._do(todo)
        for decided in actions:
            self._show(*decided)
        self._stop_if_alike(standings)
        return standings, ready, has_acted

    def _look(self) -> Mapping[str, Standing]:
        """Return how all runs stand.

        What others do to runs that no attempt holds is looked at once an interval: launchers of thousands of
        runs are woken many times in it, each time by an attempt of their own.
        """
        at = time.monotonic()
        if at - self._looked_at >= self._intervals.poll:
            self._looked_at = at
            self._standings = leases.standings(self.store, self._runs)
        else:
            held = {run.fingerprint for run in self._standings.values() if run.is_live}
            self._standings |= leases.standings(self.store, held | self._changed)
        self._changed = set()
        return self._standings

    def _seen(
        self,
        run: Standing,
        target: Target,
        signs: Mapping[int, Signs],
        standings: Mapping[str, Standing],
        at: datetime,
    ) -> Seen:
        """Collect what is known of a run, at a time, beyond its row in the store."""
        known = signs[run.lease.id] if run.lease is not None and run.is_live else Signs()
        needs = [self._needed_run(needed) for needed in target.needs.values()]
        return Seen(
            **vars(known),
            needs=needs,
            stopping=self._stopping,
            now=at,
            elsewhere=self._presence.elsewhere(run.lease) if run.is_live else None,
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

    def _do(self, todo: _Todo) -> bool:
        """Do what has been decided: one transaction of a kind, whatever the number of runs.

        Returns:
            Whether runs have other states, or attempts another launcher, than they had.
        """
        if todo.entries:
            leases.enter(self.store, todo.entries)
            self._changed.update(run.fingerprint for run, _, _ in todo.entries)
        if todo.waits:
            leases.waits(self.store, todo.waits)
        if todo.adopted:
            leases.adopt(self.store, todo.adopted, self._presence.launcher())
        each(self._termination.stop, todo.stopped)
        # An attempt has not ended as long as anything of it runs.
        over = each(lambda end: end.kill or self._termination.clear(end.lease), todo.ended)
        endings = {
            end.lease.id: self._ending(end) for end, clear in zip(todo.ended, over, strict=True) if clear
        }
        if endings:
            done = {ending.attempt_id for ending in leases.end_all(self.store, endings.values())}
            killed = [end.lease for end in todo.ended if end.kill and end.lease.id in done]
            each(self._termination.kill, killed)
        return bool(todo.entries or todo.adopted or endings)

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

    def _stop_if_stuck(self) -> None:
        """End a launch of which nothing runs, and nothing more can start within the limit of chip-hours."""
        left = [run for fingerprint, run in self._runs.items() if fingerprint not in self._final]
        if not self._claiming.too_dear or self._stopping is not None:
            return
        if all(
            run.fingerprint in self._claiming.too_dear
            or any(need in self._runs and need not in self._final for need in run.needs.values())
            for run in left
        ):
            self._is_stuck = True
            for run in left:
                self.listener.state(run, RunState.PENDING, self._claiming.too_dear.get(run.fingerprint))
            runs = f"{len(left)} run{'s are' if len(left) > 1 else ' is'} left"
            self.stopped = (
                f"{LIMIT} of {self.options.max_chip_hours:g} chip-hours is reached, {runs}: launch again, "
                "with a higher --max-chip-hours, to go on"
            )
            self.listener.note(f"stopped: {self.stopped}")

    # ---- its user, and itself

    def interrupt(self) -> None:
        """Stop the runs on the first SIGINT or SIGTERM, and kill them on the second; called in its loop."""
        self._interrupted_at = time.monotonic()
        if self._interrupted:
            self._termination.at_once = True
        else:
            self._interrupted, self._stopping = True, "the launch was stopped"
            if self.options.launches:
                self.executors(self.options.executor).halt()
            self.listener.note("stopping the runs; once more to end them at once")
        # Now, and not in the next pass alone: that may be waiting for a store that is away.
        for lease in self._ours:
            asyncio.get_running_loop().run_in_executor(None, self._termination.stop, lease)
        self.wakeup.set()

    def _missing(self, target: Target, standings: Mapping[str, Standing]) -> str | None:
        """Say which needed run has no files here, because another lab completed it."""
        for fingerprint in target.needs.values():
            run = standings.get(fingerprint)
            if run is None or run.state != RunState.COMPLETED:
                continue
            place = self._presence.elsewhere(run.lease)
            if place is not None and not (self.lab.root / run.directory).is_dir():
                return f"needs {_name(self._runs[fingerprint])}, which was completed in the lab at {place}"
        return None

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
                place = self._presence.elsewhere(run.lease)
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
    """Runs that start one after another, more than are launched at a time."""

    submitted: int = 0

    def tell(self, listener: Listener, count: int, left: int) -> None:
        """Tell a listener that so many more have been submitted, if they are not all that there are."""
        if left or self.submitted:
            self.submitted += count
            listener.submitted(self.submitted, self.submitted + left)
        if not left:
            self.submitted = 0


def _name(run: Target) -> str:
    return f"{run.label}/{run.seed}"
