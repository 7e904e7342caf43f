"""Jobs forked from one process that has imported what they need, instead of each importing it anew.

A server belongs to one launcher and ends with it; its jobs, each in a session of its own, do not. It starts
no thread, opens no database and computes nothing, so that a fork of it is as good as a fresh process; if an
import of it has started a thread all the same, it refuses, and the job is to be started the plain way.

Launcher and server talk in packets of JSON over a pair of sockets, one order at a time:

    → {"imports": […], "arguments": […], "environment": {…}, "log": …}
    ← {"started": pid}  or  {"refused": why};  later  {"ended": pid, "code": code}
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
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jestlab.platform.launch.executor import Job

PATIENCE_SECONDS = 120.0
"""How long a server may take to import and fork before it is given up."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""In the server's environment: NumPy's libraries start their threads when they are imported."""

_PACKET = 1 << 17


class ForkServerError(Exception):
    """The job was not forked; why, in words."""


class Forked:
    """A forked job, as far as `subprocess.Popen` is used for others.

    Attributes:
        pid: Its process.
        lost: Whether the server has gone, so that nobody will say how the job ends.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lost = False
        self._code: int | None = None
        self._told = threading.Event()

    def poll(self) -> int | None:
        """Exit code, minus a signal's number; None while it runs, or if nobody knows."""
        return self._code

    def wait(self, timeout: float | None = None) -> int | None:
        """As `poll`, once that is known or never will be, or after so many seconds."""
        self._told.wait(timeout)
        return self._code

    def tell(self, code: int | None) -> None:
        """How it ended; None if nobody will ever say."""
        self._code, self.lost = code, code is None
        self._told.set()


class ForkServer:
    """The launcher's side."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        """Start the server; it imports nothing heavy yet.

        Args:
            environment: Of the server and of all its jobs, which have NumPy compute with one thread.
            log: Where it says what goes wrong with itself: the log of the first job.

        Raises:
            ForkServerError: It cannot be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
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
            raise ForkServerError(f"cannot start {command[0]}: {error}") from error
        self._channel = ours
        self._answers: queue.SimpleQueue[Forked | str] = queue.SimpleQueue()
        # The thread must not hold this object: that its last user has let go of it is what ends the server.
        threading.Thread(
            target=_listen, args=(ours, self._process, self._answers), name="forkserver", daemon=True
        ).start()
        weakref.finalize(self, _hang_up, ours)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def start(self, job: Job) -> Forked:
        """Fork a job; returns when it leads its own session and writes to its own log.

        Raises:
            ForkServerError: It was not forked.
        """
        order = {
            "imports": list(job.imports),
            "arguments": list(job.arguments),
            "environment": dict(job.environment),
            "log": str(job.log),
        }
        try:
            self._channel.send(json.dumps(order).encode())
            answer = self._answers.get(timeout=PATIENCE_SECONDS)
        except OSError as error:
            raise ForkServerError(f"the fork server has ended: {error}") from error
        except queue.Empty:
            # Should it have forked all the same: an attempt is taken up by one process alone.
            self._process.kill()
            raise ForkServerError(f"the fork server said nothing for {PATIENCE_SECONDS:.0f} s") from None
        if isinstance(answer, str):
            raise ForkServerError(answer)
        return answer


def _hang_up(channel: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side has done so
        channel.shutdown(socket.SHUT_RDWR)


def _listen(
    channel: socket.socket, process: subprocess.Popen[bytes], answers: queue.SimpleQueue[Forked | str]
) -> None:
    """Hear the server out, to its end."""
    children: dict[int, Forked] = {}
    with channel:
        while packet := _received(channel):
            said = json.loads(packet)
            if "ended" in said:
                children.pop(said["ended"]).tell(said["code"])
            elif "started" in said:
                child = children[said["started"]] = Forked(said["started"])
                answers.put(child)
            else:
                answers.put(str(said["refused"]))
    code = process.wait()
    answers.put(f"the fork server has ended, exit code {code}")
    for child in children.values():
        child.tell(None)


def _received(channel: socket.socket) -> bytes:
    """The next packet; empty when the other side has gone."""
    try:
        return channel.recv(_PACKET)
    except ConnectionError:
        return b""


# ---- the server's side


def _serve(channel: socket.socket) -> list[str] | None:
    """Fork jobs until the launcher has gone.

    Returns:
        In a forked process, the arguments of its job; None in the server, at its end.
    """
    children: dict[int, int] = {}  # descriptor of a job → its pid
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    with contextlib.suppress(ConnectionError):  # the launcher was killed: its jobs go on
        while True:
            for descriptor, _ in waiting.poll():
                if descriptor in children:
                    waiting.unregister(descriptor)
                    pid = children.pop(descriptor)
                    os.close(descriptor)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    channel.send(json.dumps({"ended": pid, "code": code}).encode())
                    continue
                if not (packet := channel.recv(_PACKET)):
                    return None
                order = json.loads(packet)
                try:
                    pid = _fork(order)
                except Exception as error:  # whatever an import may raise, the job will say better by itself
                    reason = f"the fork server cannot: {type(error).__name__}: {error}"
                    channel.send(json.dumps({"refused": reason}).encode())
                    continue
                if pid == 0:
                    for open_descriptor in children:
                        os.close(open_descriptor)
                    channel.close()
                    return list(order["arguments"])
                descriptor = os.pidfd_open(pid)
                children[descriptor] = pid
                waiting.register(descriptor, select.POLLIN)
                channel.send(json.dumps({"started": pid}).encode())
    return None


def _fork(order: Mapping[str, Any]) -> int:
    """Fork, and make the new process what a fresh one would be; its id, or 0 in itself.

    Raises:
        RuntimeError: This process has threads, which would be missing in the other one, with all they hold.
    """
    for module in order["imports"]:
        importlib.import_module(module)
    if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        raise RuntimeError(f"{threads} threads run after its imports")
    gc.collect()
    gc.freeze()  # or each job's collector would write to, and so copy, every page of what was imported
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    ready, not_ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["environment"])
        _refresh()
        for descriptor in (log, ready, not_ready):
            os.close(descriptor)
        return 0
    os.close(log)
    os.close(not_ready)
    os.read(ready, 1)  # to the end: now the job can be stopped by its group, and nothing of it be lost
    os.close(ready)
    return pid


def _refresh() -> None:
    """Undo what imports have set for good: a log's format, and the state of NumPy's random numbers.

    Python's own random numbers and OpenSSL's see to it themselves that a fork goes on with others.
    """
    logging.getLogger().handlers.clear()
    if "numpy.random" in sys.modules:
        import numpy as np

        np.random.seed()  # noqa: NPY002 the global state is what was copied


def main() -> int:
    """Serve the launcher at the other end of a socket, whose descriptor is the argument."""
    from jestlab.platform import worker

    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is None:
        return 0
    sys.argv = [worker.__file__, *arguments]
    return worker.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
