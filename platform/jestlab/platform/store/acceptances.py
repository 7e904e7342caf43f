"""Differences between the runs of an experiment that somebody said do not matter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from jestlab.platform.errors import UserError
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import Acceptance, Experiment, execute_many, insert, now, to_json


@dataclass(frozen=True)
class AcceptanceRow:
    """An acceptance.

    Attributes:
        accepted: What differs → values that count as equal.
        reason: Why it does not matter.
        author: Who said so.
        created_at: When, UTC.
    """

    accepted: Mapping[str, Sequence[str]]
    reason: str
    author: str
    created_at: datetime


def accept(
    store: Store, experiment: str, values: Mapping[str, Sequence[str]], reason: str, author: str
) -> None:
    """Note that differences between the runs of an experiment do not matter; of a union, in all its studies.

    Args:
        store: Where it is noted.
        experiment: Name of the experiment.
        values: What differs → values that count as equal from now on.
        reason: Why.
        author: Who says so.

    Raises:
        UserError: No such experiment, or no reason.
    """
    if not reason.strip():
        raise UserError('say why the difference does not matter: --reason "…"')
    with store.writing() as connection:
        spec = json.loads(of_experiment(connection, experiment, Experiment.spec))
        names = [experiment, *spec.get("studies", ())]
        row = {"accepted": to_json(values), "reason": reason, "author": author, "created_at": now()}
        rows = [
            {"experiment": name, **row}
            for name in connection.scalars(select(Experiment.name).where(Experiment.name.in_(names)))
        ]
        execute_many(connection, insert(connection, Acceptance), rows)


def acceptances(store: Store, experiment: str) -> list[AcceptanceRow]:
    """Return what was accepted of an experiment, oldest first."""
    with store.reading() as connection:
        rows = connection.execute(
            select(Acceptance.accepted, Acceptance.reason, Acceptance.author, Acceptance.created_at)
            .where(Acceptance.experiment == experiment)
            .order_by(Acceptance.id)
        ).all()
    return [AcceptanceRow(json.loads(row.accepted), row.reason, row.author, row.created_at) for row in rows]


def accepted_in(store: Store, experiment: str) -> list[Mapping[str, Sequence[str]]]:
    """Return the accepted differences of an experiment, each as item → values that count as equal."""
    return [row.accepted for row in acceptances(store, experiment)]
