"""XManager's local processes, as they have to be: stoppable as groups, a place for each, a log file for each.

XManager's own local executor runs jobs through a shell, all at once, streams their output through a pipe that
long lines break, and leaves their children behind. Its executors are classes, though, and this one is ours:
it hands its handles to the work unit, so that `wait_until_complete`, `get_status` and `stop` of XManager's
API work on them.

Every attribute of XManager that is not public is used in this module and in no other; the version is pinned.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attr
import yaml
from absl import flags
from absl import logging as absl_logging
from filelock import FileLock
from xmanager import xm, xm_local
from xmanager.xm import job_operators
from xmanager.xm_local import executables, handles, registry, status
from xmanager.xm_local.storage import database

from jestlab.platform.lab import Lab
from jestlab.platform.launch import exits

_STATES = status.LocalWorkUnitStatusEnum


class ProcessStatus(status.LocalWorkUnitStatus):  # type: ignore[misc]  # XManager has no types
    """A status of XManager that also knows the exit code.

    Attributes:
        exit_code: Of the process, minus the signal's number when a signal ended it; None before its end, and
            when it never started.
        pid: Of the process; None when it never started.
    """

    def __init__(self, state: Any, message: str, exit_code: int | None, pid: int | None) -> None:
        super().__init__(state, message)
        self.exit_code = exit_code
        self.pid = pid


class ProcessHandle(handles.ExecutionHandle):  # type: ignore[misc]
    """One process, from waiting for a place to its end. Nothing that happens to it raises before `wait`."""

    def __init__(self, command: list[str], env: Mapping[str, str], executor: LocalProcess) -> None:
        self._command = command
        self._env = dict(env)
        self._executor = executor
        self._process: asyncio.subprocess.Process | None = None
        self._waiting = True
        self._signal: signal.Signals | None = None  # the last one asked for
        self._status = ProcessStatus(_STATES.RUNNING, "", None, None)
        self._ended = asyncio.Event()
        # Within the task, not in launch(): a unit that waits for a place must not hold up the next.
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def wait(self) -> None:
        """Wait for the end; RuntimeError if it is a failure, which XManager turns into its own error."""
        await self._ended.wait()
        if self._status.is_failed:
            raise RuntimeError(self._status.message)

    def get_status(self) -> ProcessStatus:
        """Status now."""
        return self._status

    def save_to_storage(self, experiment_id: int, work_unit_id: int) -> None:
        """Nothing: the results store knows what XManager's database would hold."""

    def stop(self) -> None:
        """Ask the whole group to stop; what has no place yet never starts."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End the whole group now."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        self._signal = number
        if self._waiting:
            self._task.cancel()
        elif self._process is not None and not self._ended.is_set():
            _signal_group(self._process.pid, number)

    async def _run(self) -> None:
        try:
            async with self._executor.places:
                self._waiting = False
                await self._run_in_place()
        except asyncio.CancelledError:
            self._status = ProcessStatus(_STATES.CANCELLED, "never started", None, None)
        finally:
            self._ended.set()

    async def _run_in_place(self) -> None:
        executor = self._executor
        try:
            executor.log.parent.mkdir(parents=True, exist_ok=True)
            with executor.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env=self._env,
                    stdin=executor.lifeline,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            self._status = ProcessStatus(
                _STATES.FAILED, f"cannot start {self._command[0]}: {error}", None, None
            )
            return
        pid = self._process.pid
        if self._signal is not None:  # asked for while it was being spawned
            _signal_group(pid, self._signal)
        self._status = ProcessStatus(_STATES.RUNNING, "", None, pid)
        executor.on_start(pid)
        code = await self._process.wait()
        _signal_group(pid, signal.SIGKILL)  # what it may have left behind
        if code == exits.COMPLETED:
            state = _STATES.COMPLETED
        else:
            state = _STATES.CANCELLED if self._signal else _STATES.FAILED
        self._status = ProcessStatus(state, exits.describe(code), code, pid)


@attr.s(auto_attribs=True)
class LocalProcess(xm.Executor):  # type: ignore[misc]
    """Executes a job as a process of this machine, in a session of its own.

    Attributes:
        places: As many processes run at once as it lets in.
        log: Where standard output and standard error are appended.
        lifeline: File descriptor that becomes standard input; it ends when the launcher does.
        on_start: Called with the process id.
    """

    places: asyncio.Semaphore
    log: Path
    lifeline: int
    on_start: Callable[[int], None]

    Spec = xm_local.LocalSpec

    @classmethod
    async def launch(cls, local_experiment_unit: Any, job_group: xm.JobGroup) -> list[Any]:
        """Start the jobs; called by XManager."""
        for job in job_operators.flatten_jobs(job_group):
            executable: executables.LocalBinary = job.executable
            arguments = xm.merge_args(executable.args, job.args).to_list(xm.utils.ARGV_ESCAPER)
            env = {**os.environ, **executable.env_vars, **job.env_vars}
            handle = ProcessHandle([executable.command, *arguments], env, job.executor)
            # Among the non-local ones: the experiment then neither waits for them at its exit, nor raises
            # again what was already handled.
            local_experiment_unit._non_local_execution_handles.append(handle)
        return []


registry.register(LocalProcess, launch=None)


def kill(unit: Any) -> None:
    """End a work unit's processes now; `unit.stop()` asks them to."""
    for handle in unit._non_local_execution_handles:
        handle.kill()


