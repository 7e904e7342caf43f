"""Queries that people have saved under names."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, select

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import SavedQuery, insert, now

LONGEST_NAME = 100


class Saved(NamedTuple):
    """A saved query; its time is UTC."""

    name: str
    sql: str
    author: str
    updated_at: datetime


def save(store: Store, name: str, sql: str, author: str) -> None:
    """Save a query; one of the same name is replaced.

    Raises:
        UserError: Name or query is empty, or the name is too long.
    """
    name = " ".join(name.split())
    if not name or not sql.strip() or len(name) > LONGEST_NAME:
        raise UserError(f"a saved query has a name of up to {LONGEST_NAME} characters, and an SQL text")
    values = {"sql": sql.strip(), "author": author, "updated_at": now()}
    with store.writing() as connection:
        statement = insert(connection, SavedQuery).values(name=name, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))


def forget(store: Store, name: str) -> None:
    """Delete a saved query; UserError if there is none of that name."""
    with store.writing() as connection:
        if not connection.execute(delete(SavedQuery).where(SavedQuery.name == name)).rowcount:
            known = list(connection.scalars(select(SavedQuery.name)))
            raise UserError(f"no saved query {name!r}: {nearest(name, known)}")


def saved(store: Store) -> list[Saved]:
    """Return all saved queries, in alphabetical order."""
    columns = (SavedQuery.name, SavedQuery.sql, SavedQuery.author, SavedQuery.updated_at)
    with store.reading() as connection:
        return [Saved(*row) for row in connection.execute(select(*columns).order_by(SavedQuery.name))]
