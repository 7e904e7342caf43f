"""Walks a plan: each run is a work unit of one XManager experiment, added once what it needs has completed.

The controller holds no truth. What is done is in the store, who works on what is in the runs' file locks, so
it may be killed and started again, or be started twice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform.lab import Lab
from jestlab.platform.launch import exits, lock, logs
from jestlab.platform.launch.listener import Listener
from jestlab.platform.store.states import IllegalMove, RunState
from jestlab.platform.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jestlab.platform.plan import Plan, PlannedRun

POLL_SECONDS = 1.0
"""How often progress is read, and runs of other launchers are looked at."""

_STOPPED = "the launch was stopped"


@dataclass(frozen=True)
class Outcome:
    """How a launch ended.

    Attributes:
        states: Fingerprint → state, of every run of the plan.
        reasons: Fingerprint → reason, of the runs that did not complete.
        interrupted: Whether it was stopped by its user.
        launched: How many runs had not completed before.
    """

    states: Mapping[str, RunState]
    reasons: Mapping[str, str]
    interrupted: bool
    launched: int

    @property
    def exit_code(self) -> int:
        """0 when all runs completed, 130 when interrupted, else 1."""
        if self.interrupted:
            return 130
        return 0 if all(state == RunState.COMPLETED for state in self.states.values()) else 1


def launch(
    lab: Lab,
    store: Store,
    plan: Plan,
    *,
    parallel: int,
    threads: int,
    listener: Listener | None = None,
    grace_seconds: float = 10.0,
) -> Outcome:
    """Run everything of a recorded plan that has not completed. Call it from the main thread.

    SIGINT and SIGTERM stop all runs, the second one at once.

    Args:
        lab: Where.
        store: Its store, in which the plan is recorded.
        plan: The runs, needed ones first.
        parallel: Runs at a time.
        threads: CPU threads of a run.
        listener: Told what happens.
        grace_seconds: How long a stopped run may take to save.

    Returns:
        The states that the runs ended in.
    """
    fingerprints = [run.fingerprint for run in plan.runs]
    states = store.states(fingerprints)
    waiting = [run for run in plan.runs if states[run.fingerprint] != RunState.COMPLETED]
    interrupted = False
    if waiting:
        controller = _Controller(lab, store, listener or Listener(), parallel, threads, grace_seconds)
        interrupted = asyncio.run(controller.run(plan.study.name, waiting))
    return Outcome(store.states(fingerprints), store.reasons(fingerprints), interrupted, len(waiting))


class _Controller:
    """One launch, as one coroutine a run."""

    def __init__(
        self, lab: Lab, store: Store, listener: Listener, parallel: int, threads: int, grace_seconds: float
    ) -> None:
        self._lab = lab
        self._store = store
        self._listener = listener
        self._threads = threads
        self._grace_seconds = grace_seconds
        self._places = asyncio.Semaphore(parallel)
        self._stopping = asyncio.Event()
        self._running: set[str] = set()  # fingerprints
        self._units: list[Any] = []  # XManager's work units that have not ended
        self._done: dict[str, asyncio.Task[RunState]] = {}
        self._runs: dict[str, PlannedRun] = {}
        self._directories: dict[str, Path] = {}
        self._experiment: Any = None
        self._executable: Any = None
        self._lifeline = -1

    async def run(self, title: str, runs: list[PlannedRun]) -> bool:
        """Run them all; whether the user stopped it."""
        self._runs = {run.fingerprint: run for run in runs}
        with self._signals(), self._open_lifeline():
            # Not before here: it takes a second, and a launch with nothing to run shall not.
            from xmanager import xm, xm_local

            from jestlab.platform.launch import local

            self._listener.begin(runs)
            self._experiment = local.create_experiment(self._lab, title)
            await self._experiment.__aenter__()
            try:
                [self._executable] = self._experiment.package(
                    [xm.binary(xm_local.LocalSpec(), sys.executable, args=["-m", "jestlab.platform.worker"])]
                )
                reporter = asyncio.create_task(self._report())
                for run in runs:
                    self._done[run.fingerprint] = asyncio.create_task(self._drive(run))
                await self._all_done()
                reporter.cancel()
            finally:
                self._listener.end()
                with local.silenced():
                    await self._experiment.__aexit__(None, None, None)
        return self._stopping.is_set()

    async def _all_done(self) -> None:
        """Wait for all runs; if one of them cannot even be looked after, stop the others before giving up."""
        try:
            await asyncio.gather(*self._done.values())
        except BaseException:
            self._stop()
            await asyncio.gather(*self._done.values(), return_exceptions=True)
            raise

    # ---- one run

    async def _drive(self, run: PlannedRun) -> RunState:
        """See a run through to a state in which it stays."""
        for needed in dict.fromkeys(run.needs.values()):
            task = self._done.get(needed)
            state = await task if task else RunState.COMPLETED
            if self._stopping.is_set():
                break
            if state != RunState.COMPLETED:
                return self._enter(
                    run, RunState.SKIPPED, f"needs {_title(self._runs[needed])}, which is {state}"
                )
        while not self._stopping.is_set():
            elsewhere = await self._elsewhere(run)
            if elsewhere in (RunState.COMPLETED, RunState.FAILED):
                self._listener.state(run, elsewhere, self._recorded(run))
                return elsewhere
            if self._stopping.is_set():
                break
            if self._enter(run, RunState.PENDING) == RunState.COMPLETED:
                continue  # by another launch, this very moment
            ended = await self._attempt(run)
            if ended is not None:
                return ended
        if lock.is_held(self._directory(run)):
            return RunState.RUNNING  # by another launch, which nobody stopped
        return self._enter(run, RunState.CANCELLED, _STOPPED)

    async def _elsewhere(self, run: PlannedRun) -> RunState | None:
        """The state in which another launch left the run, once its worker has ended; None if none had it."""
        directory = self._directory(run)
        if not lock.is_held(directory):
            state = self._state(run)
            return state if state == RunState.COMPLETED else None
        self._listener.state(run, RunState.RUNNING, "by another launch")
        self._running.add(run.fingerprint)
        while lock.is_held(directory) and not self._stopping.is_set():
            await asyncio.sleep(POLL_SECONDS)
        self._running.discard(run.fingerprint)
        return self._state(run)

    async def _attempt(self, run: PlannedRun) -> RunState | None:
        """Launch a work unit and wait for its end. None when another launch has taken the run in between."""
        from xmanager import xm

        from jestlab.platform.launch import local

        directory = self._directory(run)

        def started(_: int) -> None:
            self._running.add(run.fingerprint)
            self._listener.state(run, RunState.RUNNING)

        executor = local.LocalProcess(self._places, directory / logs.NAME, self._lifeline, started)
        job = xm.Job(
            self._executable,
            executor,
            name=run.name,
            args={"store": self._lab.store_url, "root": str(self._lab.root), "run": run.fingerprint},
            env_vars=local.worker_environment(self._lab, self._threads),
        )
        unit = await self._experiment.add(job)
        self._units.append(unit)
        if self._stopping.is_set():
            unit.stop()
        try:
            await unit.wait_until_complete()
        except xm.ExperimentUnitError:
            pass  # its status says more
        finally:
            self._units.remove(unit)
            self._running.discard(run.fingerprint)
        return self._ended(run, unit.get_status())

    def _ended(self, run: PlannedRun, status: Any) -> RunState | None:
        """What the end of a worker's process means for its run; None when it means nothing."""
        state = self._state(run)
        if state == RunState.COMPLETED:
            self._listener.state(run, state)
            return state
        if self._stopping.is_set() and status.pid is None:
            return None
        if self._stopping.is_set():
            ended, reason = RunState.CANCELLED, _STOPPED
        elif status.exit_code == exits.STOPPED and state == RunState.PREEMPTED:
            ended, reason = RunState.PREEMPTED, self._reason(run, status)
        else:
            ended, reason = RunState.FAILED, self._reason(run, status)
        if status.pid is None:
            return self._enter(run, ended, reason)
        entered = self._store.end_attempt(
            run.fingerprint,
            host=socket.gethostname(),
            pid=status.pid,
            state=ended,
            reason=reason,
            exit_code=status.exit_code,
        )
        if entered:
            self._listener.state(run, ended, reason)
            return ended
        if status.exit_code == exits.BUSY:
            return None  # it never had the run: another launch's worker has it
        if lock.is_held(self._directory(run)):
            return None  # another launch's worker was quicker
        return self._enter(run, ended, reason)  # the worker died before it began; RUNNING was an older one's

    def _reason(self, run: PlannedRun, status: Any) -> str:
        """Exit code or signal, with what the worker recorded or else the last lines of its log."""
        if status.pid is None:
            return str(status.message)
        said = self._recorded(run) or logs.summary(self._directory(run) / logs.NAME)
        how = "ended without completing" if status.exit_code == exits.COMPLETED else str(status.message)
        return f"{how}: {said}" if said else how

    def _recorded(self, run: PlannedRun) -> str | None:
        return self._store.reasons([run.fingerprint]).get(run.fingerprint)

    def _state(self, run: PlannedRun) -> RunState:
        return self._store.states([run.fingerprint])[run.fingerprint]

    def _enter(self, run: PlannedRun, state: RunState, reason: str | None = None) -> RunState:
        """Enter a state; where another launch has entered another in the meantime, that one counts."""
        try:
            self._store.move(run.fingerprint, state, reason)
        except IllegalMove as error:
            return error.current
        if state != RunState.PENDING:
            self._listener.state(run, state, reason)
        return state

    def _directory(self, run: PlannedRun) -> Path:
        if run.fingerprint not in self._directories:
            self._directories[run.fingerprint] = self._lab.root / self._store.run(run.fingerprint).directory
        return self._directories[run.fingerprint]

    # ---- all of them

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._running:
                self._listener.progress(self._store.progress(self._running, ("loss", "examples_seen")))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Context in which SIGINT and SIGTERM stop the runs, and again: end them at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        if self._stopping.is_set():
            self._kill()
            return
        self._stopping.set()
        self._listener.note("stopping the runs; once more to end them at once")
        for unit in list(self._units):
            unit.stop()
        asyncio.get_running_loop().call_later(self._grace_seconds, self._kill)

    def _kill(self) -> None:
        from jestlab.platform.launch import local

        for unit in list(self._units):
            local.kill(unit)

    @contextmanager
    def _open_lifeline(self) -> Iterator[None]:
        """A pipe whose other end only this process holds: its end tells the workers that it is gone."""
        self._lifeline, ours = os.pipe()
        try:
            yield
        finally:
            os.close(ours)
            os.close(self._lifeline)


def _title(run: PlannedRun) -> str:
    return f"{run.label} (seed {run.seed})"
