"""Decide which failures of a run would recur, and whether runs of a launch fail for the same reason.

After a fault of the program (a KeyError, a missing module or file, wrong usage of a command), its run isn't
retried. All other failures may be temporary and are retried: out of memory, lost connections, signals.
"""

import builtins
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from jestlab.platform.errors import BucketUnreachable, StoreError, UserError
from jestlab.platform.processes import EXIT_REFUSED
from jestlab.platform.store.records import RunState, Standing

RETRIED_CODES = "JESTLAB_RETRY_EXIT_CODES"
"""Variable of a worker: exit codes that are always retried, separated by commas."""

ALIKE = 3
"""A launch stops if at least this many runs have failed, all for the same reason, and none has completed."""

_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_FAULTS: tuple[type[BaseException], ...] = (
    *_MISSING, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError,
    SyntaxError, TypeError, ValueError, ZeroDivisionError,
)  # fmt: skip
_TRANSIENT = (StoreError, BucketUnreachable)

_USAGE, _NOT_EXECUTABLE, _NOT_FOUND = 2, 126, 127
"""Exit codes of argument parsers, and of shells that can't execute a command."""

_STATUS = re.compile(r"\b(RESOURCE_EXHAUSTED|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED)\b")
"""Transient errors of XLA, gRPC, and TensorStore, in the message of any Python exception."""

_HEADER = "Traceback (most recent call last):"
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: .*)?")
_SYNTAX_ERROR = re.compile(
    r'^  File ".*", line \d+\n(?: .*\n)*(?:SyntaxError|IndentationError|TabError): .*\Z', re.M
)
_FAULT_NAMES = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, _FAULTS)
)

_REASON = re.compile(
    r"((?P<refused>not retried): )?((?P<rank>rank \d+ on \S+): )?"
    r"((?P<exit>exit code \d+|killed by [\w ]+): (.* \| )?)?(?P<error>.*)",
    re.S,
)
_VARIABLE_PARTS = re.compile(r"\S*/\S*|0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+")


def recurs(error: BaseException, lab: Path) -> bool:
    """Return whether an exception that ended a program would recur: a fault of its code or its input.

    Args:
        error: The exception. It doesn't recur if it, or an exception that caused it, may be transient.
        lab: Root of the lab. A missing file in the lab may be transient, since labs can be moved.
    """
    if isinstance(error, UserError):
        return not isinstance(error, _TRANSIENT)
    if isinstance(error, SystemExit):
        return isinstance(error.code, int) and exit_recurs(error.code, "", lab)
    if any(_is_transient(cause, lab) for cause in _with_causes(error)):
        return False
    return isinstance(error, _FAULTS)


def exit_recurs(code: int, output: str, lab: Path) -> bool:
    """Return whether the failure of a command would recur.

    True for wrong usage (exit code 2), a command that can't be executed (126, 127), and exit code 1 if the
    output ends with a Python traceback of a fault. False for exit codes that the spec lists as retried.

    Args:
        code: Exit code, negative for a signal.
        output: Last lines of the output.
        lab: Root of the lab, as in `recurs`.
    """
    if str(code) in os.environ.get(RETRIED_CODES, "").split(","):
        return False
    if code in (_USAGE, _NOT_EXECUTABLE, _NOT_FOUND):
        return True
    return code == 1 and _ends_in_fault(output.rstrip(), lab)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, as a traceback shows them."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _is_transient(error: BaseException, lab: Path) -> bool:
    if isinstance(error, _MISSING):
        return error.filename is not None and Path(os.fsdecode(error.filename)).is_relative_to(lab)
    transient = isinstance(error, (*_TRANSIENT, OSError, MemoryError))
    return transient or _STATUS.search(str(error)) is not None


def _ends_in_fault(output: str, lab: Path) -> bool:
    """Return whether an output ends with Python tracebacks that contain only faults."""
    if _STATUS.search(output) or str(lab) + os.sep in output.rpartition("\n")[2]:
        return False
    if _SYNTAX_ERROR.search(output):
        return True
    _, *traces = output.split(_HEADER)
    # The first line of a traceback that isn't indented names the exception.
    raised = [
        next((line for line in trace.splitlines() if line.strip() and line[0] != " "), "") for trace in traces
    ]
    names = [match[1].rpartition(".")[2] if match else "" for match in map(_RAISED.fullmatch, raised)]
    ends = bool(raised) and output.endswith("\n" + raised[-1])
    return ends and all(name in _FAULT_NAMES for name in names)


def is_refused(run: Standing) -> bool:
    """Return whether a run failed with a fault that would recur."""
    return run.state == RunState.FAILED and run.lease is not None and run.lease.exit_code == EXIT_REFUSED


def reason_of(run: Standing) -> str | None:
    """Return the reason of a run's state for users, with a prefix if the run was not retried."""
    return f"not retried: {run.reason}" if is_refused(run) and run.reason else run.reason


def headline(reason: str) -> str:
    """Shorten the reason of a failure, the exception first: "ValueError: no data (exit code 1)"."""
    match = _REASON.fullmatch(reason)
    assert match is not None  # each part is optional
    remarks = ", ".join(filter(None, [match["exit"], match["rank"], match["refused"]]))
    return f"{match['error']} ({remarks})" if remarks else match["error"]


def kind_of(reason: str) -> str:
    """Return a reason without the numbers and paths in which failures of the same kind differ."""
    return _VARIABLE_PARTS.sub("#", reason.rpartition(" | ")[2])


def common_reason(
    states: Mapping[str, RunState], reasons: Mapping[str, str | None], needed: Collection[str]
) -> str | None:
    """Return the reason of all failures if it is the same, except for numbers and paths; otherwise None.

    None also if fewer than `ALIKE` runs have failed, or if a run has completed that isn't a dependency, such
    as a reference, of other runs.

    Args:
        states: States of the runs that have ended, by fingerprint.
        reasons: Reason of each state.
        needed: Fingerprints of the runs that others depend on.
    """
    failed = [run for run, state in states.items() if state == RunState.FAILED]
    completed = any(state == RunState.COMPLETED and run not in needed for run, state in states.items())
    kinds = {kind_of(reasons[run] or "") for run in failed}
    if completed or len(failed) < ALIKE or len(kinds) > 1:
        return None
    return headline(reasons[failed[0]] or "no reason known")
