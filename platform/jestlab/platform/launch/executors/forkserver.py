"""Fork jobs from one process that has imported their modules, so that each job starts at once.

`ForkServer` starts the server, which ends with its launcher. The server's jobs, each in a separate session,
continue. The server starts no thread, opens no database, and computes nothing, so a fork is as good as a new
process. If an import has started a thread, the server refuses, and the job starts as a new process.

Launcher and server exchange packets of JSON over a pair of sockets, one order at a time:

    → {"imports": […], "arguments": […], "environment": {…}, "log": …}, with the end of a pipe
    ← {"started": pid}  or  {"refused": reason};  later  {"ended": pid, "code": code}

A job starts when the launcher writes into the pipe, and never starts if the launcher closes
it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
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

PACKET_BYTES = 1 << 17
_HALTED = "the launch was stopped"


class ForkServerError(Exception):
    """A job was not forked; the message gives the reason."""


class Forked:
    """A forked job, with those methods of `subprocess.Popen` that are used for other jobs.

    Attributes:
        pid: Process id.
        lost: Whether the server is gone, so that the exit code stays unknown.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lost = False
        self._code: int | None = None
        self._over = threading.Event()

    def poll(self) -> int | None:
        """Return the exit code, or minus a signal's number; None while the job runs, or if it is unknown."""
        return self._code

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the job has ended or its server is gone; return what `poll` returns."""
        self._over.wait(timeout)
        return self._code

    def finish(self, code: int | None) -> None:
        """Record the exit code; None if it stays unknown."""
        self._code, self.lost = code, code is None
        self._over.set()


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
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
            ours.close()
            raise ForkServerError(f"cannot start {command[0]}: {sentence(error)}") from error
        self._channel = ours
        self._answers: queue.SimpleQueue[Forked | str] = queue.SimpleQueue()
        # The thread must not refer to this object: the server ends once nothing refers to it any more.
        threading.Thread(
            target=_listen, args=(ours, self._process, self._answers), name="forkserver", daemon=True
        ).start()
        self._finalizer = weakref.finalize(self, _hang_up, ours)

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def halt(self) -> None:
        """Wake a thread that waits for a fork; its job never begins."""
        self._answers.put(_HALTED)

    def close(self) -> None:
        """End the server and wait until it has ended; its jobs continue."""
        self._finalizer()
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
            "log": str(job.log),
        }
        theirs, ours = os.pipe()
        try:
            try:
                socket.send_fds(self._channel, [json.dumps(order).encode()], [theirs])
            finally:
                os.close(theirs)
            answer = self._answers.get(timeout=START_SECONDS)
            if isinstance(answer, Forked) and may_begin():
                os.write(ours, b"go")
                return answer
        except OSError as error:
            raise ForkServerError(f"the fork server has ended: {error}") from error
        except queue.Empty:
            self._process.kill()
            raise ForkServerError(f"the fork server timed out after {START_SECONDS:.0f} s") from None
        finally:
            os.close(ours)
        raise ForkServerError(answer if isinstance(answer, str) else _HALTED)


def _hang_up(channel: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side may have done so
        channel.shutdown(socket.SHUT_RDWR)


def _listen(
    channel: socket.socket, process: subprocess.Popen[bytes], answers: queue.SimpleQueue[Forked | str]
) -> None:
    """Receive the server's packets until it ends."""
    children: dict[int, Forked] = {}
    with channel, contextlib.suppress(ConnectionError):  # the other side is gone
        while packet := channel.recv(PACKET_BYTES):
            answer = json.loads(packet)
            if "ended" in answer:
                children.pop(answer["ended"]).finish(answer["code"])
            elif "started" in answer:
                child = children[answer["started"]] = Forked(answer["started"])
                answers.put(child)
            else:
                answers.put(str(answer["refused"]))
    code = process.wait()
    answers.put(f"the fork server has ended, exit code {code}")
    for child in children.values():
        child.finish(None)


# ---- the server's side


def _serve(channel: socket.socket) -> list[str] | None:
    """Fork jobs until the launcher is gone.

    Returns:
        In a forked process, the arguments of its job; None in the server at its end, and in a process whose
        job never begins.
    """
    children: dict[int, int] = {}  # descriptor of a job → its pid
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    with contextlib.suppress(ConnectionError):  # the launcher was killed: its jobs continue
        while True:
            for descriptor, _ in waiting.poll():
                if descriptor in children:
                    waiting.unregister(descriptor)
                    pid = children.pop(descriptor)
                    os.close(descriptor)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    channel.send(json.dumps({"ended": pid, "code": code}).encode())
                    continue
                packet, [*pipes], *_ = socket.recv_fds(channel, PACKET_BYTES, 1)
                if not packet:
                    return None
                [go] = pipes
                order = json.loads(packet)
                try:
                    pid = _fork(order)
                except Exception as error:  # the job reports an import's error better when it runs
                    reason = f"the fork server failed: {type(error).__name__}: {error}"
                    channel.send(json.dumps({"refused": reason}).encode())
                    os.close(go)
                    continue
                if pid == 0:
                    for open_descriptor in children:
                        os.close(open_descriptor)
                    channel.close()
                    return list(order["arguments"]) if _may_begin(go) else None
                os.close(go)
                descriptor = os.pidfd_open(pid)
                children[descriptor] = pid
                waiting.register(descriptor, select.POLLIN)
                channel.send(json.dumps({"started": pid}).encode())
    return None


def _may_begin(go: int) -> bool:
    """Wait until the launcher lets a job begin; False if the launcher is gone, or has stopped meanwhile."""
    try:
        return bool(os.read(go, 1))
    finally:
        os.close(go)


def _fork(order: Mapping[str, Any]) -> int:
    """Fork, and make the child like a new process; return its id, or 0 in the child.

    Raises:
        RuntimeError: This process has threads, which the child would lack together with the locks they hold.
    """
    for module in order["imports"]:
        importlib.import_module(module)
    if (threads := psutil.Process().num_threads()) > 1:
        raise RuntimeError(f"{threads} threads run after its imports")
    gc.collect()
    gc.freeze()  # or each job's collector would write to, and so copy, every imported page
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    ready, not_ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["environment"])
        # Undo what imports have set up. Python's own random numbers and OpenSSL's differ in each fork.
        logging.getLogger().handlers.clear()
        if "numpy.random" in sys.modules:
            import numpy as np

            np.random.seed()  # noqa: NPY002 the fork copied the global state
        for descriptor in (log, ready, not_ready):
            os.close(descriptor)
        return 0
    os.close(log)
    os.close(not_ready)
    os.read(ready, 1)  # returns once the child leads its group, by which it can be stopped
    os.close(ready)
    return pid


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
