"""The processes that compute a run together, one on each host; a single process is the first of one."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a worker asks who is first before it knows whether its program needs NumPy
    import numpy as np

_ADDRESS, _COUNT, _NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
_EXPECTED = "JESTLAB_PROCESSES"
"""Expected number of processes, set by launchers that leave it to JAX to find them."""


def launched_with_others() -> bool:
    """Return whether the launcher says that other processes compute along.

    Raises:
        ValueError: Only some of the variables are set.
    """
    said = [name for name in (_ADDRESS, _COUNT, _NUMBER) if name in os.environ]
    if said and len(said) < 3:
        missing = next(name for name in (_ADDRESS, _COUNT, _NUMBER) if name not in said)
        raise ValueError(f"{said[0]} is set and {missing} is not: set all three, or none")
    return bool(said) or "," in os.environ.get("TPU_WORKER_HOSTNAMES", "") or _expected() > 1


def launched_first() -> bool:
    """Return whether the launcher says that this is the first process, or the only one. Needs no JAX.

    Raises:
        ValueError: There are others, but it is not set which of them this is.
    """
    if not launched_with_others():
        return True
    slice_number = os.environ.get("MEGASCALE_SLICE_ID", "0")
    number = os.environ.get(_NUMBER) or os.environ.get("TPU_WORKER_ID")
    if not number and _expected() > 1:  # each would think that it is the first, and train alone
        raise ValueError(
            f"{_EXPECTED} is {_expected()}, and neither {_NUMBER} nor TPU_WORKER_ID says which this is"
        )
    return int(number or "0") == 0 and int(slice_number) == 0


def initialize_processes() -> None:
    """Join the other processes of a run, if its launcher says that there are any.

    A launcher says so by `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`; on a TPU pod
    `TPU_WORKER_HOSTNAMES` does, and JAX finds the rest by itself. Must be called before JAX is used.

    Raises:
        RuntimeError: The others cannot be reached, or are not as many as there have to be.
        ValueError: Only some of the variables are set.
    """
    import jax

    if not launched_with_others() or jax.distributed.is_initialized():
        return
    terminated = signal.getsignal(signal.SIGTERM)
    if _COUNT in os.environ:
        jax.distributed.initialize(
            os.environ[_ADDRESS],
            num_processes=int(os.environ[_COUNT]),
            process_id=int(os.environ[_NUMBER]),
            # What JAX would add by itself on Slurm is that a process may use one GPU of its node alone.
            cluster_detection_method="deactivate",
        )
    else:
        jax.distributed.initialize()
    if terminated is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminated)  # JAX put a handler of its own in its place
    if 1 < _expected() != jax.process_count():
        raise RuntimeError(f"{_EXPECTED} is {_expected()}, and JAX finds {jax.process_count()} processes")


def _expected() -> int:
    return int(os.environ.get(_EXPECTED) or "1")


def is_first() -> bool:
    """Return whether this is the process that reports and writes."""
    import jax

    return jax.process_index() == 0


def any_says(answer: bool) -> bool:
    """Return whether any process says yes; each waits for the others."""
    import jax

    return answer if jax.process_count() == 1 else bool(_gathered(answer).any())


def all_say(answer: bool) -> bool:
    """Return whether every process says yes; each waits for the others."""
    import jax

    return answer if jax.process_count() == 1 else bool(_gathered(answer).all())


def first_says(number: int) -> int:
    """Return the first process's number, in every process."""
    import jax

    if jax.process_count() == 1:
        return number
    high, low = divmod(number, 2**31)  # JAX gathers 32 bits
    first = _gathered([high, low])[0]
    return int(first[0]) * 2**31 + int(first[1])


def first_gives(tree: Any) -> Any:
    """Return the first process's arrays, bit for bit, in every process.

    Args:
        tree: NumPy arrays; in the other processes any of the same shapes and types.
    """
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    # As bytes, for they are summed up with the others' zeros: of numbers, -0 would become 0.
    sent = jax.tree.map(lambda x: np.ascontiguousarray(x).reshape(-1).view(np.uint8), tree)
    received = multihost_utils.broadcast_one_to_all(sent)
    return jax.tree.map(lambda got, x: np.asarray(got).view(x.dtype).reshape(x.shape), received, tree)


def largest(values: np.ndarray) -> np.ndarray:
    """Return the largest of all processes' values, place by place; each waits for the others."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return values
    found: np.ndarray = np.asarray(multihost_utils.process_allgather(values)).max(axis=0)
    return found


def _gathered(value: bool | list[int]) -> np.ndarray:
    import numpy as np
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.array(value, np.int32)))
