"""Start completed runs over: what they measured is dropped, and the next attempt begins from nothing.

The next attempt gets a folder of its own, so that nothing resumes from an old checkpoint and no result mixes
two attempts. The old folder stays until `jestlab gc --delete`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, delete, func, select, update

from jestlab.platform.store.records import LIVE, RunState
from jestlab.platform.store.rows import chunks
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Artifact, Attempt, Evaluation, Metric, Need, Run

_FOLDER = re.compile(r"(?P<name>.+?)(\.again\d+)?-(?P<end>[0-9a-f]{16})")


def start_over(store: Store, fingerprints: Collection[str]) -> list[str]:
    """Let runs run again from their start, all or none.

    Args:
        store: The store.
        fingerprints: The runs, with those among them that they need.

    Returns:
        The runs that will; one that an attempt holds at this moment goes on as it is.
    """
    with store.writing() as connection:
        rows = [
            row
            for chunk in chunks(fingerprints)
            for row in connection.execute(
                select(Run.id, Run.fingerprint, Run.directory)
                .where(Run.fingerprint.in_(chunk))
                .order_by(Run.id)
                .with_for_update(key_share=True)
            )
        ]
        held = set(connection.scalars(select(Attempt.run_id).where(Attempt.state.in_(LIVE))))
        latest = select(Attempt.run_id, func.max(Attempt.number)).group_by(Attempt.run_id)
        numbers = dict(connection.execute(latest).tuples().all())
        again = [row for row in rows if row.id not in held]
        ids = [row.id for row in again]
        for table in (Metric, Evaluation, Artifact):
            for some in chunks(ids):
                connection.execute(delete(table).where(table.run_id.in_(some)))
        for row in again:
            connection.execute(
                update(Run)
                .where(Run.id == row.id)
                .values(
                    state=RunState.PENDING,
                    directory=next_folder(row.directory, numbers.get(row.id, 0) + 1),
                    reason=None,
                    stop_reason=None,
                    step=0,
                    total_steps=None,
                    failures=0,
                )
            )
        unfinished = select(Run.id).where(Run.state != RunState.COMPLETED)
        waiting = select(Need.run_id).where(Need.needs_id.in_(unfinished))
        for some in chunks(ids):
            blocked = update(Run).where(Run.id.in_(some), Run.id.in_(waiting))
            connection.execute(blocked.values(state=RunState.BLOCKED))
    return [row.fingerprint for row in again]


def next_folder(directory: str, number: int) -> str:
    """Return the folder of a run's attempts from this number on: `runs/joint.again2-3fa2c81b0e5d7a46`."""
    parts = _FOLDER.fullmatch(directory)
    return f"{directory}.again{number}" if parts is None else f"{parts['name']}.again{number}-{parts['end']}"


def with_needs(connection: Connection, runs: Iterable[int]) -> set[int]:
    """Return runs, by their ids, and all whose results they need, directly or through others."""
    needs: dict[int, list[int]] = {}
    for run_id, needed in connection.execute(select(Need.run_id, Need.needs_id)):
        needs.setdefault(run_id, []).append(needed)
    found: set[int] = set()
    waiting = list(runs)
    while waiting:
        run_id = waiting.pop()
        if run_id not in found:
            found.add(run_id)
            waiting += needs.get(run_id, [])
    return found


def with_dependents(chosen: Collection[str], runs: Sequence[tuple[str, Collection[str]]]) -> list[str]:
    """Return runs and all that need their results, directly or through others.

    Args:
        chosen: Fingerprints.
        runs: Fingerprint and the fingerprints of the needed runs, of every run, those that are needed first.
    """
    found = set(chosen)
    for fingerprint, needs in runs:
        if found & set(needs):
            found.add(fingerprint)
    return [fingerprint for fingerprint, _ in runs if fingerprint in found]
