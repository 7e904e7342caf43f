"""A folder that several clients mount over a network protocol, as the nodes of a cluster do.

Each client is an `sshfs` that starts an `sftp-server` instead of `ssh`. It caches listings for 20 s: for that
long they may lack a file that another client has created. Hard links are exclusive, and renames are atomic,
as on NFS.
"""

import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from guard import Guard
from tests.waiting import wait_until

SERVER = Path("/usr/lib/openssh/sftp-server")


@functools.cache
def why_not() -> str | None:
    """Return why no network file system can be mounted here; None if one can."""
    missing = [name for name in ("sshfs", "fusermount3", SERVER) if shutil.which(name) is None]
    if missing:
        return f"{', '.join(map(str, missing))} not found: make cluster-mounts"
    return None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "/dev/fuse may not be opened"


def mount_command(folder: Path, place: Path, *options: str, user: tuple[int, int] | None = None) -> list[str]:
    """Return the command of a client, which runs until its folder is unmounted.

    Args:
        folder: The folder of the server.
        place: Where to mount it.
        options: Further options of `sshfs`.
        user: Ids of the user and group as whom the client acts on the server; by default as this process.
    """
    # What sshfs appends for ssh, such as -x, become arguments that this shell ignores.
    server = f"sh -c {SERVER}"
    if user is not None:
        server = f"setpriv --reuid={user[0]} --regid={user[1]} --clear-groups {server}"
    given = [f"ssh_command={server}", "reconnect", *options]
    if os.geteuid() == 0:
        given.append("allow_other")
    words = [word for option in given for word in ("-o", option)]
    return ["sshfs", "-f", *words, f"localhost:{folder}", str(place)]


@contextmanager
def shared_folder(folder: Path, clients: int = 2, *options: str) -> Iterator[list[Path]]:
    """Mount a folder several times; skip the test where that's impossible.

    At the end, and also when this process is killed, everything is unmounted, and no process is left.

    Args:
        folder: Exists. The mounts are next to it.
        clients: How many. They share no cache.
        options: Further options of `sshfs`, such as `disable_hardlink`.

    Yields:
        The folders of the clients.
    """
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    place = folder.with_name(f"{folder.name}-clients")
    mounts = [place / f"n{number}" for number in range(1, clients + 1)]
    for mount in mounts:
        mount.mkdir(parents=True)
    with closing(Guard(place, os.environ)) as guard:
        for mount in mounts:
            guard.start(mount.name, mount_command(folder, mount, *options))
        wait_until(lambda: all(mount.is_mount() for mount in mounts))
        yield mounts
