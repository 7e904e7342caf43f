"""Compare two runs, or a run with the current code and data, field by field."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ValidationError
from sqlalchemy import func, select

from jestlab.analysis.costs import COMPONENTS
from jestlab.analysis.provenance.code import OWN_PROGRAMS, contributing, differing_files, unified_diff
from jestlab.platform import programs
from jestlab.platform.digests import digest_of
from jestlab.platform.errors import UserError
from jestlab.platform.planning.changes import attempts_of
from jestlab.platform.programs.sources import sources_of
from jestlab.platform.spec.schema import Record
from jestlab.platform.spec.tree import flatten
from jestlab.platform.store.annotations import retracted
from jestlab.platform.store.provenance import digests_of, script_texts, texts
from jestlab.platform.store.records import RunRecord, RunState
from jestlab.platform.store.tables import AttemptRow, BudgetRow, CostRow, EvaluationRow, run_key

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store


class Pair(NamedTuple):
    """The values of both runs; None if a run has none."""

    first: Any
    second: Any


Pairs = Mapping[str, Pair]


@dataclass(frozen=True)
class Comparison:
    """How two runs, or a run and the current files, differ.

    Attributes:
        known: Whether the code of the runs is known: it was recorded, or it is jestlab's own.
        differences: Section → key → the two values, if they differ. "code" and "data" contain digests of
            files. For two runs, "code" also contains the commit and the patch of the repository, and there
            are three more sections: "config" by dotted key, with defaults for missing fields; "needs", with
            fingerprints by role; "provenance", with jestlab's code, machine, and environment of the last
            attempts.
        source: Unified diff of the code, for files whose text is stored.
        numbers: For two runs: "scores" → dataset/metric → last scores; "costs" → planned FLOPs and
            chip-hours, and the seconds of all attempts.
        runs: For two runs: their fingerprints, states, and the reasons why they are retracted, if they are.
    """

    known: bool
    differences: Mapping[str, Pairs]
    source: str
    numbers: Mapping[str, Pairs] = field(default_factory=dict)
    runs: tuple[tuple[str, RunState, str | None], ...] = ()


def compare(store: Store, first: str, second: str) -> Comparison:
    """Compare two runs by their fingerprints; UserError if a run isn't in the store."""
    runs = store.run(first), store.run(second)
    one, other = (_read(store, run) for run in runs)
    reasons = {row.fingerprint: row.reason for row in retracted(store)}
    known = one["sources"] is not None and other["sources"] is not None
    if not known:
        one |= {"code": {}, "sources": {}}
        other |= {"code": {}, "sources": {}}
    sections = ("config", "needs", "code", "data", "provenance")
    return Comparison(
        known=known,
        differences={name: _differing(one[name], other[name]) for name in sections},
        source=_source_diff(store, one["sources"], other["sources"], {}),
        numbers={name: _pairs(one[name], other[name]) for name in ("scores", "costs")},
        runs=tuple((run.fingerprint, run.state, reasons.get(run.fingerprint)) for run in runs),
    )


def compare_with_now(store: Store, fingerprint: str) -> Comparison:
    """Compare the code and data of a run with the current files."""
    run = store.run(fingerprint)
    attempts = contributing(attempts_of(store, [fingerprint])[fingerprint])
    last = attempts[-1] if attempts else {"sources": None, "inputs": None}
    then, data = (json.loads(last[name] or "{}") for name in ("sources", "inputs"))
    sources = None if last["sources"] is None else sources_of(run.program, run.config, Path.cwd())
    now = {} if sources is None else digests_of(sources)
    files: dict[str, Path] = {}
    for _, study in store.studies(fingerprint):
        files |= Record.model_validate(study.get("record", {})).named_files()
    data_now = {name: digest_of(path) for name, path in files.items() if name in data}
    return Comparison(
        known=last["sources"] is not None or run.program in OWN_PROGRAMS,
        differences={"code": _differing(then, now), "data": _differing(data, data_now)},
        source=_source_diff(store, then, now, sources or {}),
    )


