"""What may be wrong with a store, each finding with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine, and_, exists, func, inspect, select
from sqlalchemy.exc import DatabaseError

from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.store import address, backup, faults, schema
from jestlab.platform.store.engine import reading, writable
from jestlab.platform.store.sql import now
from jestlab.platform.store.states import RunState
from jestlab.platform.store.tables import Attempt, Base, Run

SILENT = timedelta(minutes=5)
"""A running attempt that was not heard of for so long has vanished."""

_MANY = 5
"""Findings of one kind that are told one by one; more are counted."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        check: What was looked at: file, schema, references, views, runs, folders.
        what: What is wrong.
        remedy: What to do.
    """

    check: str
    what: str
    remedy: str


def check(url: str, root: Path) -> list[Finding]:
    """Look a store over. Nothing is changed.

    Args:
        url: Of the store.
        root: The lab's folder; where there is none, runs' folders are not looked for.

    Raises:
        UserError: There is no store, or it cannot be read at all.
    """
    path = address.file(address.parse(url))
    if path is not None and not path.exists():
        raise UserError(f"no store at {path}: launch a study first, or give --root or --store")
    with backup.closing_engine(writable(url)) as engine:
        if damage := _damage(engine):
            return damage
        try:
            schema.ensure(engine, create=False)
        except schema.EmptyStore:
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
    """What SQLite finds wrong with its file. A PostgreSQL server watches over its own."""
    if engine.dialect.name != "sqlite":
        return []
    remedy = "restore a backup into a new file: jestlab db restore"
    try:
        with engine.connect() as connection:
            said = list(connection.exec_driver_sql(f"PRAGMA integrity_check({_MANY})").scalars())
    except DatabaseError as error:
        meaning = faults.meaning(error, engine.url)
        if meaning is None or isinstance(meaning, StoreUnreachable):
            raise meaning or error from error
        return [Finding("file", f"the file is damaged: {faults.said(error)}", remedy)]
    return [Finding("file", f"the file is damaged: {line}", remedy) for line in said if line != "ok"]


def _drift(connection: Connection) -> list[Finding]:
    """Tables, columns and constraints that somebody changed by hand."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    context = MigrationContext.configure(connection, opts={"compare_type": True})
    remedy = "restore a backup, or undo what was changed by hand"
    return [
        Finding("schema", f"the tables are not those of schema {schema.HEAD}: {_difference(item)}", remedy)
        for item in compare_metadata(context, Base.metadata)
    ]


def _has_every_column(connection: Connection) -> bool:
    """Whether what follows can be asked at all."""
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
    """Rows that refer to rows which are not there."""
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
    """Runs that are RUNNING in the store, and on no machine that is heard of."""
    heard = exists().where(
        Attempt.run_id == Run.id,
        Attempt.state.in_([RunState.PENDING, RunState.RUNNING]),
        Attempt.heartbeat_at > now() - SILENT,
    )
    last = select(func.max(Attempt.heartbeat_at)).where(Attempt.run_id == Run.id).scalar_subquery()
    rows = connection.execute(
        select(Run.directory, last.label("last"))
        .where(Run.state == RunState.RUNNING, ~heard)
        .order_by(Run.id)
    ).all()
    findings = []
    for row in rows:
        since = f"since {row.last:%Y-%m-%d %H:%M} UTC" if row.last else "at all"
        what = f"{row.directory} is RUNNING, but no worker was heard of {since}"
        findings.append(Finding("runs", what, "launch its study again"))
    return _counted(findings)


def _folders(connection: Connection, root: Path) -> list[Finding]:
    """Completed runs whose results are gone."""
    if not root.is_dir():
        return []
    done = select(Run.directory).where(Run.state == RunState.COMPLETED).order_by(Run.id)
    return _counted(
        [
            Finding(
                "folders",
                f"{directory} is COMPLETED, but there is no such folder in {root}",
                "bring it back, or give the --root that holds it",
            )
            for directory in connection.scalars(done)
            if not (root / directory).is_dir()
        ]
    )


def _counted(findings: list[Finding]) -> list[Finding]:
    """The first of many findings of one kind, and how many more there are."""
    if len(findings) <= _MANY:
        return findings
    first = findings[0]
    more = Finding(first.check, f"and {len(findings) - _MANY + 1} more", first.remedy)
    return [*findings[: _MANY - 1], more]
