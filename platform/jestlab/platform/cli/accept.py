"""`jestlab accept`: note that differences of code, data or versions between runs do not matter."""

from __future__ import annotations

from dataclasses import asdict

import click

from jestlab.analysis.mixing import names_of
from jestlab.platform.cli.naming import existing_store, pasted
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.changes import changes_of
from jestlab.platform.render import table
from jestlab.platform.store.judgments import accept, acceptances
from jestlab.platform.whoami import person
from jestlab.platform.words import on_one_line


@click.command(epilog=examples('accept ridge --reason "a comment alone"', "accept ridge"))
@click.argument("experiment")
@click.option("--reason", metavar="TEXT", help="Why the difference does not matter; without it, only list.")
@click.option("--author", metavar="NAME", help="Who says so  [default: git's user.name, else you]")
@json_option("Print what was accepted of EXPERIMENT as JSON.")
@lab_options
def accept_command(
    experiment: str, *, reason: str | None, author: str | None, as_json: bool, lab: Lab
) -> None:
    """Accept that runs of EXPERIMENT were made by other code, data or versions: nothing more is said of it.

    What differs today counts as equal from now on; the next change is told again. `jestlab table EXPERIMENT
    --explain` shows who accepted what, and why.
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
        say("nothing to accept: no difference of code, data or versions is known")
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
        say(f'nothing was accepted yet: jestlab accept {pasted(experiment)} --reason "…"')
