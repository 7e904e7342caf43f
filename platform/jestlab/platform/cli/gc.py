"""`jestlab gc`: what a lab can do without."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.text import table
from jestlab.platform.lab import Lab

if TYPE_CHECKING:
    from jestlab.platform.garbage import Garbage

_EPILOG = """\b
Kept is what stands in an experiment, is tagged `keep` or is not over, and what
such runs need.

\b
Example:
  jestlab gc
  jestlab gc --older-than 12h --delete
"""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _age(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    """`90m`, `12h`, `1d`, `2w`."""
    match = re.fullmatch(r"(\d{1,5})([smhdw])", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no age: write 90m, 12h, 1d or 2w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command("gc", epilog=_EPILOG)
@click.option("--delete", is_flag=True, help="Delete it; without this, nothing is changed.")
@click.option(
    "--older-than",
    callback=_age,
    metavar="AGE",
    default="1d",
    show_default=True,
    help="What is younger stays.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@lab_options
def command(delete: bool, older_than: timedelta, as_json: bool, lab: Lab) -> None:
    """Show what may go, with its size: runs that nothing refers to, folders of no run, half-made files, and
    datasets that can be made again and that no run reads."""
    from jestlab.platform import garbage
    from jestlab.platform.store.store import Store

    lab.on_this_machine("gc")
    store = Store.open(lab.store_url, create=False)
    found = garbage.collect(lab, store, older_than) if delete else garbage.find(lab, store, older_than)
    if as_json:
        click.echo(json.dumps({"deleted": delete, "garbage": [_as_data(item, lab) for item in found]}))
    elif not found:
        click.echo("nothing to collect")
    else:
        rows = [[item.kind, _place(item, lab), _bytes(item.size), item.reason] for item in found]
        click.echo(table(["what", "where", "size", "why"], rows, right=(2,)))
        total = _bytes(sum(item.size for item in found))
        click.echo(f"{total} deleted" if delete else f"{total} in all; to delete them: jestlab gc --delete")


def _as_data(item: Garbage, lab: Lab) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "path": _place(item, lab),
        "size": item.size,
        "reason": item.reason,
        "fingerprint": item.fingerprint,
    }


def _place(item: Garbage, lab: Lab) -> str:
    return item.path.relative_to(lab.root).as_posix()


def _bytes(size: float) -> str:
    """A size in a few characters."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
