"""Serve labs until somebody stops it."""

from __future__ import annotations

import secrets
import socket
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.serve.access import Access, bracketed, is_loopback

SQLITE_BYTES = 256 * 1024 * 1024
"""Memory that SQLite takes at most, for all queries together: `json_group_array` has no limit of its own."""

GRACE_SECONDS = 2
"""How long answers under way may take once it is to stop."""


def serve(
    labs: Sequence[Lab],
    *,
    host: str,
    port: int,
    writes: bool,
    token: str | None,
    names: tuple[str, ...],
    ready: Callable[[str, Access], None],
) -> None:
    """Serve labs at an address; return when it was stopped.

    Args:
        labs: They.
        host: Address or name to listen at.
        port: Port; 0 for a free one.
        writes: Whether who has the token may write.
        token: The token; None for a new one.
        names: Further names by which browsers ask for the server.
        ready: Called with the server's URL, without the token, when it answers.

    Raises:
        UserError: The address cannot be listened at, or the token is too short.
        StoreError: A lab's store cannot be read.
    """
    import uvicorn

    from jestlab.platform.serve.app import application
    from jestlab.platform.serve.labs import Labs

    if token is not None and len(token) < 16:
        raise UserError("the token is shorter than 16 characters: give a longer one, or none for a new one")
    with closing(sqlite3.connect(":memory:")) as connection:  # the limit is that of the process
        connection.execute(f"PRAGMA hard_heap_limit = {SQLITE_BYTES}")
    served = Labs(labs, writes)
    try:
        opened = listening(host, port)
        bound, port, *_ = opened.getsockname()
        names = (*names, bound)  # "localhost" and "127.1" are names of it
        access = Access.of(host, token or secrets.token_urlsafe(24), writes=writes, names=names)
        config = uvicorn.Config(
            application(served, access), log_level="warning", access_log=False, server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS, lifespan="off", ws="none",
        )  # fmt: skip
        address = f"http://{bracketed(bound if is_loopback(bound) else host)}:{port}/"

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                """Say where it is once it handles signals; a Ctrl-C before that may get lost."""
                await super().startup(sockets)
                if self.started:
                    ready(address, access)

        Server(config).run([opened])
    finally:
        served.close()


def listening(host: str, port: int) -> socket.socket:
    """Open the socket that the server listens at."""
    try:
        [family, kind, _, _, address], *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        opened = socket.socket(family, kind)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(128)  # who comes before the server is up waits
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or "this is not the name of a host"
        raise UserError(
            f"{host}:{port} cannot be listened at: {said}: try another --port or --host"
        ) from None
    return opened
