"""Fork jobs from one process that has imported their modules, so that each job starts at once.

`ForkServer` starts the server, which ends when its launcher ends. The server starts no thread, opens no
database, and computes nothing, so a forked job works like a new process. If an import started a thread, the
server refuses to fork, and the job starts as a new process.

To start a job, the launcher sends the server an order (JSON) with two file descriptors: the job's log, and
one end of a pair of sockets. The server forks a guard, and the guard forks the job. The job starts a session,
sends its process id through the socket, and waits for the launcher's answer; if the launcher closes its end
instead, the job exits. When the job ends, its guard sends the exit code. Jobs and guards continue if the
server or the launcher ends.
"""

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
"""Time limit for the server to import modules and fork; then it is killed."""

CLOSE_SECONDS = 5.0
"""Time limit for the server to end by itself; then it is killed, since a suspended one never ends."""

_PACKET_BYTES = 1 << 17


class ForkServerError(Exception):
    """A job was not started; the message gives the reason."""


class Forked:
    """A forked job, with the methods of `subprocess.Popen` that the local executor uses.

    Attributes:
        pid: Process id.
        lost: Whether the job's guard ended without sending the exit code, which is then unknown.
    """

    def __init__(self, pid: int, guard: socket.socket) -> None:
        self.pid = pid
        self.lost = False
        self._guard = guard
        self._code: int | None = None
        self._receiving = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None if the job is running or the code is unknown."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait up to `timeout` seconds until the job or its guard has ended; return the same as `poll`."""
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
    """The launcher's side of a fork server: starts the server and sends it jobs."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        """Start the server. It imports the modules of jobs when it receives the first one.

        Args:
            environment: Environment of the server and its jobs; `ONE_THREAD` is added.
            log: File to which the server's output is appended: the log of the first job.

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
        """Interrupt a `start` that waits for a fork: it raises ForkServerError, and its job never begins."""
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
        """Fork a job, and let it start once it leads a session and writes to its log.

        If `may_begin` returns False, or this process ends first, the forked job exits before it begins.

        Raises:
            ForkServerError: The job didn't begin.
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
            # Check also before waiting: `halt` may have been called before `_starting` was set.
            answer = _receive(ours) if may_begin() else {}
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
    """Return the content of a packet; an empty dict if the other side has closed its end."""
    with contextlib.suppress(ConnectionError):
        if packet := channel.recv(_PACKET_BYTES):
            content: dict[str, Any] = json.loads(packet)
            return content
    return {}


def _send(channel: socket.socket, **content: object) -> None:
    with contextlib.suppress(OSError):  # the other side has closed its end
        channel.send(json.dumps(content).encode())


# ---- the server's side


def _serve(channel: socket.socket) -> list[str] | None:
    """Fork jobs until the launcher closes the channel.

    Returns:
        In a forked job, its arguments, or None if it must not begin. In the server, None.
    """
    while True:
        packet, descriptors, *_ = socket.recv_fds(channel, _PACKET_BYTES, 2)
        if not packet:
            return None
        order, log = json.loads(packet), descriptors[1]
        with socket.socket(fileno=descriptors[0]) as launcher:
            try:
                _import(order["imports"])
            except Exception as error:  # a new process reports the error of the import in its log
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
    if (threads := psutil.Process().num_threads()) > 1:  # a fork copies their locks, but not the threads
        raise RuntimeError(f"{threads} threads run after its imports")
    gc.collect()
    gc.freeze()  # otherwise each job's garbage collector would write to, and so copy, all imported pages


def _fork_guarded(launcher: socket.socket) -> None:
    """Fork, and return in the child. The parent is its guard: it sends the child's exit code, and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        _send(launcher, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)


def _begin(order: Mapping[str, Any], log: int, launcher: socket.socket) -> list[str] | None:
    """Prepare this process like a new one, and return the job's arguments; None if it must not begin."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(order["environment"])
    # Undo effects of imports. Python and OpenSSL reseed their random numbers in each fork by themselves.
    logging.getLogger().handlers.clear()
    if "numpy.random" in sys.modules:
        import numpy as np

        np.random.seed()  # noqa: NPY002 the fork copied the global state
    _send(launcher, pid=os.getpid())
    arguments: list[str] = order["arguments"]
    return arguments if _receive(launcher) else None


def main() -> int:
    """Serve the launcher at the other end of a socket; the first argument is the socket's descriptor."""
    from jestlab.analysis.provenance.checkout import jestlab_version
    from jestlab.platform import worker  # before forks, so that jobs don't have to import it

    jestlab_version()  # cached: jobs run the code imported here, even if its files change later
    # A launcher in the background (`nohup … &`) ignores SIGINT, which children inherit; jobs must handle it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is None:
        return 0
    sys.argv = [worker.__file__, *arguments]
    return worker.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
