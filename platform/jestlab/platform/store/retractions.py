"""Results that somebody has found to be wrong: a run's own, and those of the runs that needed it.

Nothing is deleted. A retraction holds until the run was completed again, by an attempt after it; what rests
on it is found through the needs of runs, by the view `v_retractions`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, func, select, text

from jestlab.platform.errors import UserError
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Retraction, Run, insert, now, run_key


@dataclass(frozen=True)
class Retracted:
    """A run whose results are retracted, at one place in an experiment.

    Attributes:
        fingerprint: Its identity.
        experiment: Name of the experiment.
        label: Name of the run and its values on the axes.
        seed: Replicate.
        reason: Why the results are wrong.
        author: Who said so.
        created_at: When, UTC.
        origin: Identity of the run that was retracted: this one, or one that it needs.
    """

    fingerprint: str
    experiment: str
    label: str
    seed: int
    reason: str
    author: str
    created_at: str
    origin: str


def retract(store: Store, fingerprint: str, reason: str, author: str) -> None:
    """Note that the results of a run are wrong.

    Raises:
        UserError: No reason is given, or the run has no results.
    """
    if not reason.strip():
        raise UserError('say why the results are wrong: jestlab retract RUN "wrong shards"')
    with store.writing() as connection:
        run_id, number = connection.execute(
            select(Run.id, func.max(Attempt.number))
            .outerjoin(Attempt, Attempt.run_id == Run.id)
            .where(Run.fingerprint == fingerprint)
            .group_by(Run.id)
        ).one()
        if number is None:
            raise UserError(f"run {fingerprint[:8]} was never attempted: there is nothing to retract")
        row = {"run_id": run_id, "number": number, "reason": reason, "author": author, "created_at": now()}
        connection.execute(insert(connection, Retraction).values(**row))


def undo(store: Store, fingerprint: str) -> None:
    """Take back what was said of a run.

    Raises:
        UserError: The run is not retracted; names the one that it needs, if that is.
    """
    rows = [row for row in retracted(store) if row.fingerprint == fingerprint]
    if rows and all(row.origin != fingerprint for row in rows):
        raise UserError(
            f"run {fingerprint[:8]} rests on run {rows[0].origin[:8]}, which is retracted: "
            f"jestlab retract {rows[0].origin[:8]} --undo"
        )
    if not rows:
        raise UserError(f"run {fingerprint[:8]} is not retracted")
    with store.writing() as connection:
        connection.execute(delete(Retraction).where(Retraction.run_id == run_key(fingerprint)))


def retracted(store: Store) -> list[Retracted]:
    """Return all runs whose results are retracted, or rest on such results, by experiment, label and seed."""
    columns = ", ".join(Retracted.__dataclass_fields__)
    query = text(f"SELECT {columns} FROM v_retractions ORDER BY experiment, label, seed, created_at")
    with store.reading() as connection:
        return [
            Retracted(**{**row, "created_at": str(row["created_at"])})
            for row in connection.execute(query).mappings()
        ]


def reasons(store: Store) -> dict[str, str]:
    """Return why results are retracted, by the fingerprint of the run."""
    return {row.fingerprint: row.reason for row in retracted(store)}
