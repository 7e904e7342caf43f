"""Ports for servers that tests start."""

import random
import socket


def free_port() -> int:
    """Return a free port of 127.0.0.1 that the kernel won't give to another process.

    The kernel chooses ports for connections, and for servers that bind to port 0, from 32768 on.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)  # other test processes must choose differently
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
