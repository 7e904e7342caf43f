"""`jestlab db`: upgrade, check, back up and restore the results store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import maintenance
from jestlab.platform.store.address import parse_url, shown_url
from jestlab.platform.store.backup import back_up
from jestlab.platform.store.backup import restore as restore_backup

_EPILOG = examples(
    "db check",
    "db upgrade",
    "db backup /safe/place/results.db",
    "db restore /safe/place/results.db --store postgresql://lab@server/results",
)


@click.group(epilog=_EPILOG)
def command() -> None:
    """Upgrade, check, back up and restore the results store."""


@command.command(epilog=examples("db upgrade"))
@json_option()
@lab_options
def upgrade(*, as_json: bool, lab: Lab) -> None:
    """Upgrade a store that an older jestlab made to the current schema, all or nothing.

    A SQLite file is copied first, and the copy stays beside it: to go back, replace the upgraded file by it.
    On a database server, make a backup first.
    """
    done = maintenance.upgrade(lab.store_url)
    if as_json:
        said = {
            "from": done.before,
            "to": done.after,
            "views": done.views,
            "backup": str(done.backup) if done.backup else None,
        }
        print_json(said)
    elif done.before != done.after:
        click.echo(f"schema {done.before} → {done.after}")
        if done.backup:
            click.echo(f"copy of the old store: {done.backup}")
    elif done.views:
        click.echo(f"schema {done.after}; views recreated: {', '.join(done.views)}")
    else:
        click.echo(f"nothing to do: the schema is {done.after} already")


@command.command(epilog=examples("db check", "db check --json"))
@json_option()
@lab_options
@click.pass_context
def check(context: click.Context, *, as_json: bool, lab: Lab) -> None:
    """Check the store: file, schema, references, views, runs and their folders. Changes nothing.

    Exit code: 0 all is well, 1 something is wrong; each line says what to do.
    """
    findings = maintenance.check(lab.store_url, lab.root)
    if as_json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        print_json({"sound": not findings, "findings": rows})
    else:
        for finding in findings:
            click.echo(f"{finding.check}: {finding.what}: {finding.remedy}")
        if not findings:
            click.echo(f"sound: {shown_url(parse_url(lab.store_url))}")
    context.exit(1 if findings else 0)


@command.command(epilog=examples("db backup /safe/place/results.db"))
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@json_option()
@lab_options
def backup(path: Path, *, as_json: bool, lab: Lab) -> None:
    """Copy the store, from any kind of database, to the new SQLite file PATH.

    Runs may continue meanwhile. The copy is a store itself: --store sqlite:///PATH reads it.
    """
    back_up(lab.store_url, path)
    size = path.stat().st_size
    show(as_json, {"path": str(path), "bytes": size}, f"{path} ({size / 1e6:.1f} MB)")


@command.command(epilog=examples("db restore /safe/place/results.db --store postgresql://lab@server/results"))
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option()
@lab_options
def restore(path: Path, *, as_json: bool, lab: Lab) -> None:
    """Restore the backup PATH into an empty database or a new SQLite file.

    This also moves a store from a file to a database server.
    """
    restore_backup(path, lab.store_url)
    address = shown_url(parse_url(lab.store_url))
    show(as_json, {"store": address}, f"restored: {address}")
