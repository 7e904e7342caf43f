"""Two runs side by side: what was asked of them, what did it, what came out and what it cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from sqlalchemy import Connection, func, select
from sqlalchemy.orm import aliased

from jestlab.analysis.costs import COMPONENTS
from jestlab.platform.errors import UserError
from jestlab.platform.spec.tree import flatten
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Budget, Cost, Evaluation, Need, Run

Value = TypeVar("Value")


@dataclass(frozen=True)
class Pair(Generic[Value]):
    """A value of both runs; None where one has none."""

    first: Value | None
    second: Value | None

    @property
    def differs(self) -> bool:
        """Whether the two are not the same."""
        return self.first != self.second


@dataclass(frozen=True)
class Comparison:
    """How two runs differ.

    Attributes:
        fingerprints: Their identities.
        states: How they stand.
        config: Dotted key → values, of the fields that differ; those that a config leaves unsaid are at their
            default.
        needs: Role → fingerprints of the needed runs, where they differ.
        provenance: What differs in the code, machine and surroundings of the last attempts.
        scores: dataset/metric → the last scores.
        costs: Planned FLOPs and chip hours, and the seconds that all attempts took.
    """

    fingerprints: Pair[str]
    states: Pair[str]
    config: Mapping[str, Pair[Any]]
    needs: Mapping[str, Pair[str]]
    provenance: Mapping[str, Pair[Any]]
    scores: Mapping[str, Pair[float]]
    costs: Mapping[str, Pair[float]]


def compare(store: Store, first: str, second: str) -> Comparison:
    """Compare two runs.

    Args:
        store: Where they are.
        first: A fingerprint.
        second: Another, or the same.
    """
    with store.reading() as connection:
        sides = [_side(connection, fingerprint) for fingerprint in (first, second)]
    one, other = sides
    return Comparison(
        fingerprints=Pair(first, second),
        states=Pair(one.state, other.state),
        config=_differing(one.config, other.config),
        needs=_differing(one.needs, other.needs),
        provenance=_differing(one.provenance, other.provenance),
        scores=_pairs(one.scores, other.scores),
        costs=_pairs(one.costs, other.costs),
    )


@dataclass(frozen=True)
class _Side:
    state: str
    config: dict[str, Any]
    needs: dict[str, str | None]
    provenance: dict[str, Any]
    scores: dict[str, float | None]
    costs: dict[str, float | None]


def _side(connection: Connection, fingerprint: str) -> _Side:
    """All about one run."""
    run = connection.execute(select(Run.__table__).where(Run.fingerprint == fingerprint)).one_or_none()
    if run is None:
        raise UserError(f"no run {fingerprint[:8]} in the store")
    needed = aliased(Run)
    needs = connection.execute(
        select(Need.role, needed.fingerprint)
        .join(needed, needed.id == Need.needs_id)
        .where(Need.run_id == run.id)
        .order_by(Need.role)
    )
    attempts = connection.execute(
        select(Attempt.__table__).where(Attempt.run_id == run.id).order_by(Attempt.number)
    ).all()
    last = select(func.max(Evaluation.step)).where(Evaluation.run_id == run.id).scalar_subquery()
    scores = connection.execute(
        select(Evaluation.dataset, Evaluation.metric, Evaluation.value)
        .where(Evaluation.run_id == run.id, Evaluation.step == last)
        .order_by(Evaluation.dataset, Evaluation.metric)
    )
    return _Side(
        state=run.state,
        config={"program": run.program, "seed": run.seed} | flatten(_config(run)),
        needs=dict(needs.tuples().all()),
        provenance=_provenance(attempts[-1]) if attempts else {},
        scores={f"{dataset}/{metric}": value for dataset, metric, value in scores},
        costs=_costs(connection, run.id, attempts),
    )


def _config(run: Any) -> dict[str, Any]:
    """The run's config, with the defaults of fields that were added since."""
    from jestlab.platform import programs

    config: dict[str, Any] = json.loads(run.config)
    try:
        schema = programs.get(run.program).schema
        return config if schema is None else schema.model_validate(config).model_dump(mode="json")
    except (UserError, ValidationError):  # of a program that is gone, or has changed: as it was stored
        return config


def _provenance(attempt: Any) -> dict[str, Any]:
    versions, environment = (json.loads(text or "{}") for text in (attempt.versions, attempt.environment))
    about = {
        "commit": attempt.git_commit,
        "patch": _patch(attempt.git_patch),
        "device": attempt.device,
        "host": attempt.host,
        "executor": attempt.executor,
        "chips": attempt.chips,
    }
    about |= {f"versions.{package}": version for package, version in sorted(versions.items())}
    return about | {f"environment.{name}": value for name, value in sorted(environment.items())}


def _patch(patch: str | None) -> str | None:
    """A patch in a few words, other ones for another patch."""
    if not patch:
        return None
    return f"{len(patch.splitlines())} lines, {hashlib.sha256(patch.encode()).hexdigest()[:8]}"


def _costs(connection: Connection, run_id: int, attempts: Any) -> dict[str, float | None]:
    planned = dict(
        connection.execute(select(Cost.component, Cost.flops).where(Cost.run_id == run_id)).tuples().all()
    )
    costs: dict[str, float | None] = {f"{name}_flops": flops for name, flops in sorted(planned.items())}
    if planned:
        # "learner" is what older code recorded in the place of its parts.
        parts = ("learner", *COMPONENTS["learner"], *COMPONENTS["scoring"])
        costs["total_flops"] = sum(planned.get(name, 0.0) for name in parts)
    budget = connection.execute(select(Budget.__table__).where(Budget.run_id == run_id)).one_or_none()
    if budget is not None:
        costs |= {"chip_hours": budget.chip_hours, "dollars": budget.dollars}
    began = [attempt for attempt in attempts if attempt.started_at is not None]
    if began:
        costs["seconds"] = sum(
            ((attempt.ended_at or attempt.heartbeat_at) - attempt.started_at).total_seconds()
            for attempt in began
        )
    return costs


def _pairs(first: Mapping[str, Value | None], second: Mapping[str, Value | None]) -> dict[str, Pair[Value]]:
    return {name: Pair(first.get(name), second.get(name)) for name in {**first, **second}}


def _differing(
    first: Mapping[str, Value | None], second: Mapping[str, Value | None]
) -> dict[str, Pair[Value]]:
    return {name: pair for name, pair in _pairs(first, second).items() if pair.differs}
