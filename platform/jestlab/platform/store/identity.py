"""The identity of a store, how a copy gets another one, and the labs that use a store.

A store has a random ID, which its jobs carry, and records its own file or database. A copy (`cp -r` of a lab,
`createdb --template`, a dump) finds itself in another place. It then gets another ID, and loses the jobs of
the original.
"""

import uuid

from sqlalchemy import Connection, Engine, delete, func, select, text, update

from jestlab.analysis.shared import is_shared
from jestlab.platform.store.address import sqlite_file
from jestlab.platform.store.engine import reading, writing
from jestlab.platform.store.records import LIVE, RunState
from jestlab.platform.store.rows import now, upsert
from jestlab.platform.store.tables import AttemptRow, IdentityRow, KnownLabRow, LauncherRow, RunRow

COPIED = "was running when its store was copied"


def settle(engine: Engine) -> None:
    """Record the place of a new store, and give a copy another identity."""
    with reading(engine) as connection:
        known = connection.scalar(select(IdentityRow.place))
        place = _place(connection)
    if known == place:
        return
    with writing(engine) as connection:
        known = connection.scalar(select(IdentityRow.place).with_for_update())
        if known is not None and known != place:
            _disown(connection)
        connection.execute(update(IdentityRow).values(place=place))


def _disown(connection: Connection) -> None:
    """Give a copy another identity, within a write transaction.

    Live attempts end: their workers write to the original. The copy can no longer find, watch, or stop any
    job.
    """
    connection.execute(update(IdentityRow).values(id=uuid.uuid4().hex, place=None))
    ended = {"state": RunState.PREEMPTED, "reason": COPIED}
    live = update(AttemptRow).where(AttemptRow.state.in_(LIVE))
    connection.execute(live.values(**ended, ended_at=AttemptRow.heartbeat_at))
    connection.execute(update(RunRow).where(RunRow.state == RunState.RUNNING).values(**ended))
    connection.execute(update(AttemptRow).values(handle=None, token=None, launcher=None))
    connection.execute(delete(LauncherRow))


def _place(connection: Connection) -> str:
    """Return a text that stays the same if a store is moved and differs for a copy.

    For a file it is the inode, which file systems keep when a file is renamed. For a shared folder, whose
    inodes may differ between machines, it is the time of its file `id`: copies by `cp -a` aren't noticed. For
    a PostgreSQL database it is the number of the database and, unless the server hides it, that of its
    cluster.
    """
    if (file := sqlite_file(connection.engine.url)) is not None:
        return str(int((file / "id").stat().st_mtime) if is_shared(file) else file.stat().st_ino)
    number = connection.scalar(text("SELECT oid FROM pg_database WHERE datname = current_database()"))
    cluster = None
    if connection.scalar(select(func.has_function_privilege("pg_control_system()", "EXECUTE"))):
        cluster = connection.scalar(text("SELECT system_identifier FROM pg_control_system()"))
    return f"{cluster or ''}/{number}"


# ---- labs


def enter_lab(engine: Engine, uid: str, address: str, host: str | None) -> None:
    """Enter a lab by its ID, with its present place: a folder and its machine, or the URL of its bucket."""
    row = {"uid": uid, "address": address, "host": host, "seen_at": now()}
    with writing(engine) as connection:
        upsert(connection, KnownLabRow, [row], ["uid"], list(row))


def lab_places(engine: Engine) -> dict[str, str]:
    """Return the last known place of each lab of the store, such as `atlas:/data/lab`, by the lab's ID."""
    with reading(engine) as connection:
        labs = connection.execute(select(KnownLabRow.uid, KnownLabRow.address, KnownLabRow.host))
        return {uid: address if host is None else f"{host}:{address}" for uid, address, host in labs}
