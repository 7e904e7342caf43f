"""Who runs this process, and on which machine."""

from __future__ import annotations

import getpass
import os
import socket


def user_name() -> str:
    """Return the name of this process's user; the number, in a container that gives users no names."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()
