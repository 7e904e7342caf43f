"""Explain why a run would run, and how two runs differ, field by field."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from jestlab.analysis.costs import COMPONENTS
from jestlab.analysis.mixing import OWN_PROGRAMS, differing_files, unified_diff
from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Action, Plan, PlannedRun
from jestlab.platform.spec.tree import Tree, flatten, lookup
from jestlab.platform.store.records import FinishedRun

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jestlab.platform.store.store import Store

Value = TypeVar("Value")

_ABSENT = "—"


@dataclass(frozen=True)
class Difference:
    """A field in which a run differs from a finished one, by its dotted key."""

    path: str
    before: Any
    now: Any


@dataclass(frozen=True)
class Explanation:
    """Why a run would run, and how it differs from the most similar finished run, by that one's folder."""

    reason: str
    nearest: str | None = None
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        if self.nearest is None:
            return self.reason
        fields = ", ".join(f"{d.path} {_text(d.before)} → {_text(d.now)}" for d in self.differences)
        return f"{self.reason}; {self.nearest} differs in {fields}"


def explain(plan: Plan, finished: Iterable[FinishedRun]) -> dict[str, Explanation]:
    """Explain for each run that a launch starts or resumes why it would run, by its fingerprint.

    What matters is what it has that no finished run of the store has.
    """
    candidates: dict[str, _Candidates] = defaultdict(_Candidates)
    for run in finished:
        candidates[run.program].add(run)
    return {
        run.fingerprint: _explanation(run, candidates[run.program])
        for run in plan.runs
        if run.action is not Action.DONE
    }


def _explanation(run: PlannedRun, candidates: _Candidates) -> Explanation:
    if run.action is Action.RESUME:
        return Explanation(f"{run.state} before: resumes from its last checkpoint, if it has one")
    reason = "new" if run.state is None else f"{run.state} before: has not started yet"
    items = _items(run.program, run.config, run.needs)
    nearest = candidates.nearest(items or {})
    if nearest is None or items is None:
        return Explanation(f"{reason}: the store has no finished run of {run.program}")
    theirs = _items(nearest.program, nearest.config, nearest.needs) or {}
    changed = [path for path in {**theirs, **items} if theirs.get(path) != items.get(path)]
    differences = tuple(
        Difference(path, _value(nearest, path, theirs), _value(run, path, items)) for path in changed
    )
    return Explanation(reason, nearest.directory, differences)


class _Candidates:
    """Finished runs of one program as sets of fields and of their values, a bit each: quick to compare."""

    def __init__(self) -> None:
        self._bits: dict[object, int] = {}
        self._runs: list[tuple[int, int, FinishedRun]] = []

    def add(self, run: FinishedRun) -> None:
        """Add a run, unless its program no longer understands its config."""
        items = _items(run.program, run.config, run.needs)
        if items is not None:
            self._runs.append((*self._masks(items), run))

    def nearest(self, items: Mapping[str, Any]) -> FinishedRun | None:
        """Return the run with the fewest differing fields; the first of several."""
        fields, pairs = self._masks(items)
        return min(
            self._runs,
            key=lambda known: (known[0] | fields).bit_count() - (known[1] & pairs).bit_count(),
            default=(0, 0, None),
        )[2]

    def _masks(self, items: Mapping[str, Any]) -> tuple[int, int]:
        """Return the bits of the fields and of the pairs of field and value."""
        fields = pairs = 0
        for path, value in items.items():
            fields |= 1 << self._bits.setdefault(path, len(self._bits))
            pairs |= 1 << self._bits.setdefault((path, json.dumps(value, sort_keys=True)), len(self._bits))
        return fields, pairs


def _items(program: str, config: Tree, needs: Mapping[str, str]) -> dict[str, Any] | None:
    """Flatten what decides a result: fields of the identity, fingerprints for the names of needed runs."""
    try:
        its_program = programs.get(program)
        identity = its_program.identity(its_program.read(config))
    except (UserError, ValidationError):
        return None
    return flatten(identity) | {role: fingerprint[:8] for role, fingerprint in needs.items()}


def _value(run: PlannedRun | FinishedRun, path: str, items: Mapping[str, Any]) -> Any:
    """Return a field's value; identities leave defaults out, whole configs do not."""
    if path in items:
        return items[path]
    try:
        return lookup(run.config, path.split("."))
    except KeyError:
        return _ABSENT


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class Pair(NamedTuple, Generic[Value]):
    """A value of both runs; None where one has none."""

    first: Value | None
    second: Value | None


@dataclass(frozen=True)
class Comparison:
    """How two runs differ.

    Attributes:
        fingerprints: Their identities.
        states: Their states in the store.
        retracted: Fingerprint → reason, of those whose results are retracted.
        config: Dotted key → values, of the fields that differ; those that a config leaves out are at their
            default.
        needs: Role → fingerprints of the needed runs, where they differ.
        known: Whether the code of both runs was recorded, or is jestlab's own.
        code: Files of the user's own code that differ → digests; a commit or a patch of it.
        data: Recorded files that differ → digests.
        source: The difference of the user's own code as a unified diff, as far as its text is kept.
        provenance: What differs in jestlab's code, in machine and environment of the last attempts.
        scores: dataset/metric → the last scores.
        costs: Planned FLOPs and chip-hours, and the seconds that all attempts took.
    """

    fingerprints: Pair[str]
    states: Pair[str]
    retracted: Mapping[str, str]
    config: Mapping[str, Pair[Any]]
    needs: Mapping[str, Pair[str]]
    known: bool
    code: Mapping[str, Pair[str]]
    data: Mapping[str, Pair[str]]
    source: str
    provenance: Mapping[str, Pair[Any]]
    scores: Mapping[str, Pair[float]]
    costs: Mapping[str, Pair[float]]


