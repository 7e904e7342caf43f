"""Jobs as processes of this machine: each a session with a log of its own, outliving its launcher."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jestlab.platform.lab import Lab
from jestlab.platform.launch import exits
from jestlab.platform.launch.executor import ExecutorError, Job, JobState, JobStatus
from jestlab.platform.launch.executors.forkserver import Forked, ForkServer, ForkServerError
from jestlab.platform.spec.resources import LOCAL_PARALLEL, Resources

_PROC = Path("/proc")
_BLOCK = 1 << 20
_TOLD_SECONDS = 5.0
"""How long a process that has ended may go without whoever waits for it being told."""
_LOST_SECONDS = 0.5  # between looks at a job whose end nobody will tell


class Local:
    """Processes of this machine. A job's handle is `machine:pid:start:log`, which no other process shares."""

    name = "local"
    chips = 0
    grace_seconds = 10.0

    def __init__(
        self, lab: Lab, resources: Resources | None = None, on_exit: Callable[[], None] = lambda: None
    ) -> None:
        """Make an executor; nothing runs yet.

        Args:
            lab: Where compiled functions are kept.
            resources: Threads of a job, so that parallel ones do not fight for cores, and the memory that it
                takes: none is started where less is free.
            on_exit: Called from another thread when a job has ended.
        """
        resources = resources or Resources()
        self.parallel: int | None = _at_once(resources.memory_gb)
        self._threads = resources.threads
        self._memory_gb = resources.memory_gb
        self._cache = lab.cache
        self._on_exit = on_exit
        self._children: dict[str, subprocess.Popen[bytes] | Forked] = {}
        self._server: ForkServer | None = None
        self._forks = True
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def launch(self, job: Job) -> str:
        """See `Executor`; a name is remembered by this object alone."""
        with self._lock:
            if job.name not in self._names:
                self._names[job.name] = self._start(job)
            return self._names[job.name]

    def statuses(self, handles: Sequence[str]) -> dict[str, JobStatus]:
        """See `Executor`."""
        return {handle: self._status(handle) for handle in handles}

    @property
    def launched(self) -> list[str]:
        """Handles of the jobs that this object has launched."""
        return list(self._children)

    def stop(self, handle: str, *, now: bool) -> None:
        """See `Executor`."""
        process = _Process.parse(handle)
        if process.machine != machine():
            raise ExecutorError(f"process {process.pid} runs on {process.machine}: stop it there")
        try:
            if process.runs() or _is_hidden(process.pid):
                _signal_group(process.pid, signal.SIGKILL if now else signal.SIGTERM)
        except PermissionError:
            raise ExecutorError(f"process {process.pid} is another user's: let them stop it") from None
        if now:
            process.end_session()

    def logs(self, handle: str) -> Iterator[bytes]:
        """See `Executor`."""
        log = _Process.parse(handle).log
        try:
            with log.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    yield block
        except OSError as error:
            raise ExecutorError(f"no log: {error}") from error

    def render(self, job: Job) -> dict[str, Any] | None:
        """There is none."""
        return None

    def has_room(self) -> bool:
        """Whether there is memory for one more job; without an idea of what one takes, there is."""
        return self._memory_gb is None or _free_gb() >= self._memory_gb

    def _start(self, job: Job) -> str:
        try:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            child = self._forked(job) or self._executed(job)
        except OSError as error:
            raise ExecutorError(f"cannot start {sys.executable}: {error}") from error
        process = _Process(machine(), child.pid, _start_of(child.pid) or "0", job.log)
        self._children[str(process)] = child
        threading.Thread(target=self._wait, args=(child, process), name=job.name, daemon=True).start()
        return str(process)

    def _executed(self, job: Job) -> subprocess.Popen[bytes]:
        """A job as a fresh process."""
        with job.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "jestlab.platform.worker", *job.arguments],
                env={**os.environ, **self.environment(), **job.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _forked(self, job: Job) -> Forked | None:
        """A job forked from a process that has imported what it needs; None: it is to be a fresh one."""
        if not job.imports or not self._forks:
            return None
        try:
            if self._server is None:
                self._server = ForkServer({**os.environ, **self.environment()}, job.log)
            return self._server.start(job)
        except ForkServerError as error:
            self._forks = False
            with job.log.open("a", encoding="utf-8") as log:
                log.write(f"jestlab: {error}: from here on each run imports everything itself\n")
            return None

    def _wait(self, child: subprocess.Popen[bytes] | Forked, process: _Process) -> None:
        child.wait()
        while isinstance(child, Forked) and child.lost and process.runs():
            time.sleep(_LOST_SECONDS)
        process.end_session()  # what it may have left behind
        self._on_exit()

    def _status(self, handle: str) -> JobStatus:
        child = self._children.get(handle)
        if child is not None:
            code, gone = child.poll(), False
            if code is None and (gone := state_of(handle) is JobState.GONE):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(timeout=_TOLD_SECONDS)  # who waits for it is just being told
            if code is None:
                return JobStatus(JobState.GONE if gone else JobState.RUNNING)
            state = JobState.SUCCEEDED if code == exits.COMPLETED else JobState.FAILED
            return JobStatus(state, "" if code == exits.COMPLETED else exits.describe(code), code)
        state = state_of(handle)
        return JobStatus(state, "on another machine, or another user's" if state is JobState.UNKNOWN else "")

    def environment(self) -> dict[str, str]:
        """What a worker's environment has beyond this process's."""
        count = str(self._threads)
        xla_flags = os.environ.get("XLA_FLAGS", "")
        if self._threads == 1:
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
            # XLA allocates a step's temporary arrays anew, 44,000 page faults a step; large pages: 300.
            # A small step took 158 ms instead of 183 (glibc 2.36, two CPU cores, 2026-11-21).
            "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
            "JAX_COMPILATION_CACHE_DIR": str(self._cache / "jax"),
            # Replicates compile the same functions, many of them small: by JAX's second, most are not kept.
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        return ours | {name: os.environ.get(name) or value for name, value in where_not_set.items()}


@dataclass(frozen=True)
class _Process:
    """A process, named so that no other one will ever be taken for it.

    Attributes:
        machine: Where its id means something.
        pid: Its id, and its session's.
        start: When it began, in the kernel's ticks since boot: ids of processes are used again.
        log: Its log.
    """

    machine: str
    pid: int
    start: str
    log: Path

    def __str__(self) -> str:
        return f"{self.machine}:{self.pid}:{self.start}:{self.log}"

    @classmethod
    def parse(cls, handle: str) -> _Process:
        machine, pid, start, log = handle.split(":", 3)
        return cls(machine, int(pid), start, Path(log))

    def runs(self) -> bool:
        return _start_of(self.pid) == self.start

    def end_session(self) -> None:
        """End what is left of its session, which has its id: nobody else gets that as long as one is left."""
        if _start_of(self.pid) not in (None, self.start):
            return  # the id is another process's by now
        for entry in _PROC.iterdir():
            fields = _stat(entry.name) if entry.name.isdigit() else None
            if fields is not None and int(fields[3]) == self.pid and fields[0] != "Z":
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(entry.name), signal.SIGKILL)


