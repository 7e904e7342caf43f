"""Environment variables of workers: threads, settings of XLA, and variables of this process."""

import os

from jestlab.platform.lab.lab import SERVE_TOKEN, Lab

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

ONE_THREAD = {**dict.fromkeys(_POOLS, "1"), "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Variables with which imports start no threads: those of NumPy's libraries, and of PyArrow's allocator."""

_PASSED_ON = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ"),
    *("PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
_PASSED_PREFIXES = (
    *("LC_", "JESTLAB_", "_JESTLAB_", "JAX_", "XLA_", "NCCL_", "HF_", "CONDA_"),
    *("PGPASS", "PGSSL", "GOOGLE_APPLICATION_"),
)


def threads_environment(threads: int, xla_flags: str = "") -> dict[str, str]:
    """Return variables that set the number of CPU threads of a worker, which affects rounding."""
    if threads == 1:
        xla_flags += " --xla_cpu_multi_thread_eigen=false"
    # NPROC is the size of XLA's thread pools.
    return {**dict.fromkeys((*_POOLS, "NPROC"), str(threads)), "XLA_FLAGS": xla_flags.strip()}


def worker_environment(threads: int, lab: Lab) -> dict[str, str]:
    """Return the variables that executors set for a worker. Those of this process replace defaults."""
    ours = threads_environment(threads, os.environ.get("XLA_FLAGS", "")) | {"PYTHONUNBUFFERED": "1"}
    defaults = {
        # Large pages: XLA allocates temporary arrays in every step, which causes 44,000 page faults without
        # them, and 300 with them. A small step took 158 ms instead of 183 ms (glibc 2.36, two CPU cores).
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "JAX_COMPILATION_CACHE_DIR": str(lab.cache / "jax"),
        # Replicates compile the same functions. Most compile in less than the second from which JAX caches.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return ours | {name: os.environ.get(name) or value for name, value in defaults.items()}


def passed_on() -> dict[str, str]:
    """Return the variables of this process that workers on other machines get as well."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in _PASSED_ON or name.startswith(_PASSED_PREFIXES)) and name != SERVE_TOKEN
    }
