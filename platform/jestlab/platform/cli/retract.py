"""`jestlab retract`: retract wrong results of a run and of the runs that depend on it."""

from __future__ import annotations

from dataclasses import asdict

import click

from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import table
from jestlab.platform.store.judgments import retract, retracted, undo_retraction
from jestlab.platform.whoami import person
from jestlab.platform.words import on_one_line

_EPILOG = f"""{naming.HELP}

\b
Examples:
  jestlab retract quickstart/reference/0 "wrong shards"
  jestlab retract quickstart/reference/0 --undo
  jestlab retract
"""


@click.command(epilog=_EPILOG)
@click.argument("name", type=RUN, metavar="[RUN]", required=False)
@click.argument("reason", required=False)
@click.option("--undo", "undone", is_flag=True, help="Undo the retraction of RUN.")
@click.option("--author", metavar="NAME", help="Your name  [default: git's user.name, or the user]")
@json_option("Print all retracted runs as JSON.")
@lab_options
def retract_command(
    name: str | None, reason: str | None, *, undone: bool, author: str | None, as_json: bool, lab: Lab
) -> None:
    """Retract the results of RUN and of all runs that depend on it; without RUN, list retracted runs.

    Nothing is deleted. Tables strike the results through, and claims count the runs as missing. To run them
    again, use `jestlab launch --rerun-retracted`.
    """
    store = naming.existing_store(lab, writes=name is not None)
    if name is not None:
        run = naming.run(store, name)
        if undone == (reason is not None):
            raise click.UsageError('expected the REASON: jestlab retract RUN "wrong shards", or --undo')
        if reason is None:
            undo_retraction(store, run.fingerprint)
        else:
            retract(store, run.fingerprint, reason, author or person())
    elif undone:
        raise click.UsageError("--undo: expected a RUN")
    found = retracted(store)
    if as_json:
        print_json([asdict(row) for row in found])
    elif found:
        rows = [
            [
                f"{row.experiment}/{row.label}/{row.seed}",
                "" if row.origin == row.fingerprint else f"depends on {row.origin[:8]}",
                *map(on_one_line, (row.reason, row.author)),
            ]
            for row in found
        ]
        say(table(["run", "cause", "reason", "by"], rows))
    else:
        say("no results are retracted")
