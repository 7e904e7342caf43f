"""How a worker's process ends: the codes it uses, and their meaning in words."""

from __future__ import annotations

import signal

COMPLETED = 0
FAILED = 1
BUSY = 75  # EX_TEMPFAIL: its attempt was given up, or the store is away
REFUSED = 78  # EX_CONFIG: what the run is given is wrong, and would be the next time
STOPPED = 128 + signal.SIGTERM


def describe(code: int) -> str:
    """An exit code in words; negative ones are signals, as `subprocess` has them."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
