"""What people state about results: claims registered in advance, accepted differences, and retractions.

None of them changes or deletes a result.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, text

from jestlab.platform.errors import UserError
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import execute_many, insert, now, one_of, to_json
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import (
    AcceptanceRow,
    AttemptRow,
    ExperimentRow,
    MemberRow,
    RegistrationRow,
    RetractionRow,
    RunRow,
    run_key,
)

# ---- registered claims


def register(
    store: Store,
    experiment: str,
    content: dict[str, Any],
    runs: Collection[str],
    *,
    author: str,
    commit: str | None,
) -> bool:
    """Register the claims of a study before its first run.

    Args:
        store: The store.
        experiment: Name of the study.
        content: Returned by `registration.content_of`; False is returned if it is registered already.
        runs: Fingerprints of its runs, with all seeds that it may have.
        author: Who registers it.
        commit: Of jestlab's checkout; None if it is installed otherwise.

    Raises:
        UserError: One of its runs has started.
    """
    from jestlab.analysis.claims.registration import digest_of  # imports pandas

    digest = digest_of(content)
    with store.writing() as connection:
        of_study = select(RegistrationRow.digest).where(RegistrationRow.experiment == experiment)
        if connection.scalar(of_study.order_by(RegistrationRow.created_at.desc()).limit(1)) == digest:
            return False
        attempted = select(AttemptRow.run_id).where(one_of(AttemptRow.run_id, map(run_key, runs))).distinct()
        started = len(connection.scalars(attempted).all())
        if started:
            raise UserError(
                f"{started} of the runs of {experiment} have started: register a study before its first run, "
                "or in a new lab (--root)"
            )
        row = {
            "experiment": experiment, "created_at": now(), "content": to_json(content), "digest": digest,
            "git_commit": commit, "author": author,
        }  # fmt: skip
        connection.execute(insert(connection, RegistrationRow).values(**row))
        return True


# ---- accepted differences


@dataclass(frozen=True)
class AcceptanceEntry:
    """An acceptance: item that differs → values that count as equal, and why. Its time is UTC."""

    accepted: Mapping[str, Sequence[str]]
    reason: str
    author: str
    created_at: datetime


def accept(
    store: Store, experiment: str, values: Mapping[str, Sequence[str]], reason: str, author: str
) -> None:
    """Accept differences between the completed runs of an experiment, in every study that has these runs.

    `values` maps each item that differs to the values that count as equal from now on.

    Raises:
        UserError: No such experiment, or no reason.
    """
    if not reason.strip():
        raise UserError('give a reason why the difference does not matter: --reason "…"')
    with store.writing() as connection:
        of_experiment(connection, experiment, ExperimentRow.name)
        completed = (
            select(RunRow.id)
            .join(MemberRow, MemberRow.run_id == RunRow.id)
            .where(MemberRow.experiment == experiment, RunRow.state == RunState.COMPLETED)
            .distinct()
        )
        row = {"created_at": now(), "accepted": to_json(values), "reason": reason, "author": author}
        rows = [row | {"run_id": key} for key in connection.scalars(completed)]
        execute_many(connection, insert(connection, AcceptanceRow), rows)


def acceptances(store: Store, experiment: str) -> list[AcceptanceEntry]:
    """Return the differences that were accepted for runs of an experiment, the oldest first."""
    columns = (AcceptanceRow.accepted, AcceptanceRow.reason, AcceptanceRow.author, AcceptanceRow.created_at)
    query = (
        select(*columns)
        .join(MemberRow, MemberRow.run_id == AcceptanceRow.run_id)
        .where(MemberRow.experiment == experiment)
        .distinct()
        .order_by(AcceptanceRow.created_at)
    )
    return [AcceptanceEntry(json.loads(accepted), *others) for accepted, *others in store.rows(query)]


# ---- retractions


@dataclass(frozen=True)
class Retracted:
    """A run whose results are retracted, at one place in an experiment.

    Attributes:
        reason: Why the results are wrong.
        author: Who retracted them.
        created_at: When, UTC.
        origin: Fingerprint of the run that was retracted: this one, or one that it depends on.
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
    """Retract the results of a run until it is completed again.

    Raises:
        UserError: No reason is given, or the run has no results.
    """
    if not reason.strip():
        raise UserError('give a reason why the results are wrong: jestlab retract RUN "wrong shards"')
    key = run_key(fingerprint)
    with store.writing() as connection:
        number = connection.scalar(select(func.max(AttemptRow.number)).where(AttemptRow.run_id == key))
        if number is None:
            raise UserError(f"run {fingerprint[:8]} was never attempted: it has no results")
        row = {"run_id": key, "created_at": now(), "number": number, "reason": reason, "author": author}
        connection.execute(insert(connection, RetractionRow).values(**row))


def undo_retraction(store: Store, fingerprint: str) -> None:
    """Remove the retractions of a run.

    Raises:
        UserError: The run itself is not retracted; names the dependency that is.
    """
    rows = [row for row in retracted(store) if row.fingerprint == fingerprint]
    if rows and all(row.origin != fingerprint for row in rows):
        raise UserError(
            f"run {fingerprint[:8]} depends on run {rows[0].origin[:8]}, which is retracted: "
            f"jestlab retract {rows[0].origin[:8]} --undo"
        )
    if not rows:
        raise UserError(f"run {fingerprint[:8]} is not retracted")
    with store.writing() as connection:
        connection.execute(delete(RetractionRow).where(RetractionRow.run_id == run_key(fingerprint)))


def retracted(store: Store) -> list[Retracted]:
    """Return all runs with retracted results or dependencies, by experiment, label, and seed."""
    columns = ", ".join(Retracted.__dataclass_fields__)
    query = text(f"SELECT {columns} FROM v_retractions ORDER BY experiment, label, seed, created_at")
    rows = map(dict, (row._mapping for row in store.rows(query)))
    return [Retracted(**row | {"created_at": str(row["created_at"])}) for row in rows]
