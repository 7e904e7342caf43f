"""`jestlab trust`: show the code that an imported experiment executes, and trust it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict

import click

from jestlab.platform.cli.completion import EXPERIMENT
from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.render import table
from jestlab.platform.store import trust
from jestlab.platform.store.trust import Executed
from jestlab.platform.words import few

_LONG = 160  # longest command that is shown


@click.command(epilog=examples("trust quickstart --dry-run", "trust quickstart"))
@click.argument("experiment", type=EXPERIMENT)
@click.option("--dry-run", is_flag=True, help="Only show the code.")
@json_option()
@lab_options
def trust_command(experiment: str, *, dry_run: bool, as_json: bool, lab: Lab) -> None:
    """Show the code that the imported EXPERIMENT executes, and trust it.

    The code includes the programs of its runs, custom rules and losses, custom figures and tables of its
    reports, and a custom executor. Before an imported experiment is trusted, `jestlab retry` refuses it, and
    reports omit its custom figures and tables. Experiments that were launched here are always trusted.
    """
    store = existing_store(lab, writes=not dry_run)
    origin = trust.origin_of(store, experiment)
    runs = trust.executed(store, experiment)
    code = trust.named_code(store, experiment)
    if not dry_run:
        trust.trust(store, experiment)
        origin = trust.origin_of(store, experiment)
    if as_json:
        print_json(
            {
                "experiment": experiment,
                "origin": None if origin is None else asdict(origin),
                "trusted": origin is None or origin.trusted_at is not None,
                "runs": [{"label": run.label, "program": run.program, "command": words(run)} for run in runs],
                "code": [{"kind": kind, "name": name} for kind, name in code],
            }
        )
        return
    came = (
        "was launched here"
        if origin is None
        else f"was imported from {origin.archive} (sha256 {origin.sha256[:12]}) at {origin.imported_at} UTC"
    )
    say(f"{experiment} {came}; its runs execute:")
    say(table(("PROGRAM", "COMMAND", "RUNS"), _rows(runs)))
    if code:
        say("it also executes this code:")
        say(table(("USED AS", "CODE"), [(kind, one_line(name, _LONG)) for kind, name in code]))
    if origin is not None:
        is_trusted = origin.trusted_at is not None
        say(f"trusted since {origin.trusted_at} UTC" if is_trusted else "not trusted: no code is executed")


def _rows(runs: Sequence[Executed]) -> list[tuple[str, str, str]]:
    """Return a row for each program and command, with its runs."""
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for run in runs:
        code = (one_line(run.program, _LONG), one_line(words(run) or "", _LONG))
        labels.setdefault(code, {})[one_line(run.label, _LONG)] = None
    return [(*code, few(list(names))) for code, names in labels.items()]


def words(run: Executed) -> str | None:
    """Return the command of a run in shell syntax, with its folder; None without a command."""
    if "command" not in run.config:
        return None
    command, folder = run.config["command"], run.config.get("cwd")
    parts = command if isinstance(command, list) else [command]
    text = shlex.join(part if isinstance(part, str) else json.dumps(part) for part in parts)
    if isinstance(command, str):
        text = command
    return f"{text} (in {folder})" if folder else text
