"""A store's schema: created with its version, checked when the store is opened, and checked for problems.

It is recorded as an Alembic revision, from which a first migration can start. NOTE: to change a table on
SQLite, Alembic copies it and drops the old one. Unless foreign keys are off, this deletes rows that refer to
it.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine, exists, func, insert, inspect, select, text
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.exc import DBAPIError

from jestlab.analysis.connection import SCHEMA, other_version
from jestlab.platform.errors import StoreError, StoreMissing, UserError
from jestlab.platform.store.address import existing_file, shown_url
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
from jestlab.platform.store.tables import AttemptRow, Base, IdentityRow, RunRow
from jestlab.platform.store.views import VIEWS


class EmptyStore(StoreMissing):
    """The database exists and holds no tables."""


def ensure(engine: Engine, create: bool) -> None:
    """Check that the store has this version's schema; if `create`, create it in an empty database.

    Raises:
        EmptyStore: The database is empty, and `create` is False.
        UserError: The store has another version, or the database belongs to another application.
    """
    with reading(engine) as connection:
        version = revision(connection)
        tables = [] if version else inspect(connection).get_table_names()
    if version == SCHEMA:
        return
    place = f"the store {shown_url(engine.url)}"
    if version is None:
        if tables and "alembic_version" not in tables:
            raise UserError(f"{place} holds other tables ({tables[0]}, …): use another database for --store")
        if not create:
            raise EmptyStore(f"{place} is empty: launch a study first, or use another --root or --store")
        _create(engine)
    else:
        raise UserError(f"{place} {other_version(version)}")


def _create(engine: Engine) -> None:
    """Create tables and views, all or nothing, even if several processes do so at the same time."""
    with writing(engine) as connection:
        one_at_a_time(connection, DEFINING)
        if revision(connection) is not None:
            return
        Base.metadata.create_all(connection, checkfirst=False)
        connection.execute(insert(IdentityRow).values(id=uuid.uuid4().hex))
        # As Alembic creates it.
        table = "version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
        connection.execute(text(f"CREATE TABLE IF NOT EXISTS alembic_version ({table})"))
        connection.execute(text("INSERT INTO alembic_version VALUES (:version)"), {"version": SCHEMA})
        make_views(connection)


def make_views(connection: Connection) -> None:
    """Create every view, replacing other definitions."""
    for name, view in VIEWS.items():
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))
        connection.execute(text(f"CREATE VIEW {name} AS {view.definition(connection.dialect.name)}"))


def revision(connection: Connection) -> str | None:
    """Return the schema's revision; None if the database has none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


# ---- checks

SILENT = timedelta(minutes=5)
"""A running attempt whose last heartbeat is older counts as lost."""

_MOST = 5  # findings of one kind that are listed


@dataclass(frozen=True)
class StoreProblem:
    """A problem of a store.

    Attributes:
        check: The check: file, schema, references, views, runs, or folders.
        what: The problem.
        remedy: How to fix it.
    """

    check: str
    what: str
    remedy: str


def check(url: str, root: Path) -> list[StoreProblem]:
    """Check a store without changing it; if `root` doesn't exist, the folders of runs are not checked.

    Raises:
        UserError: The store doesn't exist, or can't be read at all.
    """
    existing_file(url)
    with closing_engine(read_only(url)) as engine:
        if damage := _damage(engine):
            return damage
        try:
            ensure(engine, create=False)
        except (EmptyStore, StoreError):
            raise
        except UserError as error:
            what, _, remedy = str(error).rpartition(": ")
            return [StoreProblem("schema", what, remedy)]
        with reading(engine) as connection:
            found = _changed_tables(connection)
            try:
                for problems in (_orphans, _lost_runs, _changed_views):
                    found += problems(connection)
                found += _missing_folders(connection, root)
            except DBAPIError:  # of a missing table or column
                if not found:
                    raise
        return found


def upgrade(url: str) -> None:
    """Recreate the views of a store.

    Raises:
        UserError: The store doesn't exist, or has another schema.
    """
    existing_file(url)
    with closing_engine(writable(url)) as engine:
        ensure(engine, create=False)
        with writing(engine) as connection:
            one_at_a_time(connection, DEFINING)
            make_views(connection)


