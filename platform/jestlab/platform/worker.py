"""One run, from start to end, in a process of its own.

    python -m jestlab.platform.worker --store URL --root DIR --run FINGERPRINT

Exit codes: 0 the run is COMPLETED, 1 it FAILED (the traceback is on standard error), 75 another worker has it
and keeps it, 143 it was asked to stop. It is asked to stop by SIGTERM, SIGINT, or the end of its standard
input where that is a pipe: whoever launched it holds the other end, so a launcher takes its workers along,
however it dies.

Of several processes that compute one run together (`JAX_PROCESS_ID`), the first is its worker and the others
assist it: they hold no lock and write no results.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from jestlab.models.processes import launched_first
from jestlab.platform import programs
from jestlab.platform.assist import Unrecorded
from jestlab.platform.context import Interrupted, Need, Recorder, RunContext
from jestlab.platform.errors import UserError
from jestlab.platform.lab import Lab
from jestlab.platform.launch import exits, lock, logs
from jestlab.platform.store import provenance
from jestlab.platform.store.records import RunRecord
from jestlab.platform.store.states import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.writer import Attempt, AttemptLost

LOCK_SECONDS = 30.0
"""How long to wait for the run's last worker to finish its stop."""

GRACE_SECONDS = 20.0
"""How long a program may go on after its launcher died."""


class Stop:
    """Whether to stop, and why; set by signals and by the end of standard input."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def requested(self) -> bool:
        """Whether to stop."""
        return self.reason is not None

    def on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""

        def stop(number: int, _: FrameType | None) -> None:
            self.reason = self.reason or f"stopped by {signal.Signals(number).name}"

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)

    def with_launcher(self, grace_seconds: float) -> None:
        """Stop when standard input ends, if it is a pipe, and leave for good after a grace."""
        mode = os.fstat(0).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return
        lifeline = os.dup(0)
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)  # the program shall not read from the lifeline

        def watch() -> None:
            while os.read(lifeline, 1024):
                continue
            self.reason = self.reason or "its launcher died"
            time.sleep(grace_seconds)
            _say(f"--- still running {grace_seconds:g} s after its launcher died: leaving")
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGKILL)  # with whatever the program started
            os._exit(exits.STOPPED)

        threading.Thread(target=watch, name="lifeline", daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="jestlab.platform.worker", description="Run one run of a lab.")
    parser.add_argument("--store", required=True, help="URL of the results store")
    parser.add_argument("--root", required=True, type=Path, help="folder of the lab")
    parser.add_argument("--run", required=True, help="fingerprint of the run")
    parser.add_argument(
        "--grace", type=float, default=GRACE_SECONDS, help="seconds to stop without a launcher"
    )
    parser.add_argument(
        "--wait", type=float, default=LOCK_SECONDS, help="seconds to wait for the run's last worker"
    )
    options = parser.parse_args(arguments)

    stop = Stop()
    stop.on_signals()
    stop.with_launcher(options.grace)
    lab = Lab.find(options.root, options.store)
    try:
        store = Store.open(lab.store_url, create=False)
        run = store.run(options.run)
    except UserError as error:
        _say(f"jestlab: {error}")
        return exits.FAILED
    directory = lab.root / run.directory
    directory.mkdir(parents=True, exist_ok=True)
    try:
        assists = not launched_first()
    except ValueError as error:
        _say(f"jestlab: {error}")
        return exits.FAILED
    if assists:
        return _assist(lab, run, stop)
    held = lock.acquire(directory, options.wait, stop.requested)
    if held is None:
        return exits.STOPPED if stop.requested() else exits.BUSY
    with held:
        return _attempt(lab, store, options.run, stop)


def _attempt(lab: Lab, store: Store, fingerprint: str, stop: Stop) -> int:
    """Under the run's lock: do it, unless another worker has done it in the meantime."""
    run = store.run(fingerprint)
    if run.state == RunState.COMPLETED:
        return exits.COMPLETED
    if stop.requested():
        return exits.STOPPED
    _log_to_standard_error()
    about = provenance.collect(Path(__file__).parent)
    attempt = Attempt.begin(store, fingerprint, log=f"{run.directory}/{logs.NAME}", provenance=about)
    started = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    _say(f"--- attempt {attempt.number}: {started}, {about.host}, pid {os.getpid()}")
    context = _context(lab, run, attempt, stop)
    return _ended(attempt, stop, lambda: _execute(run, context))


def _assist(lab: Lab, run: RunRecord, stop: Stop) -> int:
    """Compute along with the run's first process, which holds its lock and writes its results.

    Where that one finds that there is nothing to do, or that another worker has the run, the others wait for
    it until JAX gives up.
    """
    if run.state == RunState.COMPLETED or not programs.get(run.program).collective:
        return exits.COMPLETED
    if stop.requested():
        return exits.STOPPED
    _log_to_standard_error()
    try:
        _execute(run, _context(lab, run, Unrecorded(), stop))
    except (Interrupted, KeyboardInterrupt):
        return exits.STOPPED
    return exits.COMPLETED


def _log_to_standard_error() -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jestlab").setLevel(logging.INFO)


def _context(lab: Lab, run: RunRecord, recorder: Recorder, stop: Stop) -> RunContext:
    """What the run's program gets."""
    return RunContext(
        directory=lab.root / run.directory,
        root=lab.root,
        cache=lab.data,
        seed=run.seed,
        needs={
            role: Need(need.fingerprint, need.program, lab.root / need.directory, need.config)
            for role, need in run.needs.items()
        },
        recorder=recorder,
        stop_requested=stop.requested,
    )


def _execute(run: RunRecord, context: RunContext) -> None:
    for role, need in run.needs.items():
        if need.state != RunState.COMPLETED:
            raise UserError(f"needs run {need.fingerprint[:8]} ({role}), which is {need.state}")
    programs.get(run.program).entry(run.config, context)


def _ended(attempt: Attempt, stop: Stop, execute: Callable[[], None]) -> int:
    """Execute, and enter how it ended."""
    try:
        execute()
    except (Interrupted, KeyboardInterrupt):
        attempt.interrupt(stop.reason or "stopped itself")
        return exits.STOPPED
    except AttemptLost as error:
        _say(f"jestlab: {error}")
        return exits.BUSY
    except BaseException as error:  # whatever ends a program is this run's end, and no one else's
        if isinstance(error, SystemExit) and not error.code:
            attempt.complete()
            return exits.COMPLETED
        traceback.print_exc()
        attempt.fail(logs.one_line(f"{type(error).__name__}: {error}"))
        return exits.FAILED
    attempt.complete()
    return exits.COMPLETED


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
