"""Which store this is, and whether it is a copy of another.

A store has a random id, which the jobs that it launches bear, and knows where it lies: in which file or
database. A copy (`cp -r` of a lab, `createdb --template`, a dump) finds itself elsewhere. It is then another
store: it gets an id of its own, and what the original had launched is none of its business.
"""

from __future__ import annotations

import uuid

from sqlalchemy import Connection, Engine, delete, func, select, text, update

from jestlab.platform.store.address import sqlite_file
from jestlab.platform.store.engine import reading, writing
from jestlab.platform.store.records import LIVE, RunState
from jestlab.platform.store.tables import Attempt, Identity, Launcher, Run

COPIED = "was running when its store was copied"


def settle(engine: Engine) -> None:
    """Notice that a store is a copy, and make it a store of its own; a new store learns where it lies."""
    with reading(engine) as connection:
        known = connection.scalar(select(Identity.place))
        here = _place(connection)
    if known == here:
        return
    with writing(engine) as connection:
        known = connection.scalar(select(Identity.place).with_for_update())
        if known is not None and known != here:
            disown(connection, COPIED)
        connection.execute(update(Identity).values(place=here))


def disown(connection: Connection, reason: str) -> None:
    """Make a store another one than that which it was copied from, within a write transaction.

    It gets an id of its own. Attempts that were live end, for this reason: their workers write to the
    original. No attempt's job can be found from here any more, neither to be watched nor to be stopped.
    """
    connection.execute(update(Identity).values(id=uuid.uuid4().hex, place=None))
    ended = {"state": RunState.PREEMPTED, "reason": reason}
    connection.execute(
        update(Attempt).where(Attempt.state.in_(LIVE)).values(**ended, ended_at=Attempt.heartbeat_at)
    )
    connection.execute(update(Run).where(Run.state == RunState.RUNNING).values(**ended))
    connection.execute(update(Attempt).values(handle=None, token=None, launcher=None))
    connection.execute(delete(Launcher))


def _place(connection: Connection) -> str:
    """Say where a store lies, in words that stay the same when it is moved and differ for a copy.

    For a file that is its inode: a file system keeps it when a file is renamed. For a PostgreSQL database it
    is its number, and that of its cluster, unless the server keeps the latter to itself.
    """
    if (file := sqlite_file(connection.engine.url)) is not None:
        return str(file.stat().st_ino)
    number = connection.scalar(text("SELECT oid FROM pg_database WHERE datname = current_database()"))
    cluster = None
    if connection.scalar(select(func.has_function_privilege("pg_control_system()", "EXECUTE"))):
        cluster = connection.scalar(text("SELECT system_identifier FROM pg_control_system()"))
    return f"{cluster or ''}/{number}"