def identity() -> str:
    """This process, as other launchers may look for it: `machine:pid:start`."""
    return f"{machine()}:{os.getpid()}:{_start_of(os.getpid())}"


@functools.cache
def machine() -> str:
    """Where ids of processes mean what they mean to this one: host, boot and namespace.

    Containers often share a name, machines that were cloned too, and a machine that was restarted is another.
    """
    boot = (_PROC / "sys/kernel/random/boot_id").read_text()[:8]
    namespace = "".join(filter(str.isdigit, str((_PROC / "self/ns/pid").readlink())))
    return f"{socket.gethostname()}.{boot}.{namespace}"


def is_gone(name: str) -> bool:
    """Whether a process named by `identity` is known to have ended; False if it cannot be known from here."""
    where, pid, start = name.rsplit(":", 2)
    return where == machine() and _start_of(int(pid)) != start and not _is_hidden(int(pid))


def state_of(handle: str) -> JobState:
    """What is known of a job from outside: RUNNING, GONE, or UNKNOWN: elsewhere, or another user's."""
    process = _Process.parse(handle)
    if process.machine != machine() or _is_hidden(process.pid):
        return JobState.UNKNOWN
    return JobState.RUNNING if process.runs() else JobState.GONE


def own_handle(log: Path) -> str:
    """The handle of this process, which leads a session of its own."""
    return f"{identity()}:{log}"


def _stat(pid: str | int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; None if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _start_of(pid: int) -> str | None:
    """When a live process began; None for one that has ended, a zombie included."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else fields[19]


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process, and this machine shows other users nothing of it."""
    if _stat(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False  # one's own, which ended just now, or began


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _at_once(memory_gb: float | None) -> int:
    """How many jobs this machine runs at once where nobody says: as memory has room for, at least one."""
    if memory_gb is None:
        return LOCAL_PARALLEL
    return max(min(LOCAL_PARALLEL, int(_memory()["MemTotal"] / memory_gb)), 1)


def _free_gb() -> float:
    return _memory()["MemAvailable"]


def _memory() -> Mapping[str, float]:
    """Gigabytes, by name of /proc/meminfo."""
    lines = (_PROC / "meminfo").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 / 1e9 for line in lines}