def worker_environment(lab: Lab, threads: int) -> dict[str, str]:
    """What a worker's environment has beyond its launcher's.

    Args:
        lab: Where compiled functions are kept.
        threads: CPU threads of a run, so that parallel runs do not fight for cores.
    """
    count = str(threads)
    xla_flags = os.environ.get("XLA_FLAGS", "")
    if threads == 1:
        xla_flags += " --xla_cpu_multi_thread_eigen=false"
    ours = {
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "NPROC": count,  # size of XLA's thread pools
        "XLA_FLAGS": xla_flags.strip(),
        "PYTHONUNBUFFERED": "1",
    }
    where_not_set = {
        # XLA allocates a step's temporary arrays anew, 44,000 page faults a step; large pages make it 300. A
        # small step took 158 ms instead of 183 (glibc 2.36, two CPU cores, 2026-11-21).
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "JAX_COMPILATION_CACHE_DIR": str(lab.cache / "jax"),
        # Replicates compile the same functions, many of them small: with JAX's own second, most are not kept.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return ours | {name: os.environ.get(name) or value for name, value in where_not_set.items()}


def create_experiment(lab: Lab, title: str) -> Any:
    """A new XManager experiment, whose metadata lie in the lab and whose messages lie beside them.

    Args:
        lab: The lab; XManager writes under `<root>/xmanager/`.
        title: Name of the study.
    """
    folder = lab.root / "xmanager"
    folder.mkdir(parents=True, exist_ok=True)
    _quiet(folder / "log.txt")
    # Two launchers must neither make the tables at once nor take the same id, the time in milliseconds.
    with FileLock(folder / "lock"):
        _use_database(folder)
        experiment = xm_local.create_experiment(experiment_title=title)
        while int(experiment.experiment_id) >= _milliseconds():
            continue
    return experiment


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Context in which XManager's prints are dropped."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _milliseconds() -> int:
    return int(time.time() * 1_000)


def _use_database(folder: Path) -> None:
    """Point XManager at a database in the folder, even if this process used another before."""
    config = folder / "database.yaml"
    settings = {"backend": "sqlite", "db_name": str(folder / "experiments.db")}
    config.write_text(yaml.safe_dump({"sql_connector": "sqlite", "sql_connection_settings": settings}))
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["jestlab"])
    flags.FLAGS["xm_db_yaml_config_path"].value = str(config)
    for cached in (database._db_config, database.db_connector, database.db_settings, database.database):
        cached.cache_clear()


def _quiet(log: Path) -> None:
    """Send absl's log, which XManager writes, to a file instead of the terminal."""
    logger = absl_logging.get_absl_logger()
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    to_file = logging.FileHandler(log, delay=True)
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(to_file)


def _signal_group(pid: int, number: int) -> None:
    """Signal the group that a worker leads; it may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