def compare(store: Store, first: str, second: str) -> Comparison:
    """Compare two runs by their fingerprints.

    Raises:
        UserError: One of them is not in the store.
    """
    from jestlab.platform.store.judgments import retracted

    with store.reading() as connection:
        one, other = (_side(connection, fingerprint) for fingerprint in (first, second))
    names = ("config", "needs", "code", "data", "provenance")
    differing = {name: differing_pairs(one[name], other[name]) for name in names}
    if not (known := one["known"] and other["known"]):
        differing["code"] = one["sources"] = other["sources"] = {}
    return Comparison(
        retracted={row.fingerprint: row.reason for row in retracted(store)},
        known=known,
        source=source_diff(store, *(side["sources"] for side in (one, other))),
        fingerprints=Pair(first, second),
        states=Pair(one["state"], other["state"]),
        scores=_pairs(one["scores"], other["scores"]),
        costs=_pairs(one["costs"], other["costs"]),
        **differing,
    )


def _side(connection: Connection, fingerprint: str) -> dict[str, Any]:
    """Read what is compared of one run, by name."""
    from sqlalchemy import func, select  # here alone: `jestlab plan` explains without SQLAlchemy
    from sqlalchemy.orm import aliased

    from jestlab.platform.store.tables import Attempt, Budget, Cost, Evaluation, Need, Run

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
    planned = connection.execute(select(Cost.component, Cost.flops).where(Cost.run_id == run.id))
    budget = connection.execute(select(Budget.__table__).where(Budget.run_id == run.id)).one_or_none()
    return {
        "state": run.state,
        "config": {"program": run.program, "seed": run.seed} | flatten(_config(run)),
        "needs": dict(needs.tuples().all()),
        "known": run.program in OWN_PROGRAMS or bool(attempts and attempts[-1].sources is not None),
        "code": _code(attempts[-1]) if attempts else {},
        "data": json.loads(attempts[-1].inputs or "{}") if attempts else {},
        "sources": json.loads(attempts[-1].sources or "{}") if attempts else {},
        "provenance": _provenance(attempts[-1]) if attempts else {},
        "scores": {f"{dataset}/{metric}": value for dataset, metric, value in scores},
        "costs": _costs(dict(planned.tuples().all()), budget, attempts),
    }


def _config(run: Any) -> dict[str, Any]:
    """Return the run's config, with the defaults of fields that were added since."""
    config: dict[str, Any] = json.loads(run.config)
    try:
        program = programs.get(run.program)
        return config if program.schema is None else program.read(config).model_dump(mode="json")
    except (UserError, ValidationError):  # of a program that is gone or has changed: as it was stored
        return config


def _provenance(attempt: Any) -> dict[str, Any]:
    versions, environment = (json.loads(text or "{}") for text in (attempt.versions, attempt.environment))
    return {
        "jestlab.commit": attempt.git_commit,
        "jestlab.patch": _patch(attempt.git_patch),
        "device": attempt.device,
        "host": attempt.host,
        "executor": attempt.executor,
        "chips": attempt.chips,
        **{f"versions.{package}": version for package, version in sorted(versions.items())},
        **{f"environment.{name}": value for name, value in sorted(environment.items())},
    }


def _code(attempt: Any) -> dict[str, str | None]:
    """Return what is known of the user's own code: its files, and the state of its repository."""
    files: dict[str, str | None] = json.loads(attempt.sources or "{}")
    return {**files, "commit": attempt.code_commit, "patch": _patch(attempt.code_patch)}


def source_diff(
    store: Store, first: Mapping[str, str], second: Mapping[str, str], now: Mapping[str, Path] | None = None
) -> str:
    """Return the difference between two states of the user's own code.

    Args:
        store: Which keeps the text of files.
        first: File → digest, of the one state.
        second: The same of the other.
        now: File → path of the second state, if that is what is there now; None if the store has it, too.
    """
    from jestlab.platform.store.code import script_texts, texts

    differing = differing_files(first, second)
    digests = {digest for name in differing for digest in (first.get(name), second.get(name)) if digest}
    known = texts(store, digests)
    known |= dict(script_texts(now[name] for name in differing if now and name in now))
    return unified_diff(first, second, known)


def _patch(patch: str | None) -> str | None:
    """Summarise a patch in a few words that tell it from another."""
    if not patch:
        return None
    return f"{len(patch.splitlines())} lines, {hashlib.sha256(patch.encode()).hexdigest()[:8]}"


def _costs(planned: Mapping[str, float], budget: Any, attempts: Iterable[Any]) -> dict[str, float | None]:
    costs: dict[str, float | None] = {f"{name}_flops": flops for name, flops in sorted(planned.items())}
    if planned:
        # "learner" is what adopted runs have in place of its parts.
        parts = ("learner", *COMPONENTS["learner"], *COMPONENTS["scoring"])
        costs["total_flops"] = sum(planned.get(name, 0.0) for name in parts)
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


def differing_pairs(
    first: Mapping[str, Value | None], second: Mapping[str, Value | None]
) -> dict[str, Pair[Value]]:
    """Return the values of two runs by name, where they differ."""
    return {name: pair for name, pair in _pairs(first, second).items() if pair.first != pair.second}
