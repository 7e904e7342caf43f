"""The version of a store's schema: checked at every opening, made by Alembic when the store is new."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from jestlab.platform.errors import UserError
from jestlab.platform.store import address
from jestlab.platform.store.engine import migrating, reading
from jestlab.platform.store.views import VIEWS

HEAD = "0003"
"""The newest migration: what this code reads and writes. Revisions are numbered, so that they compare."""

_MIGRATIONS = Path(__file__).parent / "migrations"


class EmptyStore(UserError):
    """There is a database, and nothing in it."""


def ensure(engine: Engine, create: bool) -> None:
    """Check that the store has the schema of this code, and make it in an empty database.

    Args:
        engine: Where the store is.
        create: Whether an empty database is filled.

    Raises:
        EmptyStore: Empty, and not to be created.
        UserError: Another version's store, or another application's database.
    """
    with reading(engine) as connection:
        version = revision(connection)
        tables = [] if version else inspect(connection).get_table_names()
    if version == HEAD:
        return
    place = f"the store {address.shown(engine.url)}"
    if version is None:
        if tables and "alembic_version" not in tables:
            raise UserError(
                f"{place} holds other tables ({tables[0]}, …): give --store a database of its own"
            )
        if not create:
            raise EmptyStore(f"{place} is empty: launch a study first, or give another --root or --store")
        migrate(engine, HEAD)
    elif version < HEAD:
        raise UserError(
            f"{place} has the older schema {version}, this jestlab needs {HEAD}: run jestlab db upgrade"
        )
    else:
        raise UserError(f"{place} has schema {version}, newer than this jestlab's {HEAD}: upgrade jestlab")


def migrate(engine: Engine, target: str) -> None:
    """Bring a store to a revision, all or nothing; another process may be at it at the same time.

    Args:
        engine: Where the store is.
        target: A migration's number, or "base" for an empty store.

    Raises:
        UserError: The store cannot be changed now, or rows of it refer to nothing.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with migrating(engine) as connection:
        version = revision(connection)
        if version == target:
            return
        config.attributes["connection"] = connection
        _drop_views(connection)
        if target != "base" and (version is None or version < target):
            command.upgrade(config, target)
        else:
            command.downgrade(config, target)
        # Views hold no data: they are made anew from their one definition instead of being migrated.
        if target == HEAD:
            make_views(connection)


def make_views(connection: Connection) -> None:
    """Make every view as the code defines it."""
    for name, view in VIEWS.items():
        connection.execute(text(f"CREATE VIEW {name} AS {view.definition(connection.dialect.name)}"))


def remake_views(connection: Connection) -> None:
    """Drop every view and make it as the code defines it."""
    _drop_views(connection)
    make_views(connection)


def changed_views(connection: Connection) -> list[str]:
    """Views that are not there, or not as the code defines them; on PostgreSQL, roll back afterwards."""
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
    """Every revision that this code can migrate, the oldest first."""
    return sorted(
        path.stem.removeprefix("schema_") for path in (_MIGRATIONS / "versions").glob("schema_*.py")
    )


def revision(connection: Connection) -> str | None:
    """The schema's revision; None without one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version
