"""`jestlab note` and `jestlab tag`: notes and tags of experiments and runs."""

from __future__ import annotations

import click

from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import SUBJECT, TAG
from jestlab.platform.cli.options import json_option, lab_options
from jestlab.platform.cli.output import print_json, say, show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import table
from jestlab.platform.store.annotations import add_note, add_tags, notes, remove_tags, tags
from jestlab.platform.whoami import person
from jestlab.platform.words import on_one_line

_SUBJECT = f"""SUBJECT is an experiment or a run.

{naming.HELP}

\b
Examples:"""


@click.command(
    epilog=f"""{_SUBJECT}
  jestlab note quickstart "seed 2 was run on the other machine"
  jestlab note quickstart/joint/1
"""
)
@click.argument("name", type=SUBJECT, metavar="SUBJECT")
@click.argument("text", required=False)
@click.option("--author", metavar="NAME", help="Author of the note  [default: git's user.name, or the user]")
@json_option("Print the notes as JSON.")
@lab_options
def note_command(name: str, text: str | None, *, author: str | None, as_json: bool, lab: Lab) -> None:
    """Add a note to SUBJECT and list its notes; without TEXT, only list them."""
    store = naming.existing_store(lab, writes=text is not None)
    subject = naming.subject(store, name)
    if text is not None:
        add_note(store, subject, text, author or person())
    found = notes(store, subject)
    if as_json:
        print_json([n._asdict() | {"created_at": n.created_at.isoformat()} for n in found])
    elif found:
        cells = [
            [f"{n.created_at:%Y-%m-%d %H:%M}", on_one_line(n.author), on_one_line(n.text)] for n in found
        ]
        say(table(["written (UTC)", "by", "note"], cells))
    else:
        say(f'no notes yet: jestlab note {naming.pasted(name)} "…"')


@click.command(
    epilog=f"""{_SUBJECT}
  jestlab tag quickstart keep
  jestlab tag quickstart/joint/1 best submitted
  jestlab tag quickstart/joint/1 best --remove
  jestlab query --where "tag = 'best'"
"""
)
@click.argument("name", type=SUBJECT, metavar="SUBJECT")
@click.argument("names", type=TAG, metavar="[TAG]...", nargs=-1)
@click.option("--remove", is_flag=True, help="Remove the tags.")
@json_option("Print all tags of SUBJECT as a JSON list.")
@lab_options
def tag_command(name: str, names: tuple[str, ...], *, remove: bool, as_json: bool, lab: Lab) -> None:
    """Tag SUBJECT and list its tags. `jestlab gc` never deletes runs and experiments tagged `keep`."""
    if remove and not names:
        raise click.UsageError("--remove: expected tags")
    store = naming.existing_store(lab, writes=bool(names))
    subject = naming.subject(store, name)
    if remove:
        remove_tags(store, subject, names)
    elif names:
        add_tags(store, subject, names, person())
    found = tags(store, subject)
    show(as_json, found, " ".join(found) if found else f"no tags yet: jestlab tag {naming.pasted(name)} TAG")
