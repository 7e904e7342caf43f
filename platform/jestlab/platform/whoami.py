"""Who runs this process, and on which machine."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess


def user_name() -> str:
    """Return the name of this process's user; the number, in a container that gives users no names."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def person() -> str:
    """Name this person as git does, else as the system does."""
    try:
        said = subprocess.run(
            ["git", "config", "user.name"], capture_output=True, timeout=10, stdin=subprocess.DEVNULL
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    return said.strip() or user_name()
