"""`jestlab note`: what people write about experiments and runs."""

from __future__ import annotations

import getpass
import json
import os
import subprocess

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.text import table
from jestlab.platform.lab import Lab

_EPILOG = """\b
SUBJECT is an experiment, experiment/run (with /seed where there are several),
or the first characters of a run's fingerprint.

\b
Example:
  jestlab note quickstart "seed 2 was run on the other machine"
  jestlab note quickstart/joint/1
"""


@click.command("note", epilog=_EPILOG)
@click.argument("name", metavar="SUBJECT")
@click.argument("text", required=False)
@click.option("--author", metavar="NAME", help="Who says so  [git's user.name, or the user].")
@click.option("--json", "as_json", is_flag=True, help="Print the notes as JSON.")
@lab_options
def command(name: str, text: str | None, *, author: str | None, as_json: bool, lab: Lab) -> None:
    """Write a note about SUBJECT, and list its notes; without TEXT, list them alone."""
    from jestlab.platform.cli import naming
    from jestlab.platform.store import annotations
    from jestlab.platform.store.store import Store

    store = Store.open(lab.store_url, create=False)
    subject = naming.annotated(store, name)
    if text is not None:
        annotations.add_note(store, subject, text, author or _author())
    found = annotations.notes(store, subject)
    if as_json:
        rows = [{"text": n.text, "author": n.author, "created_at": n.created_at.isoformat()} for n in found]
        click.echo(json.dumps(rows, ensure_ascii=False))
    elif found:
        cells = [[f"{n.created_at:%Y-%m-%d %H:%M}", _line(n.author), _line(n.text)] for n in found]
        click.echo(table(["written (UTC)", "by", "note"], cells))
    else:
        click.echo(f'no notes yet: jestlab note {name} "…"')


def _line(text: str) -> str:
    """A text on one line, whole."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _author() -> str:
    """As git calls this person, or the system."""
    try:
        said = subprocess.run(
            ["git", "config", "user.name"], capture_output=True, timeout=10, stdin=subprocess.DEVNULL
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    if said.strip():
        return said.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return str(os.getuid())
