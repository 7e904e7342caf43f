"""The version of a store's schema: recorded when a store is created, checked when it is opened.

It is recorded as an Alembic revision, from which a first migration can start. NOTE: to change a table on
SQLite, Alembic copies it and drops the old one. Unless foreign keys are off, this deletes rows that refer to
it.
"""

from __future__ import annotations

import uuid

from sqlalchemy import Connection, Engine, insert, inspect, text
from sqlalchemy.engine.reflection import ObjectKind

from jestlab.analysis.connection import SCHEMA, other_version
from jestlab.platform.errors import StoreMissing, UserError
from jestlab.platform.store.address import shown_url
from jestlab.platform.store.engine import DEFINING, one_at_a_time, reading, writing
from jestlab.platform.store.tables import Base, IdentityRow
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


def changed_views(connection: Connection) -> list[str]:
    """Return the names of views that are missing or have other columns than this version's."""
    made = inspect(connection).get_multi_columns(kind=ObjectKind.VIEW)
    columns = {name: [column["name"] for column in listed] for (_, name), listed in made.items()}
    return [name for name, view in VIEWS.items() if columns.get(name) != list(view.columns)]


def revision(connection: Connection) -> str | None:
    """Return the schema's revision; None if the database has none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version
