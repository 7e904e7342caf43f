"""`jestlab gc`: find and delete files that nothing in the lab refers to."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click
from rich.filesize import decimal

from jestlab.platform.cli.options import lab_json_options
from jestlab.platform.cli.output import show
from jestlab.platform.errors import UserError
from jestlab.platform.render import Block, table

if TYPE_CHECKING:
    from jestlab.platform.lab.lab import Lab

_EPILOG = """\
Never deleted: runs in an experiment, runs tagged `keep`, unfinished runs, and the dependencies of these.

\b
Examples:
  jestlab gc
  jestlab gc --older-than 12h --delete
"""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _age(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,5})([smhdw])", text)
    if match is None:
        raise click.BadParameter(f"invalid age {text!r}: expected 90m, 12h, 1d, or 2w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command(epilog=_EPILOG)
@click.option("--delete", is_flag=True, help="Delete the files instead of only listing them.")
@click.option("--older-than", callback=_age, metavar="AGE", default="1d", show_default=True,
              help="Minimum age; newer files and runs are kept.")  # fmt: skip
@lab_json_options()
def gc_command(delete: bool, older_than: timedelta, as_json: bool, lab: Lab) -> None:
    """List unreferenced files with their sizes, or delete them with --delete.

    Unreferenced are: runs that are in no experiment, folders that belong to no run, partially written files,
    job files of ended Slurm jobs, and generated datasets that no run reads.
    """
    from jestlab.platform.cli.naming import existing_store
    from jestlab.platform.lab import gc

    lab.on_this_machine("gc")
    store = existing_store(lab, writes=delete)
    search = gc.collect if delete else gc.find
    found = search(lab, store, older_than, generated_datasets)
    garbage = [asdict(item) | {"path": item.path.relative_to(lab.root).as_posix()} for item in found]
    rows = [(each["kind"], each["path"], decimal(each["size"]), each["reason"]) for each in garbage]
    total = decimal(sum(item.size for item in found))
    end = "deleted" if delete else "in total; to delete: jestlab gc --delete"
    listed: list[Block] = [table(["what", "where", "size", "why"], rows, right=(2,)), f"{total} {end}"]
    show(as_json, {"deleted": delete, "garbage": garbage}, listed if found else "nothing to delete")


def generated_datasets(program: str, config: str) -> set[str] | None:
    """Return the names of the generated datasets that a run reads; None if unknown.

    Args:
        program: The run's program.
        config: The run's config, as JSON.
    """
    from pydantic import ValidationError

    from jestlab.models.config import DataConfig
    from jestlab.models.data.datasets import made_names
    from jestlab.platform import programs
    from jestlab.platform.store.records import ADOPTED

    if program == ADOPTED:
        return set()
    try:
        found = programs.get(program)
        read = found.read(json.loads(config)) if found.schema is not None else None
    except (UserError, ValidationError):
        return None
    if read is None:
        return None
    return made_names(read) if isinstance(read, DataConfig) else set()
