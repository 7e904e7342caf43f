"""Fork jobs from one process that has imported what they need, so that each need not import it again.

`Local` starts a server, which ends with it; the server's jobs, each in a session of its own, do not. The
server starts no thread, opens no database and computes nothing, so a fork is as good as a fresh process. If
an import has started a thread all the same, it refuses, and the job is started as a fresh process.

Launcher and server exchange packets of JSON over a pair of sockets, one order at a time:

    → {"imports": […], "arguments": […], "environment": {…}, "log": …}, with the end of a pipe
    ← {"started": pid}  or  {"refused": reason};  later  {"ended": pid, "code": code}

A job begins when the launcher writes into the pipe, and ends without having begun when it closes it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

import psutil

from jestlab.platform import worker

PACKET_BYTES = 1 << 17


def _serve(channel: socket.socket) -> list[str] | None:
    """Fork jobs until the launcher has gone.

    Returns:
        In a forked process, the arguments of its job; None in the server, at its end, and in a process whose
        job never begins.
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
                packet, [*pipes], *_ = socket.recv_fds(channel, PACKET_BYTES, 1)
                if not packet:
                    return None
                [go] = pipes
                order = json.loads(packet)
                try:
                    pid = _fork(order)
                except Exception as error:  # whatever an import may raise, the job itself will say it better
                    reason = f"the fork server cannot: {type(error).__name__}: {error}"
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
    """Wait until the launcher says that a job may begin; False if it has gone, or has stopped meanwhile."""
    try:
        return bool(os.read(go, 1))
    finally:
        os.close(go)


def _fork(order: Mapping[str, Any]) -> int:
    """Fork, and make the new process what a fresh one would be; return its id, or 0 in the new process.

    Raises:
        RuntimeError: This process has threads, which would be missing in the other one, with all they hold.
    """
    for module in order["imports"]:
        importlib.import_module(module)
    if (threads := psutil.Process().num_threads()) > 1:
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
        # Undo what imports have set for good. Python's own random numbers and OpenSSL's differ in each fork.
        logging.getLogger().handlers.clear()
        if "numpy.random" in sys.modules:
            import numpy as np

            np.random.seed()  # noqa: NPY002 the global state is what was copied
        for descriptor in (log, ready, not_ready):
            os.close(descriptor)
        return 0
    os.close(log)
    os.close(not_ready)
    os.read(ready, 1)  # to the end: now the job can be stopped by its group, and nothing of it be lost
    os.close(ready)
    return pid


def main() -> int:
    """Serve the launcher at the other end of a socket, whose descriptor is the argument."""
    # A launcher in the background ignores SIGINT (`nohup … &`); a job must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is None:
        return 0
    sys.argv = [worker.__file__, *arguments]
    return worker.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
