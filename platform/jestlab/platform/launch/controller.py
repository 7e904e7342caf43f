"""Run a launch: in repeated passes, decide the next action for every run, and carry out the actions.

All essential state is in the store: the state, last attempt, and job handle of each run. So a launcher can be
killed at any time and restarted on any machine, and several launchers can work on the same runs at once.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from jestlab.platform import logs
from jestlab.platform.errors import StoreError, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import concurrency, reconcile
from jestlab.platform.launch.claiming import Claimed, Claiming
from jestlab.platform.launch.concurrency import map_parallel
from jestlab.platform.launch.display import EXAMPLES, Listener
from jestlab.platform.launch.executors import Executors
from jestlab.platform.launch.executors.base import LaunchedJob
from jestlab.platform.launch.liveness import Launcher, Liveness, Termination
from jestlab.platform.launch.options import ControllerOptions
from jestlab.platform.launch.outcome import LaunchOutcome
from jestlab.platform.launch.reconcile import (
    Action,
    Adopt,
    Done,
    EndAttempt,
    Observation,
    SetState,
    Signs,
    StartAttempt,
    StopJob,
    Target,
    Wait,
    title,
)
from jestlab.platform.launch.retries import RetryRules
from jestlab.platform.programs import failures
from jestlab.platform.store import leases
from jestlab.platform.store.claims import LIMIT
from jestlab.platform.store.engine import is_full
from jestlab.platform.store.records import Lease, RunState, Standing
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

MAX_STOP_SECONDS = 15.0
"""How long to wait for runs after a second Ctrl-C, or after one if the store is lost or the disk is full."""

SETTLE_SECONDS = 10.0
"""At the end of a launch, how long to wait for the workers of finished runs to exit."""


def launch(
    lab: Lab,
    store: Store,
    title: str,
    runs: Sequence[Target],
    executors: Executors,
    *,
    options: ControllerOptions | None = None,
    listener: Listener | None = None,
    wakeup: threading.Event | None = None,
) -> LaunchOutcome:
    """Start recorded runs, and return when each has reached its final state.

    In the main thread, SIGINT or SIGTERM stops all runs that this controller manages, and a second signal
    kills them. If the controller dies, its jobs continue, and the next launcher takes them over.

    Args:
        title: Name of the study.
        runs: The runs, dependencies first. Their rows must exist in the store.
        wakeup: Event that other threads set to start a pass at once, for example when a process has ended.

    Raises:
        UserError: An environment variable for an interval is not a number of seconds.
    """
    fingerprints = [run.fingerprint for run in runs]
    states = store.states(fingerprints)
    waiting = [run for run in runs if states[run.fingerprint] != RunState.COMPLETED]
    if not waiting:
        return LaunchOutcome(states, store.reasons(fingerprints), False, 0)
    lab.root.mkdir(parents=True, exist_ok=True)  # don't create it again if the user moves it later
    launcher = Launcher(lab, store, title, executors, options or ControllerOptions(), listener or Listener())
    controller = _Controller(launcher, waiting, wakeup or threading.Event())
    concurrency.run_in_thread(controller.run, controller.interrupt)
    states, reasons = store.states(fingerprints), store.reasons(fingerprints)
    return LaunchOutcome(
        states, reasons, controller.interrupted, len(waiting), controller.stopped, controller.over_budget
    )


class _Controller:
    """One launch.

    Attributes:
        interrupted: Whether the user stopped the launch.
        stopped: Why the controller stopped the launch early; None if it didn't.
        over_budget: Whether nothing more can start within the limit of chip-hours.
    """

    def __init__(self, launcher: Launcher, runs: Sequence[Target], wakeup: threading.Event) -> None:
        self.interrupted = False
        self.stopped: str | None = None
        self.over_budget = False
        self._launcher = launcher
        self._options = launcher.options
        self._store = launcher.store
        self._listener = launcher.listener
        self._runs = {run.fingerprint: run for run in runs}
        self._dependencies = {need for run in runs for need in run.needs.values()}
        self._external = self._dependencies - self._runs.keys()
        self._wakeup = wakeup
        intervals = launcher.intervals
        self._rules = RetryRules(self._options.retries, intervals.backoff, intervals.max_backoff)
        self._termination = Termination(launcher)
        self._liveness = Liveness(launcher)
        self._claiming = Claiming(launcher, self._liveness, self._termination)
        self._standings: dict[str, Standing] = {}
        self._read_at = -math.inf  # when all standings were last read
        self._external_standings: Mapping[str, Standing] = {}  # dependencies outside this launch
        self._signs: Mapping[int, Signs] = {}  # attempt id → signs of life, for live attempts
        self._own_attempts: list[Lease] = []  # this launcher's live attempts at the last read
        self._changed: set[str] = set()  # runs that this launcher changed since the last read
        self._final: dict[str, RunState] = {}
        self._settled: dict[str, Standing] = {}  # COMPLETED or FAILED runs that need no further decision
        self._shown: dict[str, tuple[RunState, str | None]] = {}
        self._store_lost = False
        self._disk_full = False
        self._interrupted_at = math.inf

    def run(self) -> None:
        """Repeat passes until the launch is over."""
        self._listener.begin(len(self._runs))
        try:
            with self._launcher.sending_heartbeats():
                while not self._pass():
                    self._wakeup.wait(self._launcher.intervals.poll)
                    self._wakeup.clear()
                if self._options.launches:
                    self._launcher.executor.settle(SETTLE_SECONDS)
        finally:
            self._listener.end()
            self._claiming.record.close()
            if not self._store_lost:
                with suppress(StoreError):  # without heartbeats, it counts as lost anyway
                    self._launcher.unregister()

    def interrupt(self) -> None:
        """Stop the runs at the first call, kill them at the second. `run` is executing in another thread."""
        self._interrupted_at = time.monotonic()
        if self.interrupted:
            self._launcher.at_once = True
        else:
            self.interrupted = True
            self._stop("the launch was stopped")
            if self._options.launches:
                self._launcher.executor.halt()
            self._listener.note("stopping the runs; press Ctrl-C again to kill them")
        # Stop them here, because the other thread may be waiting for the store.
        concurrency.submit_each(self._termination.stop, self._own_attempts)
        self._wakeup.set()

    # ---- one pass

    def _pass(self) -> bool:
        """Read all runs, act, and launch jobs; return whether the launch is over."""
        self._check_disk()
        try:
            claimed = self._reconcile()
        except StoreError as error:
            if not self._store_lost:
                self._listener.note(f"{error}: waiting for the store; running jobs continue")
            self._store_lost = True
            self._read_at = -math.inf
            self._liveness.reset()
            return self._launcher.at_once or self._should_give_up()
        if self._store_lost:
            self._listener.note("the store can be reached again")
            self._store_lost = False
        if claimed and self._claiming.launch(claimed, self._jobs_of_dependencies):
            self._wakeup.set()
        over = self.over_budget or len(self._final) == len(self._runs) or self._is_submitted()
        return over or ((self._launcher.at_once or self._disk_full) and self._should_give_up())

    def _is_submitted(self) -> bool:
        """Return whether a launch that submits jobs ahead has nothing left to submit."""
        if not self._options.ahead or not self._options.launches:
            return self._options.ahead and not self._wakeup.is_set()
        left = [self._standings[fingerprint].lease for fingerprint in self._runs.keys() - self._final.keys()]
        return all(lease is not None and lease.is_live and lease.handle is not None for lease in left)

    def _reconcile(self) -> Sequence[Claimed]:
        """Read the runs, act, and claim runs that can start; return the claimed attempts, to be launched."""
        standings, ready, changed = self._decide_and_act()
        if changed:  # an action may have made others possible, such as by freeing a slot
            standings, ready, changed = self._decide_and_act()
        running = [fingerprint for fingerprint, run in standings.items() if run.state == RunState.RUNNING]
        if running:
            self._listener.progress(self._store.progress(running, ("loss", EXAMPLES)))
        ready = ready if self._launcher.stopping is None else []
        batch = self._claiming.claim(ready, self._own_attempts, self._runs)
        self._changed.update(batch.changed)
        if changed or batch.more:
            self._wakeup.set()
        if not batch.claimed and not any(run.is_live for run in standings.values()):
            self._stop_if_stuck(batch.over_budget)
        return batch.claimed

    def _decide_and_act(self) -> tuple[Mapping[str, Standing], list[tuple[Standing, Target]], bool]:
        """Read all runs, decide the next action for each, and carry out all actions except starting attempts.

        Returns:
            The runs as they were read, the runs that can start, and whether any run or attempt was changed.
        """
        standings = self._read()
        at = now()
        ready: list[tuple[Standing, Target]] = []
        actions: list[tuple[Standing, Target, Action]] = []
        self._final = {}
        for fingerprint, target in self._runs.items():
            run = standings[fingerprint]
            if self._settled.get(fingerprint) is run:
                self._final[fingerprint] = run.state
                continue
            action = reconcile.decide(run, self._observe(run, target, at), self._rules)
            if isinstance(action, StartAttempt):
                if self._options.launches:
                    ready.append((run, target))
                else:
                    action = Done(run.state, run.reason)  # another launch has reopened the run
            if isinstance(action, Done):
                self._final[fingerprint] = action.state
                if action.state == RunState.FAILED and self._options.fail_fast:
                    self._stop(f"{title(target)} failed")
                if run.state in (RunState.COMPLETED, RunState.FAILED):
                    self._settled[fingerprint] = run
            actions.append((run, target, action))
        changed = self._act(actions)
        for decided in actions:
            self._show(*decided)
        self._stop_if_failures_repeat(standings)
        return standings, ready, changed

    def _read(self) -> Mapping[str, Standing]:
        """Read the state of all runs, and the signs of life of their attempts.

        Runs without a live attempt are read only once per poll interval: launches of thousands of runs make
        many passes within an interval.
        """
        at, wanted = time.monotonic(), set(self._runs)
        if at - self._read_at < self._launcher.intervals.poll:
            live_runs = {run.fingerprint for run in self._standings.values() if run.is_live}
            wanted = live_runs | self._changed
        else:
            self._read_at = at
        self._standings |= leases.standings(self._store, wanted)
        self._changed.clear()
        self._external_standings = leases.standings(self._store, self._external) if self._external else {}
        live = [run.lease for run in self._standings.values() if run.lease is not None and run.is_live]
        self._own_attempts = [lease for lease in live if lease.launcher == self._launcher.name]
        self._signs = self._liveness.check(live)
        return self._standings

    def _observe(self, run: Standing, target: Target, at: datetime) -> Observation:
        """Collect the inputs of a decision that aren't in the run's row in the store."""
        signs = self._signs[run.lease.id] if run.lease is not None and run.is_live else Signs()
        return Observation(
            **vars(signs),
            needs=[self._dependency(needed) for needed in target.needs.values()],
            stopping=self._launcher.stopping,
            now=at,
            can_queue=self._options.ahead and self._jobs_of_dependencies(target) is not None,
            other_lab=self._launcher.other_lab(run.lease) if run.is_live else None,
            missing=self._missing_files(target),
        )

    def _dependency(self, fingerprint: str) -> tuple[str, RunState | None]:
        """Return the title and the state of a dependency; None for a state that may still change."""
        if fingerprint in self._runs:
            return self._title(fingerprint), self._final.get(fingerprint)
        run = self._external_standings.get(fingerprint)
        is_open = run is None or not run.state.is_terminal or run.state == RunState.PREEMPTED
        return self._title(fingerprint), None if run is None or is_open else run.state

    def _jobs_of_dependencies(self, target: Target) -> list[LaunchedJob] | None:
        """Return the jobs of incomplete dependencies; None if one has no job on this launch's executor."""
        jobs = []
        for fingerprint in target.needs.values():
            run = self._standings.get(fingerprint) or self._external_standings.get(fingerprint)
            if run is not None and run.state == RunState.COMPLETED:
                continue
            if run is None or run.lease is None or not run.is_live or run.lease.executor != self._options.on:
                return None
            if (job := LaunchedJob.of(self._launcher.store_id, run.lease)) is None:
                return None
            jobs.append(job)
        return jobs

    def _title(self, fingerprint: str) -> str:
        target = self._runs.get(fingerprint)
        return f"run {fingerprint[:8]}" if target is None else title(target)

    def _missing_files(self, target: Target) -> str | None:
        """Return a message if the files of a dependency are only in another lab; else None."""
        for fingerprint in target.needs.values():
            run = self._standings.get(fingerprint) or self._external_standings.get(fingerprint)
            if run is None or run.state != RunState.COMPLETED:
                continue
            address = self._launcher.other_lab(run.lease)
            if address is not None and not (self._launcher.lab.root / run.directory).is_dir():
                copy = f"launch with the --root of that lab, or copy its {run.directory} into this one"
                return f"depends on {self._title(fingerprint)}, completed in the lab at {address}: {copy}"
        return None

    def _act(self, actions: Sequence[tuple[Standing, Target, Action]]) -> bool:
        """Carry out the actions, with one transaction per kind of action.

        Returns:
            Whether a run has a new state, or an attempt has ended or was adopted by this launcher.
        """
        changes = [(run, act.state, act.reason) for run, _, act in actions if isinstance(act, SetState)]
        waits = {
            run.fingerprint: act.reason
            for run, _, act in actions
            if isinstance(act, Wait) and act.reason and run.lease is not None and act.reason != run.reason
        }
        orphans = [act.lease for _, _, act in actions if isinstance(act, Adopt)]
        if changes:
            leases.change_states(self._store, changes)
            self._changed.update(run.fingerprint for run, _, _ in changes)
        if waits:
            leases.set_reasons(self._store, waits, claimed=True)
        if orphans:
            leases.adopt(self._store, orphans, self._launcher.register())
        map_parallel(self._termination.stop, [act.lease for _, _, act in actions if isinstance(act, StopJob)])
        ended = [act for _, _, act in actions if isinstance(act, EndAttempt)]
        # Don't end an attempt while any of its processes is still running.
        clear = map_parallel(lambda end: end.kill or self._termination.clear(end.lease), ended)
        endings = [self._ending(end) for end, is_clear in zip(ended, clear, strict=True) if is_clear]
        if endings:
            done = {ending.attempt_id for ending in leases.end_all(self._store, endings)}
            map_parallel(
                self._termination.kill, [end.lease for end in ended if end.kill and end.lease.id in done]
            )
        return bool(changes or orphans or endings)

    def _ending(self, end: EndAttempt) -> leases.Ending:
        lease, reason = end.lease, end.reason
        if end.state == RunState.FAILED:
            with suppress(UserError):  # the log's path may point outside the lab
                if summary := logs.summary(self._launcher.lab.inside(lease.log)):
                    reason = f"{reason}: {summary}"
        heartbeat_at = lease.heartbeat_at if end.kill else None
        return leases.Ending(lease.fingerprint, lease.id, end.state, reason, end.exit_code, heartbeat_at)

    # ---- end of the launch

    def _stop(self, reason: str) -> None:
        """Start no further runs; the next pass stops the running ones. Only the first reason is kept."""
        self._launcher.stopping = self._launcher.stopping or reason

    def _should_give_up(self) -> bool:
        """Return whether an interrupted launch should end, even if its attempts may still be running."""
        may_wait = self._interrupted_at + MAX_STOP_SECONDS > time.monotonic()
        if not self.interrupted or (self._own_attempts and may_wait):
            return False
        for lease in self._own_attempts:
            self._listener.note(f"attempt {lease.number} may still run: {lease.executor} {lease.handle}")
        return True

    def _stop_if_failures_repeat(self, standings: Mapping[str, Standing]) -> None:
        """Stop the launch if at least three runs failed with the same error (`failures.common_reason`)."""
        options, is_over = self._options, len(self._final) == len(self._runs)
        if is_over or self._launcher.stopping or options.keep_going or not options.launches:
            return
        reasons = {fingerprint: run.reason for fingerprint, run in standings.items()}
        reason = failures.common_reason(self._final, reasons, self._dependencies)
        if reason is not None:
            count = sum(state == RunState.FAILED for state in self._final.values())
            summary = f"{count} runs failed with the same error"
            self._stop(summary)
            self.stopped = f"{summary}: {reason}"
            self._listener.note(f"stopped: {self.stopped}; fix the cause and relaunch, or pass --keep-going")
            self._wakeup.set()

    def _stop_if_stuck(self, over_budget: Mapping[str, str]) -> None:
        """Stop the launch if no run can start within the limit of chip-hours. Requires that none runs."""
        left = [run for fingerprint, run in self._runs.items() if fingerprint not in self._final]
        if not over_budget or self._launcher.stopping is not None:
            return
        if all(
            run.fingerprint in over_budget
            or any(need in self._runs and need not in self._final for need in run.needs.values())
            for run in left
        ):
            self.over_budget = True
            for run in left:
                self._listener.state(run, RunState.PENDING, over_budget.get(run.fingerprint))
            self.stopped = (
                f"{LIMIT} of {self._options.max_chip_hours:g} chip-hours is reached with {len(left)} left to "
                "run: relaunch with a higher --max-chip-hours to continue"
            )
            self._listener.note(f"stopped: {self.stopped}")

    # ---- display

    def _check_disk(self) -> None:
        """Report that the disk of the lab has become full."""
        was_full, self._disk_full = self._disk_full, is_full(self._launcher.lab.root)
        if self._disk_full and not was_full:
            self._listener.note(
                f"disk full: {self._launcher.lab.root}: free some space; running jobs continue"
            )

    def _show(self, run: Standing, target: Target, action: Action) -> None:
        """Report the state and reason of a run after an action, if they differ from the last report."""
        match action:
            case Done(state, reason):
                shown = (state, reason)
            case EndAttempt(_, RunState.PREEMPTED, reason, _, _):
                shown = (RunState.PENDING, f"{reason}; resumes from the last checkpoint")
            case SetState(RunState.PENDING, reason):
                shown = (RunState.PENDING, reason)
            case Wait(str(reason)):
                without_start = reason.partition("\n")[0]  # the estimated start changes often
                shown = (RunState.PENDING, without_start)
            case Wait() if run.state == RunState.RUNNING:
                is_other = run.lease is not None and run.lease.launcher != self._launcher.name
                address = self._launcher.other_lab(run.lease)
                where = "in another launch" if address is None else f"in the lab at {address}"
                shown = (RunState.RUNNING, where if is_other else None)
            case _:
                return
        if self._shown.get(run.fingerprint) != shown:
            self._shown[run.fingerprint] = shown
            self._listener.state(target, *shown)
