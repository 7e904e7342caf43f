"""Connect a run's processes, one on each host, by the variables its launcher set. Importing needs no JAX."""

import os
import signal
import threading
from typing import NamedTuple

_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_EXPECTED = "JESTLAB_PROCESSES"
"""Expected number of processes, set by launchers that leave it to JAX to find them."""


class Place(NamedTuple):
    """Place of this process among the processes of its run, one on each machine.

    Attributes:
        number: Number of this process, from 0.
        size: Number of processes.
        address: Name or IP address of the first one's machine.
        port: Port for their use on that machine; 0 if this is the only process.
    """

    number: int = 0
    size: int = 1
    address: str = "127.0.0.1"
    port: int = 0


def place() -> Place:
    """Return the place of this process, as if it were the only one if the launcher leaves it to JAX.

    Raises:
        ValueError: Only some of the variables are set.
    """
    if not launched_with_others() or _VARIABLES[0] not in os.environ:
        return Place()
    address, count, number = (os.environ[name] for name in _VARIABLES)
    host, _, port = address.rpartition(":")
    return Place(int(number), int(count), host, int(port))


def launched_with_others() -> bool:
    """Return whether the launcher started several processes for this run.

    Raises:
        ValueError: Only some of the variables are set.
    """
    unset = [name for name in _VARIABLES if name not in os.environ]
    if unset and len(unset) < len(_VARIABLES):
        given = next(name for name in _VARIABLES if name not in unset)
        raise ValueError(f"{given} is set and {unset[0]} is not: set all three, or none")
    return not unset or "," in os.environ.get("TPU_WORKER_HOSTNAMES", "") or _expected() > 1


def launched_first() -> bool:
    """Return whether this is the first process, or the only one, according to the launcher. Needs no JAX.

    Raises:
        ValueError: There are other processes, and no variable says which one this is.
    """
    if not launched_with_others():
        return True
    number = os.environ.get("JAX_PROCESS_ID") or os.environ.get("TPU_WORKER_ID")
    if not number and _expected() > 1:  # each would take itself for the first, and train alone
        raise ValueError(
            f"{_EXPECTED} is {_expected()}, and neither JAX_PROCESS_ID nor TPU_WORKER_ID says which this is"
        )
    return int(number or "0") == int(os.environ.get("MEGASCALE_SLICE_ID", "0")) == 0


def initialize_processes() -> None:
    """Connect to the other processes of a run, if there are any. Must be called before JAX is used.

    A launcher sets `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES`, and `JAX_PROCESS_ID`; on a TPU pod,
    `TPU_WORKER_HOSTNAMES` is set, and JAX finds the rest.

    Raises:
        RuntimeError: The others cannot be reached, or their number is not the expected one.
        ValueError: Only some of the variables are set.
    """
    import jax

    if not launched_with_others() or jax.distributed.is_initialized():
        return
    on_termination = signal.getsignal(signal.SIGTERM)
    if _VARIABLES[0] in os.environ:
        address, count, number = (os.environ[name] for name in _VARIABLES)
        # Detection on Slurm would restrict a process to one GPU of its node.
        jax.distributed.initialize(address, int(count), int(number), cluster_detection_method="deactivate")
    else:
        jax.distributed.initialize()
    if on_termination is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_termination)  # JAX has replaced the handler
    if 1 < _expected() != jax.process_count():
        raise RuntimeError(f"{_EXPECTED} is {_expected()}, and JAX finds {jax.process_count()} processes")


def _expected() -> int:
    return int(os.environ.get(_EXPECTED) or "1")
