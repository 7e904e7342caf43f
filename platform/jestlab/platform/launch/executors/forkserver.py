"""Fork jobs from one process that has imported their modules, so that each job starts at once.

`ForkServer` starts the server, which ends with its launcher. The server starts no thread, opens no database,
and computes nothing, so a fork is as good as a new process. If an import has started a thread, the server
refuses, and the job starts as a new process.

The launcher sends an order (JSON), the job's log, and one end of a pair of sockets. The server forks a guard,
and the guard forks the job, which leads a session, sends its process id, and begins once the launcher
answers: it never begins if the launcher closes its end. When the job ends, its guard sends the exit code.
Jobs and guards outlive server and launcher.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from jestlab.platform.errors import sentence
from jestlab.platform.launch.executors.base import Job
from jestlab.platform.launch.executors.environment import ONE_THREAD
from jestlab.platform.processes import JOB_KEY

START_SECONDS = 120.0
"""How long a server may take to import and fork before it is given up."""

CLOSE_SECONDS = 5.0
"""How long a server may take to end by itself: a frozen one never does."""

_PACKET_BYTES = 1 << 17


class ForkServerError(Exception):
    """A job was not forked; the message gives the reason."""


class Forked:
    """A forked job, with those methods of `subprocess.Popen` that are used for other jobs.

    Attributes:
        pid: Process id.
        lost: Whether the job's guard is gone, so that the exit code stays unknown.
    """

    def __init__(self, pid: int, guard: socket.socket) -> None:
        self.pid = pid
        self.lost = False
        self._guard = guard
        self._code: int | None = None
        self._receiving = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, or minus a signal's number; None while the job runs, or if it is unknown."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the job has ended or its guard is gone; return what `poll` returns."""
        if self._receiving.acquire(timeout=-1 if timeout is None else timeout):
            with contextlib.suppress(BlockingIOError, TimeoutError):
                if self._code is None and not self.lost:
                    self._guard.settimeout(timeout)
                    self._code = _receive(self._guard).get("code")
                    self.lost = self._code is None
                    self._guard.close()
            self._receiving.release()
        return self._code


class ForkServer:
    """Launcher's side: starts a server and sends it jobs."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        """Start the server; it imports nothing heavy yet.

        Args:
            environment: Environment of the server and its jobs, in which NumPy uses one thread.
            log: Log for the server's own errors: that of the first job.

        Raises:
            ForkServerError: The server can't be started.
        """
        self._channel, theirs = _pair()
        self._starting = self._channel
        command = [sys.executable, "-m", "jestlab.platform.launch.executors.forkserver", str(theirs.fileno())]
        try:
            with theirs, log.open("ab") as output:
                self._process = subprocess.Popen(
                    command,
                    env={**environment, **ONE_THREAD},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            raise ForkServerError(f"cannot start {command[0]}: {sentence(error)}") from error

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def halt(self) -> None:
        """Wake a thread that waits for a fork; its job never begins."""
        with contextlib.suppress(OSError):  # already closed
            self._starting.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the server and wait until it has ended; its jobs continue."""
        self._channel.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(self, job: Job, may_begin: Callable[[], bool] = lambda: True) -> Forked:
        """Fork a job; return when it leads a session, writes to its log, and may begin.

        A job never begins if `may_begin` returns False after the fork, or this process ends before that.

        Raises:
            ForkServerError: The job was not forked, or never begins.
        """
        order = {
            "imports": list(job.imports),
            "arguments": list(job.arguments),
            "environment": {**job.environment, JOB_KEY: str(job.key)},
        }
        ours, theirs = _pair()
        ours.settimeout(START_SECONDS)
        self._starting = ours
        try:
            with theirs, job.log.open("ab") as log:
                descriptors = [theirs.fileno(), log.fileno()]
                socket.send_fds(self._channel, [json.dumps(order).encode()], descriptors)
            answer = _receive(ours)
            if "pid" in answer and may_begin():
                _send(ours, go=True)
                return Forked(answer["pid"], ours)
        except TimeoutError:
            self._process.kill()
            answer = {"refused": f"the fork server timed out after {START_SECONDS:.0f} s"}
        except OSError as error:
            answer = {"refused": f"the fork server has ended: {error}"}
        ours.close()
        raise ForkServerError(answer.get("refused", "the fork server has ended, or the launch was stopped"))


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _receive(channel: socket.socket) -> dict[str, Any]:
    """Return a packet's content; empty if the other side is gone."""
    with contextlib.suppress(ConnectionError):
        if packet := channel.recv(_PACKET_BYTES):
            content: dict[str, Any] = json.loads(packet)
            return content
    return {}


def _send(channel: socket.socket, **content: object) -> None:
    with contextlib.suppress(OSError):  # the other side is gone
        channel.send(json.dumps(content).encode())


# ---- the server's side


def _serve(channel: socket.socket) -> list[str] | None:
    """Fork jobs until the launcher is gone.

    Returns:
        In a forked job, its arguments; None in the server at its end, and in a job that never begins.
    """
    while True:
        packet, descriptors, *_ = socket.recv_fds(channel, _PACKET_BYTES, 2)
        if not packet:
            return None
        order, log = json.loads(packet), descriptors[1]
        with socket.socket(fileno=descriptors[0]) as launcher:
            try:
                _import(order["imports"])
            except Exception as error:  # the job reports an import's error better when it runs
                _send(launcher, refused=f"the fork server failed: {type(error).__name__}: {error}")
            else:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes guards that have ended
                if os.fork() == 0:
                    channel.close()
                    _fork_guarded(launcher)
                    return _begin(order, log, launcher)
        os.close(log)


def _import(modules: list[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    if (threads := psutil.Process().num_threads()) > 1:  # a fork would lack them, but not the locks they hold
        raise RuntimeError(f"{threads} threads run after its imports")
    gc.collect()
    gc.freeze()  # or each job's collector would write to, and so copy, every imported page


def _fork_guarded(launcher: socket.socket) -> None:
    """Fork, and return in the child; this process sends the child's exit code and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        _send(launcher, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)


def _begin(order: Mapping[str, Any], log: int, launcher: socket.socket) -> list[str] | None:
    """Make this process like a new one; return the job's arguments once the launcher lets it begin."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(order["environment"])
    # Undo what imports have set up. Python's own random numbers and OpenSSL's differ in each fork.
    logging.getLogger().handlers.clear()
    if "numpy.random" in sys.modules:
        import numpy as np

        np.random.seed()  # noqa: NPY002 the fork copied the global state
    _send(launcher, pid=os.getpid())
    arguments: list[str] = order["arguments"]
    return arguments if _receive(launcher) else None


def main() -> int:
    """Serve the launcher at the other end of the socket whose descriptor is the argument."""
    from jestlab.platform import worker  # so that jobs need not import it

    # A launcher in the background ignores SIGINT (`nohup … &`); jobs must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is None:
        return 0
    sys.argv = [worker.__file__, *arguments]
    return worker.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
