"""`jestlab serve`: a web interface for one or several labs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jestlab.platform.cli.options import examples, lab_json_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    from jestlab.platform.lab.lab import Lab
    from jestlab.platform.serve.access import Access


@click.command(
    epilog=examples(
        "serve",
        "serve --root ~/lab --port 9000",
        "serve --lab ~/mine --lab ~/theirs=postgresql://reader@server/results",
        "serve --write",
        "serve --host 0.0.0.0 --name lab.example.org",
    )
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8270, show_default=True,
              help="Port; 0 for any free port.")  # fmt: skip
@click.option(
    "--write", "writes", is_flag=True, help="Allow anyone with the token to cancel, retry, and annotate."
)
@click.option("--name", "names", multiple=True, metavar="HOST",
              help="Another host name of the server, such as a proxy's; reading then requires the "
                   "token; repeatable.")  # fmt: skip
@click.option("--lab", "places", multiple=True, metavar="FOLDER[=URL]", type=click.Path(file_okay=False),
              help="Serve this lab instead of --root, with its store at URL; repeatable.")  # fmt: skip
@lab_json_options("Print the address and the token as JSON once the server is ready.")
def serve_command(
    *,
    as_json: bool,
    host: str,
    port: int,
    writes: bool,
    names: tuple[str, ...],
    places: tuple[str, ...],
    lab: Lab,
) -> None:
    """Serve the lab as web pages: live experiments, runs with curves and logs, search, and SQL.

    The pages are read-only without --write. By default, only this machine can open them. With another --host,
    they require the printed token; each start creates a new one, unless JESTLAB_SERVE_TOKEN sets it. Ctrl-C
    stops the server; runs continue.
    """
    from jestlab.platform.lab.lab import SERVE_TOKEN, Lab
    from jestlab.platform.serve.server import serve

    if places and lab.root != Lab.find().root:
        raise UserError("--lab and --root exclude each other")

    def ready(url: str, access: Access) -> None:
        needed = writes or not access.open
        if as_json:
            print_json({"url": url, "token": access.token if needed else None})
        else:
            say(f"{url}?token={access.token}" if needed else url, fit=False)

    labs = [_lab_at(place) for place in places] or [lab]
    token = os.environ.get(SERVE_TOKEN)
    serve(labs, host=host, port=port, writes=writes, token=token, names=names, ready=ready)


def _lab_at(place: str) -> Lab:
    """Return the lab that `FOLDER[=URL]` names."""
    from jestlab.analysis.shared import store_in
    from jestlab.platform.lab.lab import Lab

    folder, *urls = re.split(r"=(?=[\w+]+://)", place, maxsplit=1)  # a folder's name may contain `=`
    default = store_in(Path(folder).expanduser().absolute())
    return Lab.find(folder, urls[0] if urls else f"sqlite:///{default}")
