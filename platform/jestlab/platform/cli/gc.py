"""`jestlab gc`: find and delete unreferenced files."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta

import click

from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.lab import gc
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import table

_GC_EPILOG = """\
Never deleted: runs that belong to an experiment, are tagged `keep` or have not ended, and the runs that they
need.

\b
Examples:
  jestlab gc
  jestlab gc --older-than 12h --delete
"""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _age(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    """Parse an age such as `90m`, `12h`, `1d` or `2w`."""
    match = re.fullmatch(r"(\d{1,5})([smhdw])", text)
    if match is None:
        raise click.BadParameter(f"invalid age {text!r}: expected 90m, 12h, 1d, 2w or the like")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command(epilog=_GC_EPILOG)
@click.option("--delete", is_flag=True, help="Delete what was found; without this, nothing is changed.")
@click.option(
    "--older-than",
    callback=_age,
    metavar="AGE",
    default="1d",
    show_default=True,
    help="Keep what is younger.",
)
@json_option()
@lab_options
def gc_command(delete: bool, older_than: timedelta, as_json: bool, lab: Lab) -> None:
    """List unreferenced files with their sizes, and delete them with --delete.

    These are runs that nothing refers to, folders that belong to no run, partial files, what jobs of
    Slurm have left, and datasets that can be made again and that no run reads.
    """
    lab.on_this_machine("gc")
    store = existing_store(lab, writes=delete)
    found = gc.collect(lab, store, older_than) if delete else gc.find(lab, store, older_than)
    garbage = [asdict(item) | {"path": item.path.relative_to(lab.root).as_posix()} for item in found]
    if as_json:
        print_json({"deleted": delete, "garbage": garbage})
    elif not found:
        say("nothing to collect")
    else:
        rows = [[item["kind"], item["path"], _bytes(item["size"]), item["reason"]] for item in garbage]
        say(table(["what", "where", "size", "why"], rows, right=(2,)))
        total = _bytes(sum(item.size for item in found))
        say(f"{total} deleted" if delete else f"{total} in total; to delete: jestlab gc --delete")


def _bytes(size: float) -> str:
    """A size in a few characters."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
