"""`jestlab note`, `tag`, `accept`, `retract`, and `trust`: people's statements about experiments and runs."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from jestlab.analysis.provenance.code import names_of
from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import EXPERIMENT, RUN, SUBJECT
from jestlab.platform.cli.options import RUN_HELP, examples, lab_json_options
from jestlab.platform.cli.output import Columns, say, show, show_rows
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.planning.changes import changes_of
from jestlab.platform.render import Block, table
from jestlab.platform.store import trust
from jestlab.platform.store.annotations import (
    accept,
    acceptances,
    add_note,
    add_tags,
    notes,
    remove_tags,
    retract,
    retracted,
    tags,
    undo_retraction,
)
from jestlab.platform.whoami import person
from jestlab.platform.words import few

_SUBJECT = f"SUBJECT is an experiment or a run.\n\n{RUN_HELP}\n\n"

_LONG = 160  # characters; longer commands are cut

_author = click.option(
    "--author", metavar="NAME", help="Your name.  [default: git's user.name, else your login]"
)


@click.command(
    epilog=_SUBJECT
    + examples('note quickstart "seed 2 was run on the other machine"', "note quickstart/joint/1")
)
@click.argument("name", type=SUBJECT, metavar="SUBJECT")
@click.argument("text", required=False)
@_author
@lab_json_options("Print the notes as JSON.")
def note_command(name: str, text: str | None, *, author: str | None, as_json: bool, lab: Lab) -> None:
    """Add a note to SUBJECT and list its notes; without TEXT, only list them."""
    store = naming.existing_store(lab, writes=text is not None)
    subject = naming.find_subject(store, name)
    if text is not None:
        add_note(store, subject, text, author or person())
    columns: Columns = {"written (UTC)": "created_at", "by": "author", "note": "text"}
    empty = f'no notes yet: jestlab note {naming.shell_name(name)} "…"'
    show_rows(as_json, notes(store, subject), columns, empty)


@click.command(
    epilog=_SUBJECT
    + examples(
        "tag quickstart keep",
        "tag quickstart/joint/1 best submitted",
        "tag quickstart/joint/1 best --remove",
        "query --where \"tag = 'best'\"",
    )
)
@click.argument("name", type=SUBJECT, metavar="SUBJECT")
@click.argument("names", metavar="[TAG]...", nargs=-1)
@click.option("--remove", is_flag=True, help="Remove the TAGs instead.")
@lab_json_options("Print all tags of SUBJECT as a JSON list.")
def tag_command(name: str, names: tuple[str, ...], *, remove: bool, as_json: bool, lab: Lab) -> None:
    """Add TAGs to SUBJECT and list its tags. `jestlab gc` never deletes runs or experiments tagged `keep`."""
    if remove and not names:
        raise click.UsageError("--remove: expected tags")
    store = naming.existing_store(lab, writes=bool(names))
    subject = naming.find_subject(store, name)
    if remove:
        remove_tags(store, subject, names)
    elif names:
        add_tags(store, subject, names, person())
    found = tags(store, subject)
    show(as_json, found, " ".join(found) or f"no tags yet: jestlab tag {naming.shell_name(name)} TAG")


@click.command(epilog=examples('accept ridge --reason "only a comment changed"', "accept ridge"))
@click.argument("experiment", type=EXPERIMENT)
@click.option(
    "--reason",
    metavar="TEXT",
    help="Why the differences do not matter; without it, only list those accepted.",
)
@_author
@lab_json_options("Print the accepted differences of EXPERIMENT as JSON.")
def accept_command(
    experiment: str, *, reason: str | None, author: str | None, as_json: bool, lab: Lab
) -> None:
    """Accept that the runs of EXPERIMENT were made with different code, data, or package versions.

    Warnings about these differences disappear from all studies with these runs. Later differences are
    reported again. `jestlab table EXPERIMENT --explain` lists accepted differences.
    """
    store = naming.existing_store(lab, writes=reason is not None)
    if reason is not None:
        if values := changes_of(store, experiment).values:
            accept(store, experiment, values, reason, author or person())
        else:
            say("nothing to accept: no differences of code, data, or package versions", err=True)
    columns: Columns = {
        "accepted (UTC)": "created_at",
        "by": "author",
        "difference": lambda row: names_of(row.accepted),
        "reason": "reason",
    }
    empty = f'no accepted differences: jestlab accept {naming.shell_name(experiment)} --reason "…"'
    show_rows(as_json, acceptances(store, experiment), columns, empty)


@click.command(
    epilog=f"{RUN_HELP}\n\n"
    + examples(
        'retract quickstart/reference/0 "wrong shards"', "retract quickstart/reference/0 --undo", "retract"
    )
)
@click.argument("name", type=RUN, metavar="[RUN]", required=False)
@click.argument("reason", required=False)
@click.option("--undo", is_flag=True, help="Undo the retraction of RUN.")
@_author
@lab_json_options("Print all retracted runs as JSON.")
def retract_command(
    name: str | None, reason: str | None, *, undo: bool, author: str | None, as_json: bool, lab: Lab
) -> None:
    """Retract the results of RUN and of all runs that depend on it; without RUN, list retracted runs.

    Nothing is deleted. Tables strike the results through, and claims count the runs as missing. To repeat the
    runs, use `jestlab launch --rerun-retracted`.
    """
    if undo != (name is not None and reason is None):
        raise click.UsageError('expected a REASON, or --undo: jestlab retract RUN "wrong shards"')
    store = naming.existing_store(lab, writes=name is not None)
    if name is not None:
        run = naming.find_run(store, name).fingerprint
        if reason is None:
            undo_retraction(store, run)
        else:
            retract(store, run, reason, author or person())
    columns: Columns = {
        "run": lambda row: f"{row.experiment}/{row.label}/{row.seed}",
        "cause": lambda row: "" if row.origin == row.fingerprint else f"depends on {row.origin[:8]}",
        "reason": "reason",
        "by": "author",
    }
    show_rows(as_json, retracted(store), columns, "no results are retracted")


@click.command(epilog=examples("trust quickstart --dry-run", "trust quickstart"))
@click.argument("experiment", type=EXPERIMENT)
@click.option("--dry-run", is_flag=True, help="Only show the code; do not trust it.")
@lab_json_options()
def trust_command(experiment: str, *, dry_run: bool, as_json: bool, lab: Lab) -> None:
    """Show the code that an imported EXPERIMENT executes, and trust it from now on.

    The code consists of the programs of its runs, custom rules and losses, a custom executor, and the custom
    figures and tables of its reports. Until you trust the experiment, `jestlab retry` refuses it, and reports
    omit those figures and tables. Experiments that were launched in this lab are always trusted.
    """
    store = naming.existing_store(lab, writes=not dry_run)
    if not dry_run:
        trust.trust(store, experiment)
    origin = trust.origin_of(store, experiment)
    runs = store.launched(experiment)
    about = {
        "experiment": experiment,
        "origin": origin and asdict(origin),
        "trusted": origin is None or origin.trusted_at is not None,
        "runs": [{"label": of, "program": p, "command": _command(config)} for of, p, config in runs],
        "code": [{"kind": kind, "name": name} for kind, name in trust.named_code(store, experiment)],
    }
    show(as_json, about, _executed_code(about))


def _executed_code(about: dict[str, Any]) -> Iterator[Block]:
    source, origin = "was launched here", about["origin"]
    if origin:
        archive = f"{origin['archive']} (sha256 {origin['sha256'][:12]})"
        source = f"was imported from {archive} at {origin['imported_at']} UTC"
    yield f"{about['experiment']} {source}; its runs execute:"
    labels: dict[tuple[str, str], dict[str, None]] = {}  # (program, command) → labels
    for run in about["runs"]:
        code = (one_line(run["program"], _LONG), one_line(run["command"] or "", _LONG))
        labels.setdefault(code, {})[one_line(run["label"], _LONG)] = None
    yield table(("program", "command", "runs"), [(*code, few(list(runs))) for code, runs in labels.items()])
    if about["code"]:
        yield "the experiment also executes this code:"
        yield table(("used as", "code"), [(c["kind"], one_line(c["name"], _LONG)) for c in about["code"]])
    if origin:
        since = origin["trusted_at"]
        yield f"trusted since {since} UTC" if since else "not trusted: no code is executed"


def _command(config: dict[str, Any]) -> str | None:
    """Return the command of a config in shell syntax, with its working directory; None without a command."""
    command, folder = config.get("command"), config.get("cwd")
    if isinstance(command, list):
        command = shlex.join(part if isinstance(part, str) else json.dumps(part) for part in command)
    return f"{command} (in {folder})" if command and folder else command
