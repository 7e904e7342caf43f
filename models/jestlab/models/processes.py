"""The processes that compute one run together, one on each host; alone, a run is the first of one."""

from __future__ import annotations

import os
import signal
import threading

import jax
import numpy as np


def initialize_processes() -> None:
    """Join the other processes of a run, where its launcher says that there are any.

    A launcher says so by `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`; on a TPU pod
    `TPU_WORKER_HOSTNAMES` does, and JAX finds the rest by itself. Must be called before JAX is used.

    Raises:
        RuntimeError: The others cannot be reached.
    """
    if jax.distributed.is_initialized():
        return
    environment = os.environ
    terminated = signal.getsignal(signal.SIGTERM)
    if "JAX_NUM_PROCESSES" in environment:
        jax.distributed.initialize(
            environment["JAX_COORDINATOR_ADDRESS"],
            num_processes=int(environment["JAX_NUM_PROCESSES"]),
            process_id=int(environment["JAX_PROCESS_ID"]),
        )
    elif "," in environment.get("TPU_WORKER_HOSTNAMES", ""):
        jax.distributed.initialize()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminated)  # JAX put a handler of its own in its place


def is_first() -> bool:
    """Whether this is the process that reports and writes."""
    return jax.process_index() == 0


def any_says(answer: bool) -> bool:
    """Whether any process says so; each waits for the others."""
    return answer if jax.process_count() == 1 else bool(np.any(_gathered(answer)))


def all_say(answer: bool) -> bool:
    """Whether every process says so; each waits for the others."""
    return answer if jax.process_count() == 1 else bool(np.all(_gathered(answer)))


def first_says(number: int) -> int:
    """The first process's number, in every process."""
    return number if jax.process_count() == 1 else int(_gathered(number)[0])


def _gathered(value: int) -> np.ndarray:
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.array(value)))
