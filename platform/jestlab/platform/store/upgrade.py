"""Bringing an older store up to the schema of this code."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection, DateTime, Engine, bindparam, text

from jestlab.platform.errors import UserError
from jestlab.platform.store import address, backup, schema
from jestlab.platform.store.engine import migrating, reading, writable
from jestlab.platform.store.sql import now

ALIVE = timedelta(seconds=60)
"""An attempt that was heard of so lately is still at work."""


@dataclass(frozen=True)
class Upgrade:
    """What was done.

    Attributes:
        before: Revision that the store had.
        after: Revision that it has.
        views: Names of views that were made anew at the same revision.
        backup: The store as it was; None where nothing was changed, or on a server.
    """

    before: str
    after: str
    views: tuple[str, ...]
    backup: Path | None


def upgrade(url: str) -> Upgrade:
    """Bring a store to the newest schema, all or nothing.

    A SQLite file is backed up first, beside itself.

    Args:
        url: Of the store.

    Raises:
        UserError: There is no store, it is newer than this code, or runs are at work.
    """
    path = address.file(address.parse(url))
    if path is not None and not path.exists():
        raise UserError(f"no store at {path}: launch a study first, or give --root or --store")
    with backup.closing_engine(writable(url)) as engine:
        with reading(engine) as connection:
            before = schema.revision(connection)
        if before is None or before > schema.HEAD:
            schema.ensure(engine, create=False)  # says what is wrong
        assert before is not None
        if before == schema.HEAD:
            return Upgrade(before, before, _mend_views(engine), None)
        if before not in schema.revisions():
            raise UserError(
                f"the store {address.shown(engine.url)} has schema {before}, which no jestlab knows: "
                "give another --root or --store"
            )
        with reading(engine) as connection:
            _refuse_while_at_work(connection)
        kept = None
        if path is not None:
            kept = path.with_name(f"{path.stem}-{before}-{now():%Y%m%dT%H%M%S%f}{path.suffix}")
            backup.back_up(url, kept)
        schema.migrate(engine, schema.HEAD)
        return Upgrade(before, schema.HEAD, (), kept)


def _mend_views(engine: Engine) -> tuple[str, ...]:
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
