"""Serve labs until the process is stopped."""

import gc
import secrets
import socket
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.serve.access import Access, bracketed, is_loopback

SQLITE_BYTES = 256 * 1024 * 1024
"""Memory limit of SQLite for all queries together; without it, `json_group_array` has no limit."""

GRACE_SECONDS = 2
"""How long running requests may continue after the server is stopped."""


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
    """Serve labs until the process is stopped.

    Args:
        host: Address or name to listen at.
        port: Port; 0 for any free port.
        writes: Whether writing is allowed with the token.
        token: The token; None for a new one.
        names: Other host names of the server.
        ready: Called with the server's URL, without the token, when it answers.

    Raises:
        UserError: The address can't be used, or the token is too short.
        StoreError: A lab's store can't be read.
    """
    # The first request would wait for pandas and SciPy, and for templates.
    import pandas as pd
    import scipy.special  # noqa: F401
    import uvicorn

    from jestlab.analysis.report.html import template
    from jestlab.platform.serve.app import application
    from jestlab.platform.serve.labs import Labs
    from jestlab.platform.serve.rendering import compile_templates

    template()
    compile_templates()
    pd.options.mode.string_storage = "python"  # Arrow's strings are slow to read one by one
    gc.set_threshold(50_000)  # ten thousand runs are a million objects, which are not garbage
    if token is not None and len(token) < 16:
        raise UserError("the token is shorter than 16 characters: set a longer one, or none for a new one")
    with closing(sqlite3.connect(":memory:")) as connection:  # sets the limit of the process
        connection.execute(f"PRAGMA hard_heap_limit = {SQLITE_BYTES}")
    with closing(Labs(labs, writes)) as served, closing(listening(host, port)) as opened:
        bound, port, *_ = opened.getsockname()
        names = (*names, bound)  # the address that a name such as localhost has
        access = Access.of(host, token or secrets.token_urlsafe(24), writes=writes, names=names)
        config = uvicorn.Config(
            application(served, access), log_level="warning", access_log=False, server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS, lifespan="off", ws="none",
        )  # fmt: skip
        address = f"http://{bracketed(bound if is_loopback(bound) else host)}:{port}/"

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                """Report the address after the signal handlers are set, so that Ctrl-C works."""
                await super().startup(sockets)
                if self.started:
                    ready(address, access)

        Server(config).run([opened])


def listening(host: str, port: int) -> socket.socket:
    """Open the server's socket; UserError if the address can't be used."""
    try:
        [family, kind, _, _, address], *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        opened = socket.socket(family, kind)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(128)  # early requests wait
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not the name of a host"
        raise UserError(f"can't listen at {host}:{port}: {reason}: try another --port or --host") from None
    return opened
