"""Processes of this machine: names that identify each of them for good, and what its exit code means.

A process is named `machine:pid:start`. Process ids are reused and machines share host names, so the name also
tells boot, namespace and start time apart. A local job's handle is its process's name, `:` and its log.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from jestlab.platform.launch.executor import JobState

EXIT_COMPLETED = 0
EXIT_FAILED = 1
EXIT_BUSY = 75
"""EX_TEMPFAIL: the worker's attempt was revoked, or the store cannot be used."""
EXIT_REFUSED = 78
"""EX_CONFIG: the run's input is wrong, and would be wrong the next time."""
EXIT_STOPPED = 128 + signal.SIGTERM

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

    def state(self) -> JobState:
        """What is known of it from outside: RUNNING, GONE, or UNKNOWN if elsewhere or another user's."""
        if not self.is_here or self.is_hidden():
            return JobState.UNKNOWN
        return JobState.RUNNING if self.runs() else JobState.GONE

    def end_session(self) -> None:
        """Kill what is left of its session, whose id nobody else gets while one of its processes is left."""
        if start_of(self.pid) not in (None, self.start):
            return  # the id belongs to another process by now
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)


def identity() -> str:
    """Name this process, as other launchers may look for it."""
    return str(Process.of(os.getpid()))


def own_handle(log: Path) -> str:
    """Return the handle of this process, which leads a session of its own."""
    return f"{identity()}:{log}"


def state_of(name: str) -> JobState:
    """Return what is known from outside of a process, by its name or a local job's handle."""
    return Process.parse(name).state()


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


def group_runs(group: int) -> bool:
    """Whether any process of a process group runs, zombies aside."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == group and start_of(pid) is not None:
                return True
    return False