def _damage(engine: Engine) -> list[StoreProblem]:
    """Return SQLite's findings about its file; a PostgreSQL server checks its files itself."""
    if engine.dialect.name != "sqlite":
        return []
    try:
        with reading(engine) as connection:
            lines = list(connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST})").scalars())
    except StoreError as error:
        if (damage := damage_of(error)) is None:
            raise
        lines = [damage]
    remedy = "restore a backup into a new file: jestlab db restore"
    return [StoreProblem("file", f"the file is damaged: {line}", remedy) for line in lines if line != "ok"]


def _changed_tables(connection: Connection) -> list[StoreProblem]:
    """Find tables, columns, and constraints that were changed by hand."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    context = MigrationContext.configure(connection, opts={"compare_type": True})
    findings = []
    for item in compare_metadata(context, Base.metadata):
        while isinstance(item, list):
            item = item[0]
        parts = [
            getattr(part, "name", part) for part in item if part is not None and not isinstance(part, dict)
        ]
        what = f"the tables differ from schema {SCHEMA}: {' '.join(map(str, parts))}"
        findings.append(StoreProblem("schema", what, "restore a backup, or undo the change"))
    return findings


def _orphans(connection: Connection) -> Iterator[StoreProblem]:
    """Find rows that refer to missing rows."""
    if connection.dialect.name == "postgresql":
        return  # it never deletes rows to which others refer
    found = connection.exec_driver_sql("PRAGMA foreign_key_check")
    for (table, other), count in sorted(Counter((row[0], row[2]) for row in found).items()):
        what = f"{count} rows of {table} refer to missing rows of {other}"
        yield StoreProblem("references", what, f"restore a backup, or delete these rows of {table}")


def _changed_views(connection: Connection) -> list[StoreProblem]:
    """Find views that are missing or have other columns."""
    made = inspect(connection).get_multi_columns(kind=ObjectKind.VIEW)
    columns = {name: [column["name"] for column in listed] for (_, name), listed in made.items()}
    changed = [name for name, view in VIEWS.items() if columns.get(name) != list(view.columns)]
    what = "the view {} differs from this version's"
    return [StoreProblem("views", what.format(name), "run jestlab db upgrade") for name in changed]


def _lost_runs(connection: Connection) -> list[StoreProblem]:
    """Find runs that are RUNNING in the store without a recent heartbeat."""
    recent = exists().where(
        AttemptRow.run_id == RunRow.id, AttemptRow.state.in_(LIVE), AttemptRow.heartbeat_at > now() - SILENT
    )
    last = select(func.max(AttemptRow.heartbeat_at)).where(AttemptRow.run_id == RunRow.id).scalar_subquery()
    running = select(RunRow.directory, last).where(RunRow.state == RunState.RUNNING, ~recent)
    findings = []
    for directory, beat in connection.execute(running.order_by(RunRow.directory)):
        since = f"since {beat:%Y-%m-%d %H:%M} UTC" if beat else "at all"
        what = f"{directory} is RUNNING, but its worker sent no heartbeat {since}"
        findings.append(StoreProblem("runs", what, "launch its study again"))
    return _shortened(findings)


def _missing_folders(connection: Connection, root: Path) -> list[StoreProblem]:
    """Find completed runs without their folders."""
    if not root.is_dir():
        return []
    completed = (RunRow.state == RunState.COMPLETED) & (RunRow.program != ADOPTED)  # those have no folders
    directories = connection.scalars(select(RunRow.directory).where(completed).order_by(RunRow.directory))
    missing = [directory for directory in directories if not (root / directory).is_dir()]
    what = f"{{}} is COMPLETED, but this folder is missing in {root}"
    remedy = "restore the folder, or use the --root that has it"
    return _shortened([StoreProblem("folders", what.format(directory), remedy) for directory in missing])


def _shortened(findings: list[StoreProblem]) -> list[StoreProblem]:
    """Return the first findings of one kind, and the number of the others."""
    if len(findings) <= _MOST:
        return findings
    first = findings[0]
    more = StoreProblem(first.check, f"and {len(findings) - _MOST + 1} more", first.remedy)
    return [*findings[: _MOST - 1], more]
