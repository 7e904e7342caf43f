"""Check a store, and bring its views up to date."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine, and_, exists, func, inspect, select

from jestlab.analysis.connection import SCHEMA
from jestlab.platform.errors import StoreError, UserError
from jestlab.platform.store import schema
from jestlab.platform.store.address import existing_file
from jestlab.platform.store.engine import (
    DEFINING,
    closing_engine,
    damage_of,
    one_at_a_time,
    read_only,
    reading,
    writable,
    writing,
)
from jestlab.platform.store.records import ADOPTED, LIVE, RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.tables import Attempt, Base, Run

SILENT = timedelta(minutes=5)
"""A running attempt whose last heartbeat is older has vanished."""

_MANY = 5
"""How many findings of one kind are listed; further ones are counted."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a store.

    Attributes:
        check: What was checked: file, schema, references, views, runs or folders.
        what: What is wrong.
        remedy: What to do.
    """

    check: str
    what: str
    remedy: str


def check(url: str, root: Path) -> list[Finding]:
    """Check a store without changing it; where `root` does not exist, runs' folders are not looked for.

    Raises:
        UserError: There is no store, or it cannot be read at all.
    """
    # On a server, views are compared through temporary ones.
    with closing_engine(writable(url) if existing_file(url) is None else read_only(url)) as engine:
        if damage := _damage(engine):
            return damage
        try:
            schema.ensure(engine, create=False)
        except (schema.EmptyStore, StoreError):
            raise
        except UserError as error:
            what, _, remedy = str(error).rpartition(": ")
            return [Finding("schema", what, remedy)]
        with reading(engine) as connection:
            found = _drift(connection)
            if _has_every_column(connection):
                found += [*_orphans(connection), *_vanished(connection), *_folders(connection, root)]
                found += _views(engine)
        return found


def _damage(engine: Engine) -> list[Finding]:
    """Return what SQLite finds wrong with its file. A PostgreSQL server checks its own."""
    if engine.dialect.name != "sqlite":
        return []
    remedy = "restore a backup into a new file: jestlab db restore"
    try:
        with reading(engine) as connection:
            said = list(connection.exec_driver_sql(f"PRAGMA integrity_check({_MANY})").scalars())
    except StoreError as error:
        if (damage := damage_of(error)) is None:
            raise
        return [Finding("file", f"the file is damaged: {damage}", remedy)]
    return [Finding("file", f"the file is damaged: {line}", remedy) for line in said if line != "ok"]


def _drift(connection: Connection) -> list[Finding]:
    """Find tables, columns and constraints that somebody changed by hand."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    context = MigrationContext.configure(connection, opts={"compare_type": True})
    remedy = "restore a backup, or undo what was changed by hand"
    return [
        Finding("schema", f"the tables are not those of schema {SCHEMA}: {_difference(item)}", remedy)
        for item in compare_metadata(context, Base.metadata)
    ]


def _has_every_column(connection: Connection) -> bool:
    """Whether the tables hold all that the other checks read."""
    inspector = inspect(connection)
    there = set(inspector.get_table_names())
    return all(
        name in there
        and set(table.columns.keys()) <= {column["name"] for column in inspector.get_columns(name)}
        for name, table in Base.metadata.tables.items()
    )


def _difference(item: object) -> str:
    """One of Alembic's differences in short: what would have to be done."""
    while isinstance(item, list):
        item = item[0]
    assert isinstance(item, tuple)
    return " ".join(
        str(getattr(part, "name", part)) for part in item if part is not None and not isinstance(part, dict)
    )


def _orphans(connection: Connection) -> Iterator[Finding]:
    """Find rows that refer to missing rows."""
    for table in Base.metadata.sorted_tables:
        for constraint in table.foreign_key_constraints:
            other = constraint.referred_table.alias()
            same = and_(*(element.parent == other.c[element.column.name] for element in constraint.elements))
            given = and_(*(column.is_not(None) for column in constraint.columns))
            lost = select(func.count()).select_from(table).where(given, ~exists().where(same))
            to = constraint.referred_table.name
            if count := connection.scalar(lost):
                yield Finding(
                    "references",
                    f"{count} of the rows of {table.name} refer to no row of {to}",
                    f"restore a backup, or DELETE FROM {table.name} what has no meaning any more",
                )


def _views(engine: Engine) -> list[Finding]:
    with engine.connect() as connection, connection.begin() as transaction:
        changed = schema.changed_views(connection)
        transaction.rollback()
    return [
        Finding("views", f"the view {name} is not the one of this code", "run jestlab db upgrade")
        for name in changed
    ]


def _vanished(connection: Connection) -> list[Finding]:
    """Find runs that are RUNNING in the store without a recent heartbeat."""
    heard = exists().where(
        Attempt.run_id == Run.id,
        Attempt.state.in_(LIVE),
        Attempt.heartbeat_at > now() - SILENT,
    )
    last = select(func.max(Attempt.heartbeat_at)).where(Attempt.run_id == Run.id).scalar_subquery()
    running = select(Run.directory, last).where(Run.state == RunState.RUNNING, ~heard).order_by(Run.id)
    findings = []
    for directory, beat in connection.execute(running):
        since = f"since {beat:%Y-%m-%d %H:%M} UTC" if beat else "at all"
        what = f"{directory} is RUNNING, but no worker was heard of {since}"
        findings.append(Finding("runs", what, "launch its study again"))
    return _counted(findings)


def _folders(connection: Connection, root: Path) -> list[Finding]:
    """Find completed runs whose folders are gone."""
    if not root.is_dir():
        return []
    here = (Run.state == RunState.COMPLETED) & (Run.program != ADOPTED)  # an adopted run has no folder
    done = select(Run.directory).where(here).order_by(Run.id)
    missing = [directory for directory in connection.scalars(done) if not (root / directory).is_dir()]
    remedy = "bring it back, or give the --root that holds it"
    what = f"is COMPLETED, but there is no such folder in {root}"
    return _counted([Finding("folders", f"{directory} {what}", remedy) for directory in missing])


def _counted(findings: list[Finding]) -> list[Finding]:
    """The first of many findings of one kind, and how many more there are."""
    if len(findings) <= _MANY:
        return findings
    first = findings[0]
    more = Finding(first.check, f"and {len(findings) - _MANY + 1} more", first.remedy)
    return [*findings[: _MANY - 1], more]


def upgrade(url: str) -> list[str]:
    """Recreate the views of a store that aren't those of this code.

    Returns:
        Their names.

    Raises:
        UserError: There is no store, or it has another schema.
    """
    existing_file(url)
    with closing_engine(writable(url)) as engine:
        schema.ensure(engine, create=False)
        with writing(engine) as connection:
            one_at_a_time(connection, DEFINING)
            if changed := schema.changed_views(connection):
                schema.make_views(connection)
    return changed
