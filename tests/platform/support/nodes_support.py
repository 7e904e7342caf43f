"""Machines that share a folder: namespaces, each with its host name, process ids, and mount."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import mounts_support
import psutil
from tests.waiting import wait_until

from jestlab.platform.processes import die_with_parent

GROUP = 3000
"""Group of the shared folder."""


def why_not() -> str | None:
    """Return why no nodes can run here; None if they can."""
    return mounts_support.why_not() or (None if os.geteuid() == 0 else "only root can make namespaces")


class Command(subprocess.Popen[bytes]):
    """A command on a node. It is the child of an `nsenter` that waits for it and has its exit code."""

    def send_signal(self, number: int) -> None:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children():
                child.send_signal(number)
        if number == signal.SIGCONT:  # `nsenter` stops itself with its child
            super().send_signal(number)


class Node:
    """A machine: host name, process ids, local disk, and mount of the shared folder.

    It ends with this process, and its mount with it.
    """

    def __init__(self, name: str, folder: Path, place: Path, disk: Path, user: int | None) -> None:
        """Name its parts; `start` it, and in the end `kill` it.

        Args:
            name: Its host name.
            folder: The folder that is shared.
            place: Where it mounts that folder.
            disk: Its local disk.
            user: As whom it writes to the folder, a user with a name; as root if it is None.
        """
        self.name = name
        self.disk = disk
        whom = None if user is None else (user, GROUP)
        mount = mounts_support.mount_command(folder, place, user=whom)
        self._command = [
            *("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("sh", "-c", 'hostname "$0"; "$@" & while :; do wait; sleep 0.1; done', name, *mount),
        ]
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it has mounted the folder."""
        self.disk.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            self._command, umask=0, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        wait_until(lambda: self._init() is not None)
        mounted = ["findmnt", "--types", "fuse.sshfs", str(self._place)]
        wait_until(lambda: self.start_command(mounted, stdout=subprocess.DEVNULL).wait() == 0)

    def kill(self) -> None:
        """End all of its processes at once; its mount ends with them."""
        assert self._process is not None
        if (init := self._init()) is not None:
            init.kill()
        self._process.wait()

    def start_command(self, words: list[str], **how: Any) -> Command:
        """Start a command on it, with arguments of `subprocess.Popen`."""
        init = self._init()
        assert init is not None
        enter = ["nsenter", "--target", str(init.pid), "--mount", "--uts", "--pid", "--"]
        return Command([*enter, *words], **how)

    def server(self) -> psutil.Process | None:
        """The process through which it reaches the folder; None between two connections."""
        if (init := self._init()) is not None:
            for child in init.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if child.name() == "sftp-server" and child.status() != psutil.STATUS_ZOMBIE:
                        return child
        return None

    def _init(self) -> psutil.Process | None:
        """The first process of the node, as this machine sees it."""
        assert self._process is not None
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children():
                return child
        return None


@contextmanager
def two_nodes(folder: Path, users: tuple[int | None, ...] = (None, None)) -> Iterator[list[Node]]:
    """Context with two nodes that mount the folder `served`, which this makes in a folder, as `shared`."""
    served, place = folder / "served", folder / "shared"
    served.mkdir()
    os.chown(served, -1, GROUP)
    served.chmod(0o2775)
    place.mkdir()
    with ExitStack() as ends:
        nodes = []
        for number, user in enumerate(users, 1):
            nodes.append(Node(f"n{number}", served, place, folder / f"disk{number}", user))
            nodes[-1].start()
            ends.callback(nodes[-1].kill)
        yield nodes
