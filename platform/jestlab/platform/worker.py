"""Run one attempt at a run, from start to end, in its own process.

    JESTLAB_STORE=URL python -m jestlab.platform.worker --root DIR --run FINGERPRINT [--attempt NUMBER]

A launcher has claimed the attempt. The worker takes it up, and from then on doesn't depend on the launcher.
Without a number, as in a job that a user submits by hand, the worker claims an attempt itself.
Exit codes: 0: the run is COMPLETED; 1: the run FAILED, with the traceback on standard error; 78: the run
FAILED and would fail again; 75: the attempt was revoked, or the store is unavailable; 124: the worker was
still running at its time limit; 143: the worker was asked to stop, by SIGTERM, by SIGINT, by its user through
the store, or because its time limit (`JESTLAB_TIME_LIMIT`) was near.

If several machines compute one run together (`JAX_PROCESS_ID`), the first one's process is the worker. The
others assist it and write no results. If one of them fails, it ends the attempt; when the attempt has ended,
all of them end.
"""

import argparse
import functools
import gc
import itertools
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from jestlab.models.processes import launched_first, place
from jestlab.models.training.phases import PhaseClock
from jestlab.models.training.tracker import Tracker
from jestlab.platform import logs, programs
from jestlab.platform.client import Reporter
from jestlab.platform.errors import BucketUnreachable, StoreError, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.sync import PUSH_SECONDS, Bucket, LocalFolder, SyncedFolder, fetched
from jestlab.platform.planning.names import check_first
from jestlab.platform.processes import (
    EXIT_BUSY,
    EXIT_COMPLETED,
    EXIT_FAILED,
    EXIT_LATE,
    EXIT_REFUSED,
    EXIT_STOPPED,
    TIME_LIMIT,
    adopt_orphans,
    end_descendants,
    identity,
    own_age,
    still_there,
)
from jestlab.platform.programs import failures, ranks
from jestlab.platform.programs.command_run import left_behind
from jestlab.platform.programs.context import Failed, Interrupted, NeededRun, RunContext
from jestlab.platform.programs.shipped import ShippedCode
from jestlab.platform.programs.sources import interpreter_of, sources_of
from jestlab.platform.spec.resources import stop_early_seconds
from jestlab.platform.spec.schema import Record
from jestlab.platform.store import claims, leases, provenance
from jestlab.platform.store.assistant import AssistedAttempt
from jestlab.platform.store.attempt import ValueRefused, WorkerAttempt
from jestlab.platform.store.provenance import store_texts
from jestlab.platform.store.records import AttemptLost, RunRecord, RunState
from jestlab.platform.store.store import Store

Result = TypeVar("Result")

_OUTPUT_SECONDS = 5.0
"""How long to wait at the end until all output is in the log."""

STORE_SECONDS = 120.0
"""How long to wait at the start for an unavailable store."""

_NOTE_SECONDS = 30.0
"""Time between two messages about the unavailable store."""

_NEAR_LIMIT = "stopped before its time limit"

_copiers: set[int] = set()
"""Processes that copy this one's output, and end with it."""


