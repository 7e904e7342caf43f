"""Which failures would come again if their run were tried again, and when runs of a launch fail alike.

A fault of the program (a TypeError, a missing module or file, wrong usage of a command) fails its run at
once. What may pass is tried again: memory that ran out, lost connections, signals, and all that is not known.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from jestlab.platform.errors import BucketUnreachable, StoreError, UserError
from jestlab.platform.processes import EXIT_REFUSED
from jestlab.platform.store.records import RunState, Standing

RETRIED_CODES = "JESTLAB_RETRY_EXIT_CODES"
"""Variable in a worker's environment: exit codes that are tried again, with commas between them."""

ALIKE = 3
"""A launch is stopped by so many runs that failed alike, if no other run has ended otherwise."""

_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_FAULTS: tuple[type[BaseException], ...] = (
    *_MISSING,
    AttributeError,
    ImportError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
)
_PASSING = (StoreError, BucketUnreachable)

_USAGE, _NOT_EXECUTABLE, _NOT_FOUND = 2, 126, 127
"""Exit codes of parsers of arguments, and of shells that cannot execute a command."""

_STATUS = re.compile(r"\b(RESOURCE_EXHAUSTED|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED)\b")
"""What XLA, gRPC and TensorStore call that which may pass, whichever Python exception says it."""

_HEADER = "Traceback (most recent call last):"
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: .*)?")
_UNREADABLE = re.compile(
    r'^  File ".*", line \d+\n(?: .*\n)*(?:SyntaxError|IndentationError|TabError): .*\Z', re.M
)
_FAULT_NAMES = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, _FAULTS)
)

_VARIES = re.compile(r"\S*/\S*|0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+")


def recurs(error: BaseException, lab: Path) -> bool:
    """Whether an exception that ended a program would end it again: a fault of its code or of its input.

    Args:
        error: What was raised. Of those that it came from, none may be of the kind that passes.
        lab: Root of the lab. A file that is missing there may come back: labs are moved.
    """
    if isinstance(error, UserError):
        return not isinstance(error, _PASSING)
    if isinstance(error, SystemExit):
        return isinstance(error.code, int) and exit_recurs(error.code, "", lab)
    if any(_may_pass(each, lab) for each in _with_origins(error)):
        return False
    return isinstance(error, _FAULTS) or (isinstance(error, ValueError) and _is_raised_by_jestlab(error))


def exit_recurs(code: int, output: str, lab: Path) -> bool:
    """Whether a command that ended with an exit code would do so again, as far as code and output tell.

    Wrong usage (2), a command that cannot be executed (126, 127), and a Python traceback that the output ends
    with, if it is of a fault. Exit codes that the spec names are always tried again.

    Args:
        code: Its exit code, negative for a signal.
        output: The last that it printed.
        lab: Root of the lab, as in `recurs`.
    """
    if str(code) in os.environ.get(RETRIED_CODES, "").split(","):
        return False
    if code in (_USAGE, _NOT_EXECUTABLE, _NOT_FOUND):
        return True
    return code == 1 and _ends_in_fault(output.rstrip(), lab)


def _with_origins(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it came from, as a traceback shows them."""
    seen: set[int] = set()
    origin: BaseException | None = error
    while origin is not None and id(origin) not in seen:
        seen.add(id(origin))
        yield origin
        origin = origin.__cause__ or (None if origin.__suppress_context__ else origin.__context__)


def _may_pass(error: BaseException, lab: Path) -> bool:
    if isinstance(error, _MISSING):
        return error.filename is not None and Path(os.fsdecode(error.filename)).is_relative_to(lab)
    passing = isinstance(error, (*_PASSING, OSError, MemoryError))
    return passing or _STATUS.search(str(error)) is not None


def _is_raised_by_jestlab(error: BaseException) -> bool:
    """Whether our own code raised it: that says what is wrong with the input."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("jestlab.")


def _ends_in_fault(output: str, lab: Path) -> bool:
    """Whether an output ends in a traceback of Python of nothing but faults."""
    if _STATUS.search(output) or str(lab) + os.sep in output.rpartition("\n")[2]:
        return False
    if _UNREADABLE.search(output):
        return True
    _, *traces = output.split(_HEADER)
    raised = [_last_line_of(trace) for trace in traces]
    names = [match[1].rpartition(".")[2] if match else "" for match in map(_RAISED.fullmatch, raised)]
    ends = bool(raised) and output.endswith("\n" + raised[-1])
    return ends and all(name in _FAULT_NAMES for name in names)


def _last_line_of(trace: str) -> str:
    """Return the line of a traceback that names the exception: the first that is not indented."""
    lines = (line for line in trace.splitlines() if line.strip() and not line.startswith(" "))
    return next(lines, "")


def is_refused(run: Standing) -> bool:
    """Whether a run failed by a fault that would come again."""
    return run.state == RunState.FAILED and run.lease is not None and run.lease.exit_code == EXIT_REFUSED


def reason_of(run: Standing) -> str | None:
    """Return why a run is in its state, as people read it: also that it was not tried again."""
    return f"not tried again: {run.reason}" if is_refused(run) and run.reason else run.reason


def alike(
    states: Mapping[str, RunState], reasons: Mapping[str, str | None], needed: Collection[str]
) -> str | None:
    """Return the reason for which all runs fail that have ended; None while that cannot be said.

    It takes `ALIKE` runs that failed for one reason, numbers and paths in it aside, and no run that failed
    for another one or completed. A run that others need, such as a reference, may have completed.

    Args:
        states: Of the runs that have ended, by fingerprint.
        reasons: Why each is in its state.
        needed: Fingerprints of runs that others need.
    """
    failed = [run for run, state in states.items() if state == RunState.FAILED]
    completed = any(state == RunState.COMPLETED and run not in needed for run, state in states.items())
    kinds = {_VARIES.sub("#", (reasons[run] or "").rpartition(" | ")[2]) for run in failed}
    return (
        None
        if completed or len(failed) < ALIKE or len(kinds) > 1
        else reasons[failed[0]] or "no reason known"
    )
