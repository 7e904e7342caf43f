"""The version of a store's schema: checked at every opening, made by Alembic when the store is new."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from jestlab.platform.errors import UserError
from jestlab.platform.store.engine import reading, writing
from jestlab.platform.store.views import VIEWS

HEAD = "0002"
"""The newest migration: what this code reads and writes. Revisions are numbered, so that they compare."""


def ensure(engine: Engine, create: bool) -> None:
    """Check that the store has the schema of this code, and make it in an empty database.

    Args:
        engine: Where the store is.
        create: Whether an empty database is filled.

    Raises:
        UserError: Another version's store, another application's database, or empty and not to be created.
    """
    with reading(engine) as connection:
        version = _version(connection)
    if version == HEAD:
        return
    place = f"the store {engine.url.database}"
    if version is None:
        if not create:
            raise UserError(f"{place} is empty: launch a study first, or give another --root or --store")
        with reading(engine) as connection:
            others = inspect(connection).get_table_names()
        if others and "alembic_version" not in others:
            raise UserError(
                f"{place} holds other tables ({others[0]}, …): give --store a database of its own"
            )
        migrate(engine, HEAD)
    elif version < HEAD:
        raise UserError(
            f"{place} has the older schema {version}, this jestlab writes {HEAD}: "
            "use the jestlab that made it, or start a new lab with --root"
        )
    else:
        raise UserError(f"{place} has schema {version}, newer than this jestlab's {HEAD}: upgrade jestlab")


def migrate(engine: Engine, revision: str) -> None:
    """Bring a store to a revision, in one transaction; another process may be at it at the same time.

    Args:
        engine: Where the store is.
        revision: A migration's number, or "base" for an empty store.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    migrations = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    with writing(engine) as connection:
        version = _version(connection)
        if version == revision:
            return
        config.attributes["connection"] = connection
        for name in VIEWS:
            connection.execute(text(f"DROP VIEW IF EXISTS {name}"))
        if revision != "base" and (version is None or version < revision):
            command.upgrade(config, revision)
        else:
            command.downgrade(config, revision)
        # Views hold no data: they are made anew from their one definition instead of being migrated.
        if revision == HEAD:
            for name, view in VIEWS.items():
                connection.execute(text(f"CREATE VIEW {name} AS {view.select}"))


def _version(connection: Connection) -> str | None:
    """The schema's revision; None without one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version
