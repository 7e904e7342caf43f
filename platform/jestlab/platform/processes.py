"""Processes on this machine: unique names, exit codes, and ending everything that belongs to a job.

A process is named `machine:pid:start`. Process ids are reused and machines share host names, so the name also
contains the boot, the namespace, and the start time. A local job's handle is its process's name, `:`, and its
log.

A process can leave its session and outlive its parent. So a worker adopts the orphans among its descendants
and ends them all when it ends. In case the worker is killed, everything that it starts has the job's key in
its environment, by which the processes are found.
"""

from __future__ import annotations

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
"""EX_CONFIG: the run's input is invalid, so another attempt would fail as well."""
EXIT_STOPPED = 128 + signal.SIGTERM

JOB_KEY = "JESTLAB_JOB_TOKEN"
"""Environment variable with the key of a local job. The name marks it as a secret."""

KILL_SECONDS = 5.0
"""How long killed processes may take to end."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAUSE_SECONDS = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")
_OVER = ("zombie", "dead")


def exit_from_shell(code: int) -> int:
    """Convert a shell's 128 + n for signal n to −n, except 143, the exit code of a stopped worker."""
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
    def of(cls, pid: int) -> Process:
        """Name a process on this machine."""
        return cls(machine(), pid, start_of(pid) or "0")

    @classmethod
    def parse(cls, name: str) -> Process:
        """Parse a process's name, or a local job's handle."""
        where, pid, start, *_ = name.split(":", 3)
        return cls(where, int(pid), start)

    @property
    def is_here(self) -> bool:
        """Whether the process is on this machine."""
        return self.machine == machine()

    def runs(self) -> bool:
        """Whether the process runs, as far as this machine shows it."""
        return start_of(self.pid) == self.start

    def is_hidden(self) -> bool:
        """Whether a process with this id exists, but this machine hides other users' processes."""
        if start_of(self.pid) is None:
            try:
                os.kill(self.pid, 0)
            except PermissionError:
                return True
            except ProcessLookupError:
                pass
        return False

    def session(self) -> set[int]:
        """Return the ids of the session's processes. Its id isn't reused before all have ended."""
        if start_of(self.pid) not in (None, self.start):
            return set()  # the id belongs to another process by now
        return _pids_where(lambda pid: os.getsid(pid) == self.pid)


def identity() -> str:
    """Return this process's name, by which launchers know each other."""
    return str(Process.of(os.getpid()))


def is_running(name: str) -> bool | None:
    """Return whether a process runs, by its name or a local job's handle.

    None means unknown: the process is on another machine, or belongs to a user whose processes are hidden.
    """
    process = Process.parse(name)
    return None if not process.is_here or process.is_hidden() else process.runs()


@functools.cache
def machine() -> str:
    """Return the scope of process ids: host, boot, and namespace.

    Containers often share a host name, and so do cloned machines. A restarted machine counts as another one.
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
    """Return for how many seconds this process has been running."""
    began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]  # in ticks since boot
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(began) / _TICKS)


def _pids_where(holds: Callable[[int], bool]) -> set[int]:
    """Return the ids of the processes for which a condition holds, except those that this user can't read."""
    import psutil  # slow on some machines, and most commands don't look for processes

    pids = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if holds(pid):
                pids.add(pid)
    return pids


# ---- ending a job's processes


def end_job(process: Process, key: str) -> set[int]:
    """Kill a job's remaining processes on this machine: the session, and all processes with the job's key.

    Returns:
        Ids of processes that still run after `KILL_SECONDS`.
    """
    return _end(lambda: process.session() | with_key(key))


def end_descendants(but: Collection[int] = ()) -> set[int]:
    """Kill all processes that this one has started, directly or not, except those in `but`.

    Call `adopt_orphans` before starting any. Returns the ids of those that still run after `KILL_SECONDS`.
    """
    import psutil

    this = psutil.Process()
    return _end(lambda: {child.pid for child in this.children(recursive=True)} - set(but))


def still_there(pids: Collection[int]) -> str:
    """Describe killed processes that still run."""
    return f"process {', '.join(map(str, sorted(pids)))} was killed, but still runs"


def _end(find: Callable[[], set[int]]) -> set[int]:
    """Kill processes until none is found: they may start others meanwhile."""
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
    """Return the ids of processes that were started with a job's key in their environment.

    Environments of other users' processes can't be read. This runs whenever a job ends, so it avoids psutil.
    """
    wanted, this = f"{JOB_KEY}={key}".encode(), os.getpid()

    def has_key(pid: int) -> bool:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        return wanted in environment and pid != this and wanted in environment.split(b"\0")

    return _pids_where(has_key)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent ends (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(but: int) -> None:
    """Reap adopted processes that have ended, except the child `but`."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == but:
                return
            os.waitpid(ended.si_pid, 0)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends. One system call, safe between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def group_runs(group: int) -> bool:
    """Return whether any process of a process group runs, except zombies."""
    return any(start_of(pid) is not None for pid in _pids_where(lambda pid: os.getpgid(pid) == group))