class Stop:
    """Records that the attempt must stop, and why: a signal, the time, or the user's request in the store.

    Attributes:
        reason: Why the attempt must stop; None until then.
        asked: Returns the reason of the user's request, if there is one.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.asked: Callable[[], str | None] = lambda: None
        self._deadline = math.inf

    def requested(self) -> bool:
        """Whether the attempt must stop."""
        near_limit = _NEAR_LIMIT if time.monotonic() >= self._deadline else None
        self.reason = self.reason or near_limit or self.asked()
        return self.reason is not None

    def before(self, limit: float) -> None:
        """Stop early enough to save before a time limit, in seconds since the start of this process.

        At the limit, end this process and all that it has started. This doesn't depend on the launcher, which
        may have ended.
        """
        left = limit - own_age()
        self._deadline = time.monotonic() + left - stop_early_seconds(limit)
        late = threading.Timer(left, _end_late)
        late.daemon = True
        late.start()

    def on_signals(self) -> None:
        """Stop on SIGTERM, SIGINT, and the signals of Slurm's batch scripts.

        These are SIGUSR1 before the time limit, and SIGUSR2 instead of SIGTERM, at which `srun` would end all
        processes at once.
        """
        reasons = {signal.SIGUSR1: _NEAR_LIMIT, signal.SIGUSR2: "stopped by SIGTERM"}

        def stop(number: int, _: FrameType | None) -> None:
            received = signal.Signals(number)
            self.reason = self.reason or reasons.get(received, f"stopped by {received.name}")

        for number in (signal.SIGTERM, signal.SIGINT, *reasons):
            signal.signal(number, stop)

    def patiently(self, act: Callable[[], Result]) -> Result:
        """Use the store, and retry while it is unavailable: moved, read-only, or down."""
        began = noted_at = time.monotonic()
        noted_at -= _NOTE_SECONDS
        while True:
            try:
                return act()
            except StoreError as error:
                now = time.monotonic()
                if self.requested() or now > began + STORE_SECONDS:
                    raise
                if now >= noted_at + _NOTE_SECONDS:
                    _say(f"jestlab: {error}: waiting for the store")
                    noted_at = now
                time.sleep(1.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one attempt and return the exit code."""
    parser = argparse.ArgumentParser(prog="jestlab.platform.worker", description="Run one attempt at a run.")
    parser.add_argument("--root", required=True, help="folder of the lab, or its address in a bucket")
    parser.add_argument("--run", required=True, help="fingerprint of the run")
    parser.add_argument("--attempt", type=int, help="number of a claimed attempt; by default, claim one")
    parser.add_argument("--code", type=ShippedCode.model_validate_json, help="shipped code, as JSON")
    options = parser.parse_args(arguments)
    # Tracing creates many objects and little garbage: collecting it took 5% of a small run's start.
    gc.set_threshold(10_000)

    clock, stop = PhaseClock(own_age()), Stop()
    stop.on_signals()
    adopt_orphans()
    if limit := os.environ.pop(TIME_LIMIT, None):  # not for launches by the program
        stop.before(float(limit))
    return _guarded(lambda: _run(options, stop, clock))


def _run(options: argparse.Namespace, stop: Stop, clock: PhaseClock) -> int:
    """Run an attempt, or compute together with the process that has it."""
    lab = Lab.find(options.root)
    store = stop.patiently(lambda: Store.open(lab.store_url, create=False))
    run = stop.patiently(lambda: store.run(options.run))
    if options.attempt is None and run.state == RunState.COMPLETED:
        _say(f"jestlab: run {run.fingerprint[:8]} is already completed")
        return EXIT_COMPLETED
    bucket = Bucket(lab.remote) if lab.remote else None
    assists = not launched_first()
    ranks.set_variables()
    if bucket is not None or logs.COPIED in os.environ:  # a machine of the job's own, where no lab is moved
        lab.root.mkdir(parents=True, exist_ok=True)
    directory = stop.patiently(lambda: lab.make_folder(run.directory))
    synced = SyncedFolder(bucket, run.directory, directory) if bucket and not assists else None
    keeper = synced or LocalFolder()
    with _copied_output(directory / logs.NAME, synced) if os.environ.get(logs.COPIED) else nullcontext():
        if assists:
            return _guarded(lambda: _assist(lab, store, run, options.attempt, stop, options.code))
        status = _guarded(
            lambda: _attempt(lab, store, run, options.attempt, stop, keeper, clock, options.code)
        )
    if synced and status != EXIT_BUSY:
        synced.show()
    return status


def _guarded(work: Callable[[], int]) -> int:
    """Return the exit code of some work, in which errors that the program didn't raise are one line."""
    try:
        return work()
    except (AttemptLost, StoreError) as error:  # not the run's fault, so it is retried
        code, line = EXIT_BUSY, str(error)
    except ValueRefused as error:  # the store has recorded that the run FAILED
        code, line = EXIT_FAILED, str(error)
    except Failed as error:
        code, line = EXIT_FAILED, str(error)
    except (UserError, ValueError) as error:
        code, line = EXIT_REFUSED, str(error)
    _say(f"jestlab: {line}")
    return code


@contextmanager
def _copied_output(log: Path, synced: SyncedFolder | None) -> Iterator[None]:
    """Context that copies output to the run's log, for jobs whose output is lost with their machines."""
    if synced:
        with suppress(BucketUnreachable):  # then the log only has this attempt's output
            synced.fetch_log(log)
    streams = (sys.stdout, sys.stderr)
    saved = [os.dup(stream.fileno()) for stream in streams]
    copier = subprocess.Popen(["tee", "-a", str(log)], stdin=subprocess.PIPE, start_new_session=True)
    _copiers.add(copier.pid)
    assert copier.stdin is not None
    for stream in streams:
        stream.flush()
        os.dup2(copier.stdin.fileno(), stream.fileno())
    copier.stdin.close()
    try:
        yield
    finally:
        for stream, descriptor in zip(streams, saved, strict=True):
            stream.flush()
            os.dup2(descriptor, stream.fileno())
        with suppress(subprocess.TimeoutExpired):  # a process that the program left behind may still print
            copier.wait(_OUTPUT_SECONDS)


