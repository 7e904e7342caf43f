"""`jestlab db`: check, back up, and restore the results store."""

from dataclasses import asdict
from pathlib import Path

import click

from jestlab.platform.cli import SubcommandGroup
from jestlab.platform.cli.options import FILE, examples, lab_json_options
from jestlab.platform.cli.output import print_json, say, show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import schema
from jestlab.platform.store.address import parse_url, shown_url
from jestlab.platform.store.backup import back_up
from jestlab.platform.store.backup import restore as restore_backup
from jestlab.platform.store.views import VIEWS


@click.group(
    cls=SubcommandGroup,
    epilog=examples(
        "db check",
        "db upgrade",
        "db backup /safe/place/results.db",
        "db restore backup.db --store postgresql://lab@server/results",
    ),
)
def db_command() -> None:
    """Check, back up, and restore the results store, the database of a lab."""


@db_command.command(epilog=examples("db upgrade"))
@lab_json_options()
def upgrade(*, as_json: bool, lab: Lab) -> None:
    """Recreate the store's views for this version of jestlab. Tables and their data do not change."""
    schema.upgrade(lab.store_url)
    show(as_json, {"views": list(VIEWS)}, "views recreated")


@db_command.command(epilog=examples("db check", "db check --json"))
@lab_json_options()
@click.pass_context
def check(context: click.Context, *, as_json: bool, lab: Lab) -> None:
    """Check the store: file, schema, references, views, runs, and their folders. Writes nothing.

    Each line names a problem and its remedy. Exit code: 0 without problems, otherwise 1.
    """
    findings = schema.check(lab.store_url, lab.root)
    if as_json:
        print_json({"sound": not findings, "findings": list(map(asdict, findings))})
    else:
        for finding in findings:
            say(f"{finding.check}: {finding.what}: {finding.remedy}")
        if not findings:
            say(f"sound: {shown_url(parse_url(lab.store_url))}")
    context.exit(1 if findings else 0)


@db_command.command(epilog=examples("db backup /safe/place/results.db"))
@click.argument("path", type=FILE)
@lab_json_options()
def backup(path: Path, *, as_json: bool, lab: Lab) -> None:
    """Copy the store, in any kind of database, to the new SQLite file PATH.

    Runs can continue during the copy. To use the copy as a store, give --store sqlite:///PATH.
    """
    back_up(lab.store_url, path)
    size = path.stat().st_size
    show(as_json, {"path": str(path), "bytes": size}, f"{path} ({size / 1e6:.1f} MB)")


@db_command.command(epilog=examples("db restore backup.db --store postgresql://lab@server/results"))
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@lab_json_options()
def restore(path: Path, *, as_json: bool, lab: Lab) -> None:
    """Copy the backup PATH into a new store: an empty database or a SQLite file that does not exist yet.

    Use this also to move a store from a file to a database server.
    """
    restore_backup(path, lab.store_url)
    address = shown_url(parse_url(lab.store_url))
    show(as_json, {"store": address}, f"restored: {address}")
