"""`jestlab trust`: let an imported experiment be executed, after a look at what that is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict

import click

from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import few, print_json, say
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.render import table
from jestlab.platform.store import trust
from jestlab.platform.store.trust import Executed

_LONG = 160  # letters of a command


@click.command(epilog=examples("trust quickstart --dry-run", "trust quickstart"))
@click.argument("experiment")
@click.option("--dry-run", is_flag=True, help="Only show what would be executed.")
@json_option()
@lab_options
def trust_command(experiment: str, *, dry_run: bool, as_json: bool, lab: Lab) -> None:
    """Show what EXPERIMENT executes, which was imported from an archive, and let it be executed.

    That is what its runs execute, and the code that it names: rules and losses, figures and tables of its
    reports, an executor. Until then `jestlab retry` refuses it, and reports leave out figures and tables of
    its own; everything else shows it all the same. An experiment that was launched here needs no trust.
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
        say("it names this code, which is executed with them:")
        say(table(("USED AS", "CODE"), [(kind, one_line(name, _LONG)) for kind, name in code]))
    if origin is not None:
        is_trusted = origin.trusted_at is not None
        say(f"trusted since {origin.trusted_at} UTC" if is_trusted else "not trusted: nothing executes it")


def _rows(runs: Sequence[Executed]) -> list[tuple[str, str, str]]:
    """Return a row for each thing that is executed, with the runs that do."""
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for run in runs:
        what = (one_line(run.program, _LONG), one_line(words(run) or "", _LONG))
        labels.setdefault(what, {})[one_line(run.label, _LONG)] = None
    return [(*what, few(list(names))) for what, names in labels.items()]


def words(run: Executed) -> str | None:
    """Return the command of a run as a shell would write it, and where it runs; None if it executes none."""
    if "command" not in run.config:
        return None
    command, folder = run.config["command"], run.config.get("cwd")
    parts = command if isinstance(command, list) else [command]
    said = shlex.join(part if isinstance(part, str) else json.dumps(part) for part in parts)
    if isinstance(command, str):
        said = command
    return f"{said} (in {folder})" if folder else said
