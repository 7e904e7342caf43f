"""The labs that share a store: where each was last, and which of them made a run's files."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import aliased

from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import chunks, insert, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, KnownLab, Run


def enter_lab(store: Store, uid: str, address: str, host: str | None) -> None:
    """Enter a lab with where it is now.

    Args:
        store: The store.
        uid: The lab's id.
        address: Its folder, or the URL of a bucket's.
        host: The machine of a folder; None of a bucket.
    """
    place = {"address": address, "host": host, "seen_at": now()}
    with store.writing() as connection:
        statement = insert(connection, KnownLab).values(uid=uid, **place)
        connection.execute(statement.on_conflict_do_update(index_elements=["uid"], set_=place))


def places(store: Store) -> dict[str, str]:
    """Return where each lab of the store was last, by its id: `atlas:/data/lab`."""
    with store.reading() as connection:
        return {
            lab.uid: lab.address if lab.host is None else f"{lab.host}:{lab.address}"
            for lab in connection.execute(select(KnownLab.uid, KnownLab.address, KnownLab.host))
        }


def completed_elsewhere(store: Store, fingerprints: Iterable[str], uid: str | None) -> dict[str, str]:
    """Return the runs that another lab completed, with where it was last.

    Args:
        store: The store.
        fingerprints: The runs that are asked for.
        uid: The id of the lab that asks; None if it has none yet.

    Returns:
        Fingerprint → place. Runs are left out of which it is not known which lab completed them.
    """
    later = aliased(Attempt)
    done = RunState.COMPLETED
    newest = (
        select(func.max(later.number))
        .where(later.run_id == Run.id, later.state == done)
        .correlate(Run)
        .scalar_subquery()
    )
    query = (
        select(Run.fingerprint, Attempt.lab)
        .select_from(Run)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == newest))
        .where(Run.state == done, Attempt.lab.is_not(None))
    )
    if uid is not None:
        query = query.where(Attempt.lab != uid)
    where = places(store)
    with store.reading() as connection:
        return {
            row.fingerprint: where[row.lab]
            for chunk in chunks(fingerprints)
            for row in connection.execute(query.where(Run.fingerprint.in_(chunk)))
        }