def _claim(store: Store, run: RunRecord) -> int:
    """Claim an attempt, and return its number."""
    terms = claims.ClaimTerms(leases.enter_launcher(store, identity()), "local", 0)
    claim = claims.claim(store, run.fingerprint, f"{run.directory}/{logs.NAME}", terms)
    if claim is None:
        raise AttemptLost(f"run {run.fingerprint[:8]} is completed, or another attempt has it")
    return claim.number


def _attempt(
    lab: Lab,
    store: Store,
    run: RunRecord,
    claimed: int | None,
    stop: Stop,
    keeper: LocalFolder,
    clock: PhaseClock,
    code: ShippedCode | None = None,
) -> int:
    """Take up the attempt, run its program, and record how it ended."""
    _log_to_standard_error()
    problem: Exception | None = None
    if code is not None:
        try:
            run = code.applied(run, lab)
        except Exception as error:  # becomes the reason of the attempt
            problem = error
    # Read now: the store may be unavailable while the program runs.
    studies = stop.patiently(lambda: store.studies(run.fingerprint))
    parts, wanted = provenance.recorded_parts(), _wanted(run, studies)
    collected, tries = provenance.collect(Path(__file__).parent, parts, wanted), itertools.count()
    if code is not None:
        collected = replace(collected, code_commit=code.commit, code_patch=code.changes)
    number = stop.patiently(lambda: _claim(store, run)) if claimed is None else claimed
    attempt = stop.patiently(
        lambda: WorkerAttempt(
            store,
            run.fingerprint,
            number,
            root=lab.root,
            directory=lab.root / run.directory,
            provenance=collected,
            handle=f"{identity()}:{run.directory}/{logs.NAME}",
            again=next(tries) > 0,
            disk_lasts=lab.remote is None,
            spent=clock.spent,
            resumed=clock.resumed,
        )
    )
    stop.patiently(attempt.catch_up)
    seconds = stop.patiently(lambda: store.seconds_by_step(run.fingerprint))
    if wanted.sources is not None and "sources" in parts:
        texts = wanted.sources.values()
        stop.patiently(lambda: store_texts(store, texts, provenance.cleaner()))
    stop.asked = attempt.stop_requested
    started = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    _say(f"--- attempt {attempt.number}: {started}, {socket.gethostname()}, pid {os.getpid()}")

    def execute() -> None:
        if problem is not None:
            raise problem
        keeper.begin(attempt.number, attempt.flush)
        options: dict[str, Any] = {"upload": keeper.keep, "earlier_seconds": seconds, "clock": clock}
        if studies:
            options["check_evaluation"] = functools.partial(check_first, *studies[0], run.program)
        # Created now, since the files of earlier attempts may have come from a bucket.
        context = _context(lab, run, attempt, stop, **options)
        clock.resumed.is_first, clock.resumed.is_empty = attempt.number == 1, context.resume is None
        try:
            _execute(lab, run, context)
        except AttemptLost:
            raise
        except BaseException as error:
            if not (isinstance(error, SystemExit) and not error.code):
                with suppress(BucketUnreachable):  # the next attempt resumes from earlier uploads
                    keeper.push()
                raise
        keeper.push(PUSH_SECONDS)  # before the store records that the run completed

    try:
        status, reason = (EXIT_COMPLETED, "") if attempt.ended_before else _outcome(stop, execute, lab.root)
    finally:
        _end_descendants()
    if status == EXIT_COMPLETED:
        attempt.complete()
    elif status == EXIT_STOPPED:
        attempt.interrupt(reason)
    else:
        attempt.fail(reason, status)
    return status


