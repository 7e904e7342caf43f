"""`jestlab serve`: pages over everything that labs hold, live."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import SERVE_TOKEN, Lab


@click.command(
    epilog=examples(
        "serve",
        "serve --root ~/lab --port 9000",
        "serve --lab ~/mine --lab ~/theirs=postgresql://reader@server/results",
        "serve --write",
        "serve --host 0.0.0.0 --name lab.example.org",
    )
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8270, show_default=True,
              help="Port; 0 for a free one.")  # fmt: skip
@click.option(
    "--write", "writes", is_flag=True, help="Allow who has the token to cancel, retry and annotate."
)
@click.option("--name", "names", multiple=True, metavar="HOST",
              help="Further name, as of a proxy; reading then takes the token; repeatable.")  # fmt: skip
@click.option("--lab", "places", multiple=True, metavar="FOLDER[=URL]", type=click.Path(file_okay=False),
              help="Serve this lab, not --root; URL: of a store elsewhere; repeatable.")  # fmt: skip
@json_option("Print the address and the token as JSON, once it answers.")
@lab_options
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
    """Serve pages over the lab: experiments live, runs with curves and logs, searches, SQL.

    Pages read the store and write nothing, unless --write. They answer this machine alone; at another --host
    they take the token that is printed. The token is new with every start, or JESTLAB_SERVE_TOKEN. Ctrl-C
    ends the server and leaves runs alone.
    """
    from jestlab.platform.serve.access import Access
    from jestlab.platform.serve.server import serve

    if places and lab.root != Lab.find().root:
        raise UserError("--lab and --root: give one of them")
    labs = [_lab_at(place) for place in places] or [lab]

    def begun(url: str, access: Access) -> None:
        needed = writes or not access.open
        if as_json:
            print_json({"url": url, "token": access.token if needed else None})
            return
        say(f"{url}?token={access.token}" if needed else url, fit=False)

    token = os.environ.get(SERVE_TOKEN)
    serve(labs, host=host, port=port, writes=writes, token=token, names=names, begun=begun)


def _lab_at(place: str) -> Lab:
    """Find the lab that `FOLDER[=URL]` names."""
    folder, *urls = re.split(r"=(?=[\w+]+://)", place, maxsplit=1)  # a folder's name may have a =, too
    own = Path(folder).expanduser().absolute() / "results.db"
    return Lab.find(folder, urls[0] if urls else f"sqlite:///{own}")
