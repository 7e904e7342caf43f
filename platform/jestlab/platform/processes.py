"""Processes on this machine: unique names, exit codes, and ending all processes of a job.

The unique name of a process is `machine:pid:start`. `machine` contains the host name, the boot, and the
namespace, since machines may share a host name; `start` is the start time, since process ids are reused.
The handle of a local job is `machine:pid:start:log`.

A process can leave its session and continue after its parent ends. So a worker adopts orphaned descendants,
and ends all descendants when it ends itself. In case the worker is killed, its descendants have the job's key
in their environment, by which they are found.
"""

import contextlib
import ctypes
import functools
import os
import signal
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

EXIT_COMPLETED = 0
EXIT_FAILED = 1
EXIT_BUSY = 75
"""EX_TEMPFAIL: the worker's attempt was revoked, or the store is unavailable."""
EXIT_REFUSED = 78
"""EX_CONFIG: the run's input is invalid, so another attempt would fail too."""
EXIT_STOPPED = 128 + signal.SIGTERM

EXIT_LATE = 124
"""The worker was still running at its time limit, and ended itself."""

TIME_LIMIT = "JESTLAB_TIME_LIMIT"
"""Environment variable with a worker's time limit in seconds since its start."""

JOB_KEY = "JESTLAB_JOB_TOKEN"
"""Environment variable with the key of a local job. TOKEN in the name makes it count as a secret."""

KILL_SECONDS = 5.0
"""How long to wait for killed processes to end."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAUSE_SECONDS = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")
_OVER = ("zombie", "dead")


def exit_from_shell(code: int) -> int:
    """Convert a shell's exit code 128 + n for signal n to −n; keep 143, the exit code of a stopped worker."""
    ended_by_signal = 128 < code <= 128 + signal.NSIG and code != EXIT_STOPPED
    return 128 - code if ended_by_signal else code


def describe_exit(code: int) -> str:
    """Describe an exit code in words; negative codes are signals, as in `subprocess`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


# ---- names


@dataclass(frozen=True)
class Process:
    """Unique name of a process.

    Attributes:
        machine: Machine on which the id is valid.
        pid: Id of the process, and of the session that it leads.
        start: Start time in the kernel's clock ticks since boot.
    """

    machine: str
    pid: int
    start: str

    def __str__(self) -> str:
        return f"{self.machine}:{self.pid}:{self.start}"

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Name a process on this machine."""
        return cls(machine(), pid, start_of(pid) or "0")

    @classmethod
    def parse(cls, name: str) -> "Process":
        """Parse a process's name, or a local job's handle."""
        where, pid, start, *_ = name.split(":", 3)
        return cls(where, int(pid), start)

    @property
    def is_here(self) -> bool:
        """Whether the process is on this machine."""
        return self.machine == machine()

    def runs(self) -> bool:
        """Return whether this machine shows that the process is running: it isn't hidden, nor a zombie."""
        return start_of(self.pid) == self.start

    def is_hidden(self) -> bool:
        """Return whether a process with this id exists, but belongs to another user and is hidden."""
        if start_of(self.pid) is None:
            try:
                os.kill(self.pid, 0)
            except PermissionError:
                return True
            except ProcessLookupError:
                pass
        return False

    def session(self) -> set[int]:
        """Return the ids of processes in the session. Its id isn't reused until all of them have ended."""
        if start_of(self.pid) not in (None, self.start):
            return set()  # the id now belongs to another process
        return _pids_where(lambda pid: os.getsid(pid) == self.pid)


def identity() -> str:
    """Return the unique name of this process; launchers are identified by it."""
    return str(Process.of(os.getpid()))


def is_running(name: str) -> bool | None:
    """Return whether the process with a name, or with a local job's handle, is running.

    Return None if unknown: the process is on another machine, or is hidden and belongs to another user.
    """
    process = Process.parse(name)
    return None if not process.is_here or process.is_hidden() else process.runs()


@functools.cache
def machine() -> str:
    """Identify the machine on which process ids are valid: `host.boot.namespace`.

    Containers and cloned machines often share a host name. After a restart, a machine counts as another.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    namespace = "".join(filter(str.isdigit, str(Path("/proc/self/ns/pid").readlink())))
    return f"{socket.gethostname()}.{boot}.{namespace}"


def start_of(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot; None if it has ended or is a zombie."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() in _OVER:
            return None
        return str(round((process.create_time() - psutil.boot_time()) * _TICKS))
    except psutil.Error:
        return None


def own_age() -> float:
    """Return the age of this process in seconds."""
    began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]  # in ticks since boot
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(began) / _TICKS)


def _pids_where(condition: Callable[[int], bool]) -> set[int]:
    """Return the ids of processes for which `condition` is true and raises no OSError (no permission)."""
    import psutil  # here, because the import is slow on some machines, and most commands don't need it

    pids = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if condition(pid):
                pids.add(pid)
    return pids


# ---- ending a job's processes


def end_job(process: Process, key: str) -> set[int]:
    """Kill all processes of a job on this machine: those in its session, and those with its key.

    Returns:
        Ids of processes still running after `KILL_SECONDS`.
    """
    return _end(lambda: process.session() | with_key(key))


def end_descendants(but: Collection[int] = ()) -> set[int]:
    """Kill all descendants of this process, except those in `but`.

    Call `adopt_orphans` before starting any. Return the ids of those still running after `KILL_SECONDS`.
    """
    import psutil

    this = psutil.Process()
    return _end(lambda: {child.pid for child in this.children(recursive=True)} - set(but))


def still_there(pids: Collection[int]) -> str:
    """Write an error message about processes that were killed but are still running."""
    return f"process {', '.join(map(str, sorted(pids)))} was killed, but still runs"


def _end(find: Callable[[], set[int]]) -> set[int]:
    """Kill the processes that `find` returns, repeatedly, since they may start others; return those left."""
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        left = {pid for pid in find() if start_of(pid) is not None}
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def with_key(key: str) -> set[int]:
    """Return the ids of other processes of this user that have a job's key in their environment.

    This runs whenever a job ends, so it reads /proc directly: psutil would be slower.
    """
    wanted, this = f"{JOB_KEY}={key}".encode(), os.getpid()

    def has_key(pid: int) -> bool:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        return wanted in environment and pid != this and wanted in environment.split(b"\0")

    return _pids_where(has_key)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(but: Collection[int]) -> None:
    """Reap children that have ended, such as adopted orphans, up to the first one in `but`."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid in but:
                return
            os.waitpid(ended.si_pid, 0)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends. It is safe to call between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def group_runs(group: int) -> bool:
    """Return whether any process of a process group is running; zombies don't count."""
    return any(start_of(pid) is not None for pid in _pids_where(lambda pid: os.getpgid(pid) == group))