def _read(store: Store, run: RunRecord) -> dict[str, Any]:
    """Read the values of a run to compare, by section; "sources" is None if the code wasn't recorded."""
    key = run_key(run.fingerprint)

    def rows(table: Any, *order: Any) -> Sequence[Any]:
        return connection.execute(select(table.__table__).where(table.run_id == key).order_by(*order)).all()

    with store.reading() as connection:
        attempts = rows(AttemptRow, AttemptRow.number)
        planned = {row.component: row.flops for row in rows(CostRow, CostRow.component)}
        budgets = rows(BudgetRow)
        last_step = select(func.max(EvaluationRow.step)).where(EvaluationRow.run_id == key).scalar_subquery()
        evaluations = connection.execute(
            select(EvaluationRow.dataset, EvaluationRow.metric, EvaluationRow.value)
            .where(EvaluationRow.run_id == key, EvaluationRow.step == last_step)
            .order_by(EvaluationRow.dataset, EvaluationRow.metric)
        ).all()
    # A run that was never started has no attempt.
    last = attempts[-1]._asdict() if attempts else defaultdict(lambda: None)
    sources, data, versions, environment = (
        json.loads(last[name]) if last[name] else None
        for name in ("sources", "inputs", "versions", "environment")
    )
    repository = {"commit": last["code_commit"], "patch": _patch(last["code_patch"])}
    machine = {name: last[name] for name in ("device", "host", "executor", "chips")}
    costs: dict[str, float | None] = {f"{name}_flops": flops for name, flops in planned.items()}
    if planned:
        # Imported runs have "learner" instead of its components.
        components = ("learner", *COMPONENTS["learner"], *COMPONENTS["scoring"])
        costs["total_flops"] = sum(planned.get(name, 0.0) for name in components)
    for budget in budgets:
        costs |= {"chip_hours": budget.chip_hours, "dollars": budget.dollars}
    if started := [attempt for attempt in attempts if attempt.started_at is not None]:
        ends = (attempt.ended_at or attempt.heartbeat_at for attempt in started)
        costs["seconds"] = sum(
            (end - attempt.started_at).total_seconds() for attempt, end in zip(started, ends, strict=True)
        )
    if sources is None and run.program in OWN_PROGRAMS:
        sources = {}
    return {
        "config": {"program": run.program, "seed": run.seed} | flatten(_with_defaults(run)),
        "needs": {role: need.fingerprint for role, need in run.needs.items()},
        "sources": sources,
        "code": (sources or {}) | repository,
        "data": data or {},
        "provenance": {
            "jestlab.commit": last["git_commit"],
            "jestlab.patch": _patch(last["git_patch"]),
            **machine,
            **{f"versions.{name}": version for name, version in sorted((versions or {}).items())},
            **{f"environment.{name}": value for name, value in sorted((environment or {}).items())},
        },
        "scores": {f"{row.dataset}/{row.metric}": row.value for row in evaluations},
        "costs": costs,
    }


def _with_defaults(run: RunRecord) -> dict[str, Any]:
    """Return the run's config, with defaults for fields added since."""
    try:
        config = programs.get(run.program).read(run.config)
    except (UserError, ValidationError):  # the program is gone or has changed
        config = run.config
    return config.model_dump(mode="json") if isinstance(config, BaseModel) else dict(config)


def _patch(patch: str | None) -> str | None:
    """Summarize a patch by its length and digest."""
    if not patch:
        return None
    return f"{len(patch.splitlines())} lines, {hashlib.sha256(patch.encode()).hexdigest()[:8]}"


def _source_diff(
    store: Store, first: Mapping[str, str], second: Mapping[str, str], now: Mapping[str, Path]
) -> str:
    """Return the unified diff of two states of custom code, given as file → digest.

    The store contains the texts of recorded states. If the second state is the current one, `now` contains
    the paths of its files; otherwise it is empty.
    """
    differing = differing_files(first, second)
    digests = {digest for name in differing for digest in (first.get(name), second.get(name)) if digest}
    current = script_texts(now[name] for name in differing if name in now)
    return unified_diff(first, second, texts(store, digests) | dict(current))


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    return {name: Pair(first.get(name), second.get(name)) for name in {**first, **second}}


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    return {name: pair for name, pair in _pairs(first, second).items() if pair.first != pair.second}
