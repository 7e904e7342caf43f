"""Bring the runs of a plan to their end: in each pass, decide about every run and carry that out.

The controller keeps no state that matters. The store has the state, the attempt, and the job handle of each
run, so a launcher can be killed at any time and started again anywhere, and several can run at once.
"""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from jestlab.platform import logs, processes
from jestlab.platform.errors import StoreError, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import concurrency, reconcile
from jestlab.platform.launch.claiming import ClaimedBatch, Claiming
from jestlab.platform.launch.concurrency import Wakeup, each
from jestlab.platform.launch.display import EXAMPLES, Listener
from jestlab.platform.launch.executors import Executors
from jestlab.platform.launch.liveness import Liveness, Observer, Presence, Termination
from jestlab.platform.launch.options import ControllerOptions, Intervals
from jestlab.platform.launch.outcome import LaunchOutcome
from jestlab.platform.launch.reconcile import (
    Action,
    Adopt,
    Done,
    EndAttempt,
    RetryRules,
    SetState,
    StartAttempt,
    StopJob,
    Target,
    Wait,
    title,
)
from jestlab.platform.launch.record import XManagerRecord
from jestlab.platform.programs import failures
from jestlab.platform.store import leases
from jestlab.platform.store.claims import LIMIT
from jestlab.platform.store.engine import is_full
from jestlab.platform.store.records import RunState, Standing
from jestlab.platform.store.store import Store

LAST_SECONDS = 15.0
"""How long a stopped launch waits for runs if it can't observe their end, or after a second Ctrl-C."""

