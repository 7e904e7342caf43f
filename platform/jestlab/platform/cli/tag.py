"""`jestlab tag`: words by which experiments and runs are found."""

from __future__ import annotations

import json

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.lab import Lab

_EPILOG = """\b
SUBJECT is an experiment, experiment/run (with /seed where there are several),
or the first characters of a run's fingerprint.

\b
Example:
  jestlab tag quickstart keep
  jestlab tag quickstart/joint/1 best submitted
  jestlab tag quickstart/joint/1 best --remove
  jestlab query --view notes --where "kind = 'tag' and text = 'best'"
"""


@click.command("tag", epilog=_EPILOG)
@click.argument("name", metavar="SUBJECT")
@click.argument("names", metavar="[TAG]...", nargs=-1)
@click.option("--remove", is_flag=True, help="Take the tags away.")
@click.option("--json", "as_json", is_flag=True, help="Print all tags of SUBJECT as a JSON list.")
@lab_options
def command(name: str, names: tuple[str, ...], *, remove: bool, as_json: bool, lab: Lab) -> None:
    """Tag SUBJECT, and list its tags. What is tagged `keep`, `jestlab gc` lets lie."""
    from jestlab.platform.cli import naming
    from jestlab.platform.store import annotations
    from jestlab.platform.store.store import Store

    if remove and not names:
        raise click.UsageError("--remove needs the tags that are to go")
    store = Store.open(lab.store_url, create=False)
    subject = naming.annotated(store, name)
    if remove:
        annotations.remove_tags(store, subject, names)
    elif names:
        annotations.add_tags(store, subject, names)
    found = annotations.tags(store, subject)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        click.echo(" ".join(found) if found else f"no tags: jestlab tag {name} …")
