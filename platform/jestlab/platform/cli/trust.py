"""`jestlab trust`: show the code that an imported experiment executes, and trust it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from jestlab.platform.cli.completion import EXPERIMENT
from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.render import Block, table
from jestlab.platform.store import trust
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
    if not dry_run:
        trust.trust(store, experiment)
    origin = trust.origin_of(store, experiment)
    runs = trust.executed(store, experiment)
    about = {
        "experiment": experiment,
        "origin": origin and asdict(origin),
        "trusted": origin is None or origin.trusted_at is not None,
        "runs": [{"label": r.label, "program": r.program, "command": _command(r.config)} for r in runs],
        "code": [{"kind": kind, "name": name} for kind, name in trust.named_code(store, experiment)],
    }
    show(as_json, about, _blocks(about))


def _blocks(about: dict[str, Any]) -> Iterator[Block]:
    origin = about["origin"]
    came = "was launched here"
    if origin:
        sha256 = origin["sha256"][:12]
        came = f"was imported from {origin['archive']} (sha256 {sha256}) at {origin['imported_at']} UTC"
    yield f"{about['experiment']} {came}; its runs execute:"
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for run in about["runs"]:
        code = (one_line(run["program"], _LONG), one_line(run["command"] or "", _LONG))
        labels.setdefault(code, {})[one_line(run["label"], _LONG)] = None
    yield table(("PROGRAM", "COMMAND", "RUNS"), [(*code, few(list(runs))) for code, runs in labels.items()])
    if about["code"]:
        yield "it also executes this code:"
        yield table(("USED AS", "CODE"), [(c["kind"], one_line(c["name"], _LONG)) for c in about["code"]])
    if origin:
        since = origin["trusted_at"]
        yield f"trusted since {since} UTC" if since else "not trusted: no code is executed"


def _command(config: dict[str, Any]) -> str | None:
    """Return the command of a config in shell syntax, with its folder; None without a command."""
    command, folder = config.get("command"), config.get("cwd")
    if isinstance(command, list):
        command = shlex.join(part if isinstance(part, str) else json.dumps(part) for part in command)
    return f"{command} (in {folder})" if command and folder else command