SETTLE_SECONDS = 10.0
"""How long the controller waits at its end for the workers of finished runs to exit."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def launch(
    lab: Lab,
    store: Store,
    title: str,
    runs: Sequence[Target],
    executors: Executors,
    *,
    options: ControllerOptions | None = None,
    listener: Listener | None = None,
    wakeup: Wakeup | None = None,
) -> LaunchOutcome:
    """Bring recorded runs to their final states.

    SIGINT and SIGTERM stop all runs that this controller manages; a second signal kills them. If the
    controller dies, its jobs continue, and the next launcher takes them over. In a running event loop, as in
    a notebook, only SIGINT is handled; outside the main thread no signal is.

    Args:
        title: Name of the study.
        runs: The runs, each after its dependencies.
        wakeup: Set by other threads when a pass is due, for example at the end of a process.

    Raises:
        UserError: An environment variable for an interval is not a number of seconds.
    """
    fingerprints = [run.fingerprint for run in runs]
    states = store.states(fingerprints)
    waiting = [run for run in runs if states[run.fingerprint] != RunState.COMPLETED]
    interrupted, stopped = False, None
    if waiting:
        lab.root.mkdir(parents=True, exist_ok=True)  # only here: later its folder may have been moved
        controller = _Controller(
            lab,
            store,
            title,
            waiting,
            executors,
            options or ControllerOptions(),
            listener or Listener(),
            wakeup or Wakeup(),
        )
        interrupted = concurrency.run(controller.run, controller.interrupt)
        stopped = controller.stopped
    states, reasons = store.states(fingerprints), store.reasons(fingerprints)
    return LaunchOutcome(states, reasons, interrupted, len(waiting), stopped)


@dataclass
class _Controller:
    """One launch."""

    lab: Lab
    store: Store
    title: str
    targets: Sequence[Target]
    executors: Executors
    options: ControllerOptions
    listener: Listener
    wakeup: Wakeup

    def __post_init__(self) -> None:
        options, note, store_id = self.options, self.listener.note, self.store.id()
        self._intervals = Intervals.from_environment()
        self._rules = RetryRules(options.retries, self._intervals.backoff, self._intervals.max_backoff)
        self._name = processes.identity()
        self._liveness = Liveness(self._name, store_id, self.executors, options.lease_seconds)
        self._termination = Termination(store_id, self.executors, note, options.at_once)
        self._presence = Presence(self.lab, self.store, self._name, self._intervals.heartbeat)
        self._record = XManagerRecord(self.lab.xmanager, self.title, note)
        self._claiming = Claiming(
            self.lab, self.store, self.title, self.executors, options, self._presence, self._liveness,
            self._termination, self._record, self._intervals.poll,
        )  # fmt: skip
        self._runs = {run.fingerprint: run for run in self.targets}
        self._dependencies = {need for run in self.targets for need in run.needs.values()}
        self._observer = Observer(
            self.lab, self.store, self._runs, self._presence, self._liveness, self._intervals.poll
        )
        self._final: dict[str, RunState] = {}
        self._settled: dict[str, Standing] = {}  # runs whose state can't change any more
        self._shown: dict[str, tuple[RunState, str | None]] = {}
        self._store_lost = False
        self._disk_full = False
        self._stopping: str | None = None  # why no further run starts
        self._interrupted = False
        self._interrupted_at = math.inf
        self._is_stuck = False  # nothing more can start within the limit of chip-hours
        self.stopped: str | None = None  # why the launch stopped itself

    async def run(self) -> bool:
        """Bring all runs to their end; return whether the user interrupted it."""
        self.listener.begin(len(self._runs))
        thresholds = gc.get_threshold()
        # Each pass creates thousands of small objects and few cycles. With Python's defaults, looking for
        # cycles takes a fifth of a launcher's time.
        gc.set_threshold(max(thresholds[0], 10_000), *thresholds[1:])
        before = {number: signal.getsignal(number) for number in _SIGNALS if concurrency.receives_signals()}
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
                signal.signal(number, handler)  # a script may have installed its handler
            gc.set_threshold(*thresholds)
            self.listener.end()
            await self._record.close()
            if not self._store_lost:
                with suppress(StoreError):  # other launchers will notice its silence
                    await asyncio.to_thread(self._presence.leave)
        return self._interrupted

    def interrupt(self) -> None:
        """Stop the runs at the first SIGINT or SIGTERM, kill them at the second; called in the event loop."""
        self._interrupted_at = time.monotonic()
        if self._interrupted:
            self._termination.at_once = True
        else:
            self._interrupted, self._stopping = True, "the launch was stopped"
            if self.options.launches:
                self.executors(self.options.executor).halt()
            self.listener.note("stopping the runs; press Ctrl-C again to kill them")
        # Now, because the next pass may be waiting for the store.
        for lease in self._observer.ours:
            asyncio.get_running_loop().run_in_executor(None, self._termination.stop, lease)
        self.wakeup.set()

    # ---- one pass

    async def _pass(self) -> bool:
        """Decide about all runs and carry it out; return whether the launch is over."""
        self._check_disk()
        try:
            batch = await self._presence.beating(asyncio.to_thread(self._reconcile))
        except StoreError as error:
            if not self._store_lost:
                self.listener.note(f"{error}: waiting for the store; running jobs continue")
            self._store_lost = True
            self._observer.forget()
            return self._termination.at_once or self._gives_up()
        if self._store_lost:
            self.listener.note("the store can be reached again")
            self._store_lost = False
        if batch.claimed:
            ended = await self._claiming.launch(batch.claimed, lambda: self._stopping)
            if ended or batch.left:
                self.wakeup.set()
        over = self._is_stuck or len(self._final) == len(self._runs)
        return over or ((self._termination.at_once or self._disk_full) and self._gives_up())

    def _reconcile(self) -> ClaimedBatch:
        """Read, decide, and act; return the claimed attempts that have to be launched."""
        self._presence.beat()
        self._presence.lab()
        standings, ready, acted = self._judge()
        if acted:  # use the effects, such as a free slot, in the same pass
            standings, ready, acted = self._judge()
        if acted:
            self.wakeup.set()
        running = [fingerprint for fingerprint, run in standings.items() if run.state == RunState.RUNNING]
        if running:
            self.listener.progress(self.store.progress(running, ("loss", EXAMPLES)))
        batch = self._claiming.claim(ready if self._stopping is None else [], self._observer.ours, self._runs)
        self._observer.changed.update(batch.updated, (one.target.fingerprint for one in batch.claimed))
        if batch.freed:
            self.wakeup.set()
        if not batch.claimed and not any(run.is_live for run in standings.values()):
            self._stop_if_stuck(batch.over_budget)
        return batch

    def _judge(self) -> tuple[Mapping[str, Standing], list[tuple[Standing, Target]], bool]:
        """Read all runs, decide about each, and carry that out.

        Returns:
            The runs as they were read, those that can start, and whether any other run was changed.
        """
        standings = self._observer.read()
        ready: list[tuple[Standing, Target]] = []
        actions: list[tuple[Standing, Target, Action]] = []
        self._final = {}
        for fingerprint, target in self._runs.items():
            run = standings[fingerprint]
            if self._settled.get(fingerprint) is run:
                self._final[fingerprint] = run.state
                continue
            seen = self._observer.observe(target, self._final, self._stopping)
            action = reconcile.decide(run, seen, self._rules)
            if isinstance(action, StartAttempt):
                if self.options.launches:
                    ready.append((run, target))
                else:
                    action = Done(run.state, run.reason)  # another launch has reopened it
            if isinstance(action, Done):
                self._final[fingerprint] = action.state
                if action.state == RunState.FAILED and self.options.fail_fast and self._stopping is None:
                    self._stopping = f"{title(target)} failed"
                if run.state in (RunState.COMPLETED, RunState.FAILED):
                    self._settled[fingerprint] = run
            actions.append((run, target, action))
        acted = self._act(actions)
        for decided in actions:
            self._show(*decided)
        self._stop_if_failures_repeat(standings)
        return standings, ready, acted

    def _act(self, actions: Sequence[tuple[Standing, Target, Action]]) -> bool:
        """Carry out the actions, with one transaction per kind.

        Returns:
            Whether runs have a new state or attempts have a new launcher.
        """
        changes = [(run, act.state, act.reason) for run, _, act in actions if isinstance(act, SetState)]
        waits = {
            run.lease.id: act.reason
            for run, _, act in actions
            if isinstance(act, Wait) and act.reason and run.lease is not None and act.reason != run.reason
        }
        orphans = [act.lease for _, _, act in actions if isinstance(act, Adopt)]
        if changes:
            leases.change_states(self.store, changes)
            self._observer.changed.update(run.fingerprint for run, _, _ in changes)
        if waits:
            leases.set_pending_reasons(self.store, waits)
        if orphans:
            leases.adopt(self.store, orphans, self._presence.launcher())
        each(self._termination.stop, [act.lease for _, _, act in actions if isinstance(act, StopJob)])
        ended = [act for _, _, act in actions if isinstance(act, EndAttempt)]
        # An attempt has not ended while any of its processes runs.
        clear = each(lambda end: end.kill or self._termination.clear(end.lease), ended)
        endings = [self._ending(end) for end, is_clear in zip(ended, clear, strict=True) if is_clear]
        if endings:
            done = {ending.attempt_id for ending in leases.end_all(self.store, endings)}
            each(self._termination.kill, [end.lease for end in ended if end.kill and end.lease.id in done])
        return bool(changes or orphans or endings)

    def _ending(self, end: EndAttempt) -> leases.Ending:
        lease, reason = end.lease, end.reason
        if end.state == RunState.FAILED:
            with suppress(UserError):  # the path of the log may lead out of the lab
                if summary := logs.summary(self.lab.inside(lease.log)):
                    reason = f"{reason}: {summary}"
        heartbeat_at = lease.heartbeat_at if end.kill else None
        return leases.Ending(lease.fingerprint, lease.id, end.state, reason, end.exit_code, heartbeat_at)

    # ---- end of the launch

    def _gives_up(self) -> bool:
        """Return whether an interrupted launch has waited long enough for runs that it can't observe."""
        if not self._interrupted or (
            self._observer.ours and self._interrupted_at + LAST_SECONDS > time.monotonic()
        ):
            return False
        for lease in self._observer.ours:
            self.listener.note(f"attempt {lease.number} may still run: {lease.executor} {lease.handle}")
        return True

    def _stop_if_failures_repeat(self, standings: Mapping[str, Standing]) -> None:
        """Stop a launch whose first runs failed with the same error."""
        is_over = len(self._final) == len(self._runs)
        if is_over or self._stopping is not None or self.options.keep_going or not self.options.launches:
            return
        reasons = {fingerprint: run.reason for fingerprint, run in standings.items()}
        reason = failures.alike(self._final, reasons, self._dependencies)
        if reason is not None:
            count = sum(state == RunState.FAILED for state in self._final.values())
            self._stopping = f"{count} runs failed with the same error"
            self.stopped = f"{self._stopping}: {reason}"
            self.listener.note(f"stopped: {self.stopped}; fix the cause and relaunch, or pass --keep-going")
            self.wakeup.set()

    def _stop_if_stuck(self, over_budget: Mapping[str, str]) -> None:
        """Stop a launch in which nothing runs and nothing can start within the limit of chip-hours."""
        left = [run for fingerprint, run in self._runs.items() if fingerprint not in self._final]
        if not over_budget or self._stopping is not None:
            return
        if all(
            run.fingerprint in over_budget
            or any(need in self._runs and need not in self._final for need in run.needs.values())
            for run in left
        ):
            self._is_stuck = True
            for run in left:
                self.listener.state(run, RunState.PENDING, over_budget.get(run.fingerprint))
            self.stopped = (
                f"{LIMIT} of {self.options.max_chip_hours:g} chip-hours is reached with {len(left)} left to "
                "run: relaunch with a higher --max-chip-hours to continue"
            )
            self.listener.note(f"stopped: {self.stopped}")

    # ---- display

    def _check_disk(self) -> None:
        """Report when the disk of the lab becomes full."""
        was_full, self._disk_full = self._disk_full, is_full(self.lab.root)
        if self._disk_full and not was_full:
            self.listener.note(f"disk full: {self.lab.root}: free some space; running jobs continue")

    def _show(self, run: Standing, target: Target, action: Action) -> None:
        """Report the state of a run if it is new."""
        match action:
            case Done(state, reason):
                shown = (state, reason)
            case EndAttempt(_, RunState.PREEMPTED, reason, _, _):
                shown = (RunState.PENDING, f"{reason}; resumes from the last checkpoint")
            case SetState(RunState.PENDING, reason):
                shown = (RunState.PENDING, reason)
            case Wait(str(reason)):
                shown = (RunState.PENDING, reason.partition("\n")[0])  # the place in line changes often
            case Wait() if run.state == RunState.RUNNING:
                is_other = run.lease is not None and run.lease.launcher != self._name
                place = self._presence.other_lab(run.lease)
                where = "in another launch" if place is None else f"in the lab at {place}"
                shown = (RunState.RUNNING, where if is_other else None)
            case _:
                return
        if self._shown.get(run.fingerprint) != shown:
            self._shown[run.fingerprint] = shown
            self.listener.state(target, *shown)
