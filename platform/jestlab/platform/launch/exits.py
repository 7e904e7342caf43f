"""How a worker's process ends: the codes it uses, and their meaning in words."""

from __future__ import annotations

import signal

COMPLETED = 0
FAILED = 1
BUSY = 75  # EX_TEMPFAIL: its attempt was given up, or the store is away
REFUSED = 78  # EX_CONFIG: what the run is given is wrong, and would be the next time
STOPPED = 128 + signal.SIGTERM


def from_shell(code: int) -> int:
    """A container's exit code as `subprocess` has them: 128 + n, as shells count, is the end by signal n.

    143 stays: our worker ends so by itself when it was asked to stop.
    """
    ended_by_signal = 128 < code <= 128 + signal.NSIG and code != STOPPED
    return 128 - code if ended_by_signal else code


def describe(code: int) -> str:
    """An exit code in words; negative ones are signals, as `subprocess` has them."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