def _outcome(stop: Stop, execute: Callable[[], None], root: Path) -> tuple[int, str]:
    """Execute, and return the exit code and the reason."""
    try:
        execute()
    except (Interrupted, KeyboardInterrupt):
        if stop.requested():
            return EXIT_STOPPED, str(stop.reason)
        if int(os.environ.get("JAX_NUM_PROCESSES", "1")) > 1:
            return EXIT_STOPPED, "another of its hosts was stopped"
        return EXIT_FAILED, "stopped itself"
    except AttemptLost:
        raise
    except Failed as error:
        _say(f"jestlab: {error}")
        return EXIT_REFUSED if error.recurs else EXIT_FAILED, logs.one_line(str(error))
    except BaseException as error:  # whatever a program raises ends only this run
        with suppress(OSError):  # the disk may be full
            traceback.print_exc()
        code = EXIT_REFUSED if failures.recurs(error, root) else EXIT_FAILED
        return code, ranks.Ranks(place=place()).title() + logs.one_line(f"{type(error).__name__}: {error}")
    return EXIT_COMPLETED, ""


def _wanted(run: RunRecord, studies: Sequence[tuple[str, dict[str, Any]]]) -> provenance.RunDetails:
    """Return the details to record about a run: its custom code, and those that its studies request."""
    records = [Record.model_validate(study.get("record", {})) for _, study in studies]
    files = dict.fromkeys(file for record in records for file in record.files)
    return provenance.RunDetails(
        sources=sources_of(run.program, run.config),
        packages=list(dict.fromkeys(package for record in records for package in record.packages)),
        interpreter=interpreter_of(run.program, run.config),
        files=Record(files=tuple(files)).named_files(),
    )


def _assist(
    lab: Lab, store: Store, run: RunRecord, number: int | None, stop: Stop, code: ShippedCode | None
) -> int:
    """Compute together with the run's first process, which has the attempt and writes its results.

    Ends soon after the attempt has ended, and ends the attempt if the program fails here.
    """
    if run.state == RunState.COMPLETED or not programs.get(run.program).collective:
        return EXIT_COMPLETED
    if stop.requested():
        return EXIT_STOPPED
    _log_to_standard_error()
    attempt = AssistedAttempt(store, run.fingerprint, number)
    stop.asked = attempt.stop_requested

    def execute() -> None:
        located = run if code is None else code.applied(run, lab)
        context = _context(lab, located, Tracker(), stop)
        if number == 1:  # the first process may have written files already
            context.resume = None
        _execute(lab, located, context)

    with closing(attempt):
        try:
            status, reason = _outcome(stop, execute, lab.root)
        finally:
            _end_descendants()
        if status in (EXIT_FAILED, EXIT_REFUSED):
            stop.patiently(lambda: attempt.fail(reason, status))
        elif status == EXIT_COMPLETED:
            attempt.wait()  # Slurm would end the first process some time after another has ended
    return status


def _context(
    lab: Lab, run: RunRecord, recorder: Reporter | Tracker, stop: Stop, **options: Any
) -> RunContext:
    """Create the context that the run's program is called with; `options` are more of its arguments."""
    directory = lab.root / run.directory
    needs = {
        role: NeededRun(need.fingerprint, need.program, lab.root / need.directory, need.config)
        for role, need in run.needs.items()
    }
    return RunContext(
        directory=directory,
        resume=directory if left_behind(directory) else None,
        config=run.config,
        cache=lab.data,
        seed=run.seed,
        needs=needs,
        recorder=recorder,
        should_stop=stop.requested,
        **options,
    )


def _execute(lab: Lab, run: RunRecord, context: RunContext) -> None:
    """Download the folders of the run's dependencies, and call its program."""
    for need in run.needs.values():
        if need.state == RunState.COMPLETED:
            fetched(lab, need.directory)
    for role, need in run.needs.items():
        if need.state != RunState.COMPLETED:
            raise UserError(f"needs run {need.fingerprint[:8]} ({role}), which is {need.state}")
    try:
        programs.execute(run.program, run.config, context)
    finally:
        context.clock.wind_down()


def _end_descendants() -> None:
    """End the processes that the program left behind, before the end of the attempt is recorded."""
    if left := end_descendants(but=_copiers):
        _say(f"jestlab: {still_there(left)}")


def _end_late() -> None:
    """End this process at its time limit, because its program didn't stop before."""
    _say("jestlab: ended at its time limit, because the run did not stop before")
    _end_descendants()
    os._exit(EXIT_LATE)


def _log_to_standard_error() -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jestlab").setLevel(logging.INFO)


def _say(line: str) -> None:
    with suppress(OSError):  # the disk may be full
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    code = main()
    # Python collects garbage several times as it exits, among all objects that JAX has created: once is
    # enough.
    gc.collect()
    gc.freeze()
    sys.exit(code)
