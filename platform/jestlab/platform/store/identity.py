"""Which store this is: what tells the jobs of two labs apart that share a cluster or a project."""

from __future__ import annotations

from sqlalchemy import select

from jestlab.platform.errors import UserError
from jestlab.platform.store import address
from jestlab.platform.store.engine import reading
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Identity


def store_id(store: Store) -> str:
    """A store's own random id, 32 hexadecimal digits. A copy of a store has another one.

    Raises:
        StoreUnreachable: It cannot be reached now.
        UserError: Somebody took it out of the store.
    """
    with reading(store.engine) as connection:
        found: str | None = connection.scalar(select(Identity.id))
    if found is None:
        raise UserError(
            f"the store {address.shown(store.engine.url)} has lost its id: "
            "jestlab db backup, and db restore into a new database"
        )
    return found
