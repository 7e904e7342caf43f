"""`jestlab db`: care of the results store."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.lab import Lab

_EPILOG = """\b
Example:
  jestlab db check
  jestlab db upgrade
  jestlab db backup /safe/place/results.db
  jestlab db restore /safe/place/results.db --store postgresql://lab@server/results
"""

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(epilog=_EPILOG)
def command() -> None:
    """Upgrade, check, back up and restore the results store."""


@command.command(
    epilog="""\b
Example:
  jestlab db upgrade
"""
)
@_JSON
@lab_options
def upgrade(*, as_json: bool, lab: Lab) -> None:
    """Bring a store that an older jestlab made to the schema of this one.

    All of it happens or nothing. A SQLite file is copied first, and the copy stays beside it: to go back,
    put it in the place of the upgraded file. On a server, make a backup first.
    """
    from jestlab.platform.store.upgrade import upgrade

    done = upgrade(lab.store_url)
    if as_json:
        said = {
            "from": done.before,
            "to": done.after,
            "views": done.views,
            "backup": str(done.backup) if done.backup else None,
        }
        click.echo(json.dumps(said, ensure_ascii=False))
    elif done.before != done.after:
        click.echo(f"schema {done.before} → {done.after}")
        if done.backup:
            click.echo(f"as it was: {done.backup}")
    elif done.views:
        click.echo(f"schema {done.after}; made anew: {', '.join(done.views)}")
    else:
        click.echo(f"schema {done.after} already: nothing to do")


@command.command(
    epilog="""\b
Example:
  jestlab db check
  jestlab db check --json
"""
)
@_JSON
@lab_options
@click.pass_context
def check(context: click.Context, *, as_json: bool, lab: Lab) -> None:
    """Look the store over: file, schema, references, views, runs and their folders.

    Changes nothing. Exit code: 0 all is well, 1 something is wrong; each line says what to do.
    """
    from jestlab.platform.store.address import parse, shown
    from jestlab.platform.store.checks import check

    findings = check(lab.store_url, lab.root)
    if as_json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        click.echo(json.dumps({"sound": not findings, "findings": rows}, ensure_ascii=False))
    else:
        for finding in findings:
            click.echo(f"{finding.check}: {finding.what}: {finding.remedy}")
        if not findings:
            click.echo(f"sound: {shown(parse(lab.store_url))}")
    context.exit(1 if findings else 0)


@command.command(
    epilog="""\b
Example:
  jestlab db backup /safe/place/results.db
"""
)
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@_JSON
@lab_options
def backup(path: Path, *, as_json: bool, lab: Lab) -> None:
    """Copy the store, whatever database it is in, as it is now into the new SQLite file PATH.

    Runs may go on meanwhile. The copy is a store: --store sqlite:///PATH reads it.
    """
    from jestlab.platform.store.backup import back_up

    back_up(lab.store_url, path)
    size = path.stat().st_size
    said = {"path": str(path), "bytes": size}
    click.echo(json.dumps(said, ensure_ascii=False) if as_json else f"{path} ({size / 1e6:.1f} MB)")


@command.command(
    epilog="""\b
Example:
  jestlab db restore /safe/place/results.db --store postgresql://lab@server/results
"""
)
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_JSON
@lab_options
def restore(path: Path, *, as_json: bool, lab: Lab) -> None:
    """Fill an empty database, or a SQLite file that is not there yet, with the backup PATH.

    So a store moves from a file to a server, too.
    """
    from jestlab.platform.store.address import parse, shown
    from jestlab.platform.store.backup import restore

    restore(path, lab.store_url)
    place = shown(parse(lab.store_url))
    click.echo(json.dumps({"store": place}, ensure_ascii=False) if as_json else f"restored: {place}")
