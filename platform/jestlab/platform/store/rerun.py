"""Start completed runs over: their results are deleted, and the next attempt starts from step 0.

The next attempt gets a new folder, so that it can't resume from an old checkpoint and no result mixes two
attempts. The old folder remains until `jestlab gc --delete`.
"""

import re
from collections.abc import Collection, Sequence

from sqlalchemy import Select, delete, select, true, update

from jestlab.platform.store.leases import free_runs, is_one_of
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import one_of
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import ArtifactRow, EvaluationRow, MetricRow, NeedRow, RunRow

_NAME_END = re.compile(r"(?:\.again\d+)?(-[0-9a-f]{16}|)$")


def start_over(store: Store, fingerprints: Collection[str]) -> list[str]:
    """Start runs over, all in one transaction, with those of their dependencies that are named, too.

    Returns the runs that start over; a run that an attempt holds is left out.
    """
    with store.writing() as connection:
        rows = free_runs(connection, fingerprints, true())
        for table in (MetricRow, EvaluationRow, ArtifactRow):
            connection.execute(delete(table).where(one_of(table.run_id, [row.id for row in rows])))
        for row in rows:
            values = {
                "state": RunState.PENDING, "reason": None, "stop_reason": None, "step": 0,
                "total_steps": None, "failures": 0, "directory": next_folder(row.directory, row.number + 1),
            }  # fmt: skip
            connection.execute(update(RunRow).where(RunRow.id == row.id).values(**values))
        unfinished = select(RunRow.id).where(RunRow.state != RunState.COMPLETED)
        waiting = select(NeedRow.run_id).where(NeedRow.needs_id.in_(unfinished))
        blocked = update(RunRow).where(is_one_of(rows), RunRow.id.in_(waiting))
        connection.execute(blocked.values(state=RunState.BLOCKED))
    return [row.fingerprint for row in rows]


def next_folder(directory: str, number: int) -> str:
    """Return the folder of a run from this attempt on, such as `runs/joint.again2-3fa2c81b0e5d7a46`."""
    return _NAME_END.sub(rf".again{number}\1", directory, count=1)


def with_needs(runs: Select[int]) -> Select[int]:
    """Select the keys of runs and of all their direct and indirect dependencies; `runs` selects keys."""
    found = runs.cte("found", recursive=True)
    found = found.union(select(NeedRow.needs_id).join(found, NeedRow.run_id == found.c.id))
    return select(found.c.id)


def with_dependents(chosen: Collection[str], runs: Sequence[tuple[str, Collection[str]]]) -> list[str]:
    """Return runs and all runs that depend on them, directly or indirectly.

    `runs` are the fingerprint and the dependencies of every run, dependencies first.
    """
    found = set(chosen)
    for fingerprint, needs in runs:
        if found & set(needs):
            found.add(fingerprint)
    return [fingerprint for fingerprint, _ in runs if fingerprint in found]
