"""Processes of this machine: names that identify each of them for good, and what its exit code means.

A process is named `machine:pid:start`. Process ids are reused and machines share host names, so the name also
tells boot, namespace and start time apart. A local job's handle is its process's name, `:` and its log.

A process can leave its session, and outlive its parent. So a worker adopts the orphans among its descendants,
and ends them all when it ends; and for the case that it is killed itself, all that it starts bears a key in
its environment, by which it is found.
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

import psutil

EXIT_COMPLETED = 0
EXIT_FAILED = 1
EXIT_BUSY = 75
"""EX_TEMPFAIL: the worker's attempt was revoked, or the store cannot be used."""
EXIT_REFUSED = 78
"""EX_CONFIG: the run's input is wrong, and would be wrong the next time."""
EXIT_STOPPED = 128 + signal.SIGTERM

JOB_KEY = "JESTLAB_JOB_TOKEN"
"""Environment variable of a local job's processes: whose they are. Its name says that it is a secret."""

KILL_SECONDS = 5.0
"""How long killed processes may take to end."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAUSE_SECONDS = 0.01
_BLOCK = 1 << 17
_TICKS = os.sysconf("SC_CLK_TCK")
_OVER = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def exit_from_shell(code: int) -> int:
    """Convert 128 + n, as shells count signals, to −n; 143 stays: a worker exits with it by itself."""
    ended_by_signal = 128 < code <= 128 + signal.NSIG and code != EXIT_STOPPED
    return 128 - code if ended_by_signal else code


def describe_exit(code: int) -> str:
    """Describe an exit code in words; negative ones are signals, as `subprocess` has them."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


@dataclass(frozen=True)
class Process:
    """A process, named so that no other one will ever be taken for it.

    Attributes:
        machine: Where its id means something.
        pid: Its id, and its session's.
        start: When it began, in the kernel's clock ticks since boot.
    """

    machine: str
    pid: int
    start: str

    def __str__(self) -> str:
        return f"{self.machine}:{self.pid}:{self.start}"

    @classmethod
    def of(cls, pid: int) -> Process:
        """Name a process of this machine."""
        return cls(machine(), pid, start_of(pid) or "0")

    @classmethod
    def parse(cls, name: str) -> Process:
        """Parse a process's name, or a local job's handle."""
        where, pid, start, *_ = name.split(":", 3)
        return cls(where, int(pid), start)

    @property
    def is_here(self) -> bool:
        """Whether its id means something on this machine."""
        return self.machine == machine()

    def runs(self) -> bool:
        """Whether it runs, as far as this machine shows it."""
        return start_of(self.pid) == self.start

    def is_hidden(self) -> bool:
        """Whether a process with its id exists and this machine hides other users' processes."""
        try:
            psutil.Process(self.pid).status()
        except psutil.AccessDenied:
            return True
        except psutil.NoSuchProcess:
            try:
                os.kill(self.pid, 0)
            except PermissionError:
                return True
            except ProcessLookupError:
                return False
        return False

    def session(self) -> set[int]:
        """Return the ids of what is left of its session, whose id nobody else gets as long as that is any."""
        if start_of(self.pid) not in (None, self.start):
            return set()  # the id belongs to another process by now
        found = set()
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == self.pid:
                    found.add(pid)
        return found


def identity() -> str:
    """Name this process, as other launchers may look for it."""
    return str(Process.of(os.getpid()))


def own_handle(log: str) -> str:
    """Return this process's handle: it leads a session of its own; its log is relative to the lab's root."""
    return f"{identity()}:{log}"


def is_running(name: str) -> bool | None:
    """Return whether a process runs, by its name or a local job's handle.

    None means unknown: the process is on another machine, or belongs to a user whose processes are hidden.
    """
    process = Process.parse(name)
    return None if not process.is_here or process.is_hidden() else process.runs()


@functools.cache
def machine() -> str:
    """Name the place where process ids mean what they mean to this process: host, boot and namespace.

    Containers often share a host name, cloned machines do too, and a restarted machine is another one.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    namespace = "".join(filter(str.isdigit, str(Path("/proc/self/ns/pid").readlink())))
    return f"{socket.gethostname()}.{boot}.{namespace}"


def start_of(pid: int) -> str | None:
    """Return when a live process began, in clock ticks since boot; None if it has ended, as a zombie has."""
    try:
        process = psutil.Process(pid)
        if process.status() in _OVER:
            return None
        return str(round((process.create_time() - psutil.boot_time()) * _TICKS))
    except psutil.Error:
        return None


def own_age() -> float:
    """Return for how many seconds this process has been running; 0 where the system does not say."""
    try:
        began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]  # in ticks since boot
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(began) / _TICKS)
    except (OSError, AttributeError, ValueError):
        return 0.0


# ---- what belongs to a job


def end_job(process: Process, key: str) -> set[int]:
    """Kill what is left of a job on this machine: its session, and what bears its key.

    Args:
        process: Its worker.
        key: The value of `JOB_KEY` in its environment.

    Returns:
        Ids of processes that still run after `KILL_SECONDS`.
    """
    return _end(lambda: process.session() | marked(key))


def end_descendants(but: Collection[int] = ()) -> set[int]:
    """Kill all that this process has started, directly or not, except these processes.

    Call `adopt_orphans` before anything is started. Returns what still runs after `KILL_SECONDS`.
    """
    this = psutil.Process()
    return _end(lambda: {child.pid for child in this.children(recursive=True)} - set(but))


def still_there(pids: Collection[int]) -> str:
    """Say of which processes it is that they were killed, and run all the same."""
    return f"process {', '.join(map(str, sorted(pids)))} was killed, and is still there"


def _end(find: Callable[[], set[int]]) -> set[int]:
    """Kill processes until none is found: while one looks, they may start others."""
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        left = {pid for pid in find() if start_of(pid) is not None}
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def marked(key: str) -> set[int]:
    """Return the ids of this machine's processes that were started with a key in their environment.

    Other users' processes cannot be read, nor what has overwritten its environment.
    """
    wanted, found, this = f"{JOB_KEY}={key}".encode(), set(), os.getpid()
    for pid in psutil.pids():
        environment = _environment(pid)
        if wanted in environment and pid != this and wanted in environment.split(b"\0"):
            found.add(pid)
    return found


def _environment(pid: int) -> bytes:
    """Return a process's environment; nothing where it cannot be read. Asked of all, whenever a job ends."""
    try:
        file = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    read = b""
    with contextlib.suppress(OSError):
        while block := os.read(file, _BLOCK):
            read += block
    os.close(file)
    return read


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(but: int) -> None:
    """Forget adopted processes that have ended, as their parent has to; not the child `but`."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == but:
                return
            os.waitpid(ended.si_pid, 0)


def die_with_parent() -> None:
    """Be killed when the parent ends: one system call, safe between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def group_runs(group: int) -> bool:
    """Whether any process of a process group runs, zombies aside."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == group and start_of(pid) is not None:
                return True
    return False
