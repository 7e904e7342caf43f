"""The version of a store's schema: checked whenever a store is opened, made by Alembic where it is new."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from jestlab.platform.errors import StoreMissing, UserError
from jestlab.platform.store.address import shown_url
from jestlab.platform.store.engine import migrating, reading
from jestlab.platform.store.views import VIEWS

HEAD = "0010"
"""The newest migration: what this code reads and writes. Revisions are numbered, so that they compare."""

MIGRATIONS = (Path(__file__).parent / "migrations",)
"""Folders that hold the migrations, as `schema_<revision>.py`."""


class EmptyStore(StoreMissing):
    """The database exists and holds no tables."""


def ensure(engine: Engine, create: bool) -> None:
    """Check that the store has the schema of this code; if `create`, make it in an empty database.

    Raises:
        EmptyStore: The database is empty, and `create` is False.
        UserError: The store is of another version, or the database is another application's.
    """
    with reading(engine) as connection:
        version = revision(connection)
        tables = [] if version else inspect(connection).get_table_names()
    if version == HEAD:
        return
    place = f"the store {shown_url(engine.url)}"
    if version is None:
        if tables and "alembic_version" not in tables:
            raise UserError(
                f"{place} holds other tables ({tables[0]}, …): give --store a database of its own"
            )
        if not create:
            raise EmptyStore(f"{place} is empty: launch a study first, or give another --root or --store")
        migrate(engine, HEAD)
    elif version > HEAD:
        raise UserError(f"{place} has schema {version}, newer than this jestlab's {HEAD}: upgrade jestlab")
    elif version in revisions():
        raise UserError(
            f"{place} has the older schema {version}, this jestlab needs {HEAD}: run jestlab db upgrade"
        )
    else:
        raise UserError(
            f"{place} has schema {version}, from before the first release, which cannot be upgraded: "
            "run jestlab export with the version that made it, and jestlab import into a new lab"
        )


def migrate(engine: Engine, target: str) -> None:
    """Bring a store to a newer revision, all or nothing; another process may be at it at the same time.

    Raises:
        UserError: The store cannot be changed now, or rows of it refer to rows that do not exist.
    """
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    from jestlab.platform.store.tables import Base

    scripts = ScriptDirectory(str(MIGRATIONS[0]), version_locations=[str(folder) for folder in MIGRATIONS])
    with migrating(engine) as connection:
        version = revision(connection)
        if version == target:
            return
        _drop_views(connection)
        context = MigrationContext.configure(connection, opts={"target_metadata": Base.metadata})
        for script in reversed(list(scripts.iterate_revisions(target, version or "base"))):
            with Operations.context(context):
                script.module.upgrade()
            context.stamp(scripts, script.revision)
        # Views hold no data: they are made anew from their one definition instead of being migrated.
        if target == HEAD:
            make_views(connection)


def make_views(connection: Connection) -> None:
    """Create every view as the code defines it, in the place of an older definition."""
    _drop_views(connection)
    for name, view in VIEWS.items():
        connection.execute(text(f"CREATE VIEW {name} AS {view.definition(connection.dialect.name)}"))


def changed_views(connection: Connection) -> list[str]:
    """Return the names of views that are missing, or not as the code defines them.

    NOTE: on PostgreSQL, roll the transaction back afterwards.
    """
    dialect = connection.dialect.name
    is_same = _sqlite_view if dialect == "sqlite" else _postgresql_view
    return [name for name, view in VIEWS.items() if not is_same(connection, name, view.definition(dialect))]


def _sqlite_view(connection: Connection, name: str, wanted: str) -> bool:
    made = text("SELECT sql FROM sqlite_master WHERE type = 'view' AND name = :name")
    found = connection.scalar(made, {"name": name})
    return found is not None and found.split() == f"CREATE VIEW {name} AS {wanted}".split()


def _postgresql_view(connection: Connection, name: str, wanted: str) -> bool:
    """PostgreSQL keeps no text: what it makes of ours is compared with what it holds."""
    as_text = text("SELECT pg_get_viewdef(to_regclass(:name))")
    found = connection.scalar(as_text, {"name": f"public.{name}"})
    connection.execute(text(f"CREATE TEMP VIEW wanted_{name} AS {wanted}"))
    expected = connection.scalar(as_text, {"name": f"pg_temp.wanted_{name}"})
    connection.execute(text(f"DROP VIEW pg_temp.wanted_{name}"))
    return bool(found == expected)


def _drop_views(connection: Connection) -> None:
    for name in VIEWS:
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))


def revisions() -> list[str]:
    """Every revision that this code knows, the oldest first."""
    files = (path for folder in MIGRATIONS for path in folder.glob("schema_*.py"))
    return sorted(path.stem.removeprefix("schema_") for path in files)


def revision(connection: Connection) -> str | None:
    """The schema's revision; None where the database has none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version
