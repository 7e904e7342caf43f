"""Names of the current user and machine."""

import getpass
import os
import socket
import subprocess


def user_name() -> str:
    """Return the name of this process's user, or the user id if the user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def person() -> str:
    """Return `user.name` of git, or the user's name if it isn't set."""
    try:
        name = subprocess.run(
            ["git", "config", "user.name"], capture_output=True, timeout=10, stdin=subprocess.DEVNULL
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        name = ""
    return name.strip() or user_name()
