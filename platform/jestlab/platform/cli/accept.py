"""`jestlab accept`: accept that runs were made with different code, data, or package versions."""

from __future__ import annotations

from dataclasses import asdict

import click

from jestlab.analysis.mixing import names_of
from jestlab.platform.cli.completion import EXPERIMENT
from jestlab.platform.cli.naming import existing_store, pasted
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.changes import changes_of
from jestlab.platform.render import table
from jestlab.platform.store.judgments import accept, acceptances
from jestlab.platform.whoami import person
from jestlab.platform.words import on_one_line


@click.command(epilog=examples('accept ridge --reason "only a comment changed"', "accept ridge"))
@click.argument("experiment", type=EXPERIMENT)
@click.option("--reason", metavar="TEXT", help="Why the difference does not matter. Without it, only list.")
@click.option("--author", metavar="NAME", help="Your name  [default: git's user.name, or the user]")
@json_option("Print the accepted differences of EXPERIMENT as JSON.")
@lab_options
def accept_command(
    experiment: str, *, reason: str | None, author: str | None, as_json: bool, lab: Lab
) -> None:
    """Accept that runs of EXPERIMENT were made with different code, data, or package versions.

    The warning about the present differences disappears in all studies with these runs. Later changes are
    reported again. `jestlab table EXPERIMENT --explain` lists accepted differences.
    """
    store = existing_store(lab, writes=reason is not None)
    values = changes_of(store, experiment).values if reason is not None else {}
    if reason is not None and values:
        accept(store, experiment, values, reason, author or person())
    found = acceptances(store, experiment)
    if as_json:
        print_json([asdict(row) | {"created_at": row.created_at.isoformat()} for row in found])
        return
    if reason is not None and not values:
        say("nothing to accept: no differences of code, data, or package versions")
    elif found:
        rows = [
            [
                f"{row.created_at:%Y-%m-%d %H:%M}",
                *map(on_one_line, (row.author, names_of(row.accepted), row.reason)),
            ]
            for row in found
        ]
        say(table(["accepted (UTC)", "by", "difference", "reason"], rows))
    else:
        say(f'no accepted differences: jestlab accept {pasted(experiment)} --reason "…"')
