"""Check a store, and bring it up to date."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy import (
    Connection,
    DateTime,
    Engine,
    and_,
    bindparam,
    exists,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import DatabaseError

from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.store import schema
from jestlab.platform.store.address import existing_file
from jestlab.platform.store.backup import back_up
from jestlab.platform.store.engine import (
    closing_engine,
    database_message,
    migrating,
    reading,
    user_error,
    writable,
)
from jestlab.platform.store.records import RunState
from jestlab.platform.store.tables import Attempt, Base, Run, now

SILENT = timedelta(minutes=5)
"""A running attempt whose last heartbeat is older than this has vanished."""

_MANY = 5
"""How many findings of one kind are listed; further ones are counted."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a store.

    Attributes:
        check: What was looked at: file, schema, references, views, runs, folders.
        what: What is wrong.
        remedy: What to do.
    """

    check: str
    what: str
    remedy: str


def check(url: str, root: Path) -> list[Finding]:
    """Check a store without changing it.

    Args:
        url: Of the store.
        root: The lab's folder; where there is none, runs' folders are not looked for.

    Raises:
        UserError: There is no store, or it cannot be read at all.
    """
    existing_file(url)
    with closing_engine(writable(url)) as engine:
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
        meaning = user_error(error, engine.url)
        if meaning is None or isinstance(meaning, StoreUnreachable):
            raise meaning or error from error
        return [Finding("file", f"the file is damaged: {database_message(error)}", remedy)]
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


# ---- upgrade

ALIVE = timedelta(seconds=60)
"""An attempt whose last heartbeat is younger than this is still at work."""


@dataclass(frozen=True)
class Upgrade:
    """What an upgrade did.

    Attributes:
        before: Revision of the store until now.
        after: Revision of the store from now on.
        views: Names of views that were made anew at the same revision.
        backup: Copy of the store as it was; None where nothing was changed, or on a server.
    """

    before: str
    after: str
    views: tuple[str, ...]
    backup: Path | None


def upgrade(url: str) -> Upgrade:
    """Bring a store to the newest schema, all or nothing. A SQLite file is backed up first, beside itself.

    Args:
        url: Of the store.

    Raises:
        UserError: There is no store, this code cannot upgrade it, or runs are at work.
    """
    path = existing_file(url)
    with closing_engine(writable(url)) as engine:
        with reading(engine) as connection:
            before = schema.revision(connection)
        if before is None or before not in schema.revisions():
            schema.ensure(engine, create=False)  # says what is wrong
        assert before is not None
        if before == schema.HEAD:
            return Upgrade(before, before, _fix_views(engine), None)
        with reading(engine) as connection:
            _refuse_while_at_work(connection)
        kept = None
        if path is not None:
            kept = path.with_name(f"{path.stem}-{before}-{now():%Y%m%dT%H%M%S%f}{path.suffix}")
            back_up(url, kept)
        schema.migrate(engine, schema.HEAD)
        return Upgrade(before, schema.HEAD, (), kept)


def _fix_views(engine: Engine) -> tuple[str, ...]:
    with migrating(engine) as connection:
        changed = schema.changed_views(connection)
        if changed:
            schema.remake_views(connection)
    return tuple(changed)


def _refuse_while_at_work(connection: Connection) -> None:
    """A worker of the older code would write what the new schema does not take."""
    statement = text(
        "SELECT host FROM attempt WHERE ended_at IS NULL AND state IN ('PENDING', 'RUNNING') "
        "AND heartbeat_at > :since"
    ).bindparams(bindparam("since", type_=DateTime()))
    hosts = list(connection.scalars(statement, {"since": now() - ALIVE}))
    if hosts:
        where = ", ".join(sorted({host for host in hosts if host})) or "a launcher"
        raise UserError(
            f"{len(hosts)} {'run is' if len(hosts) == 1 else 'runs are'} at work ({where}): "
            "stop them, or wait for their end, then upgrade"
        )
