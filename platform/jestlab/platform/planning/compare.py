"""Compare two runs, or a run with the current code and data, field by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError
from sqlalchemy import Connection, func, select
from sqlalchemy.orm import aliased

from jestlab.analysis.costs import COMPONENTS
from jestlab.analysis.mixing import OWN_PROGRAMS, contributing, differing_files, unified_diff
from jestlab.platform import programs
from jestlab.platform.digests import digest_of
from jestlab.platform.errors import UserError
from jestlab.platform.planning.changes import attempts_of
from jestlab.platform.programs.sources import sources_of
from jestlab.platform.spec.schema import Record
from jestlab.platform.spec.tree import flatten
from jestlab.platform.store.code import script_texts, texts
from jestlab.platform.store.judgments import retracted
from jestlab.platform.store.tables import AttemptRow, BudgetRow, CostRow, EvaluationRow, NeedRow, RunRow

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store

Value = TypeVar("Value")


class Pair(NamedTuple, Generic[Value]):
    """The values of both runs; None if a run has none."""

    first: Value | None
    second: Value | None


@dataclass(frozen=True)
class CodeComparison:
    """How custom code and data of two runs, or of a run and now, differ.

    Attributes:
        known: Whether the code was recorded, or is jestlab's.
        code: File → digests, where they differ; None if the file is missing. Of two runs, also the commit and
            the patch of the repository.
        data: Recorded file → digests, where they differ.
        source: Unified diff of the code, as far as its text is stored.
    """

    known: bool
    code: Mapping[str, Pair[str]]
    data: Mapping[str, Pair[str]]
    source: str


@dataclass(frozen=True)
class RunComparison(CodeComparison):
    """How two runs differ.

    Attributes, in addition to those of code and data:
        fingerprints: Their fingerprints.
        states: Their states in the store.
        retracted: Fingerprint → reason, of retracted runs.
        config: Dotted key → values, where they differ. Missing fields have their default.
        needs: Role → fingerprints of the dependencies, where they differ.
        provenance: Differences in jestlab's code, and in machine and environment of the last attempts.
        scores: dataset/metric → the last scores.
        costs: Planned FLOPs and chip-hours, and the seconds of all attempts.
    """

    fingerprints: Pair[str]
    states: Pair[str]
    retracted: Mapping[str, str]
    config: Mapping[str, Pair[Any]]
    needs: Mapping[str, Pair[str]]
    provenance: Mapping[str, Pair[Any]]
    scores: Mapping[str, Pair[float]]
    costs: Mapping[str, Pair[float]]


def compare(store: Store, first: str, second: str) -> RunComparison:
    """Compare two runs by their fingerprints.

    Raises:
        UserError: A run isn't in the store.
    """
    with store.reading() as connection:
        one, other = (_read(connection, fingerprint) for fingerprint in (first, second))
    names = ("config", "needs", "code", "data", "provenance")
    differences = {name: _differing(one[name], other[name]) for name in names}
    if not (known := one["known"] and other["known"]):
        differences["code"] = one["sources"] = other["sources"] = {}
    return RunComparison(
        fingerprints=Pair(first, second),
        states=Pair(one["state"], other["state"]),
        retracted={row.fingerprint: row.reason for row in retracted(store)},
        known=known,
        source=_source_diff(store, one["sources"], other["sources"]),
        scores=_pairs(one["scores"], other["scores"]),
        costs=_pairs(one["costs"], other["costs"]),
        **differences,
    )


def compare_with_now(store: Store, fingerprint: str) -> CodeComparison:
    """Compare the code and data of a run with the current files."""
    run = store.run(fingerprint)
    attempts = contributing(attempts_of(store, [fingerprint])[fingerprint])
    last = attempts[-1] if attempts else {"sources": None, "inputs": None}
    then = json.loads(last["sources"] or "{}")
    sources = None if last["sources"] is None else sources_of(run.program, run.config, Path.cwd())
    now = {} if sources is None else sources.digests()
    files: dict[str, Path] = {}
    for _, study in store.studies(fingerprint):
        files |= Record.model_validate(study.get("record", {})).named_files()
    data = json.loads(last["inputs"] or "{}")
    data_now = {name: digest_of(path) for name, path in files.items() if name in data}
    return CodeComparison(
        known=last["sources"] is not None or run.program in OWN_PROGRAMS,
        code=_differing(then, now),
        data=_differing(data, data_now),
        source=_source_diff(store, then, now, {} if sources is None else sources.files),
    )


def _read(connection: Connection, fingerprint: str) -> dict[str, Any]:
    """Read the compared values of one run, by name."""
    run = connection.execute(select(RunRow.__table__).where(RunRow.fingerprint == fingerprint)).one_or_none()
    if run is None:
        raise UserError(f"no run {fingerprint[:8]} in the store")
    needed = aliased(RunRow)
    needs = connection.execute(
        select(NeedRow.role, needed.fingerprint)
        .join(needed, needed.id == NeedRow.needs_id)
        .where(NeedRow.run_id == run.id)
        .order_by(NeedRow.role)
    )
    attempts = connection.execute(
        select(AttemptRow.__table__).where(AttemptRow.run_id == run.id).order_by(AttemptRow.number)
    ).all()
    last_step = select(func.max(EvaluationRow.step)).where(EvaluationRow.run_id == run.id).scalar_subquery()
    scores = connection.execute(
        select(EvaluationRow.dataset, EvaluationRow.metric, EvaluationRow.value)
        .where(EvaluationRow.run_id == run.id, EvaluationRow.step == last_step)
        .order_by(EvaluationRow.dataset, EvaluationRow.metric)
    )
    planned = connection.execute(select(CostRow.component, CostRow.flops).where(CostRow.run_id == run.id))
    budget = connection.execute(select(BudgetRow.__table__).where(BudgetRow.run_id == run.id)).one_or_none()
    last = attempts[-1] if attempts else None
    sources = json.loads(last.sources or "{}") if last else {}
    repository = {"commit": last.code_commit, "patch": _patch(last.code_patch)} if last else {}
    return {
        "state": run.state,
        "config": {"program": run.program, "seed": run.seed} | flatten(_config(run)),
        "needs": dict(needs.tuples().all()),
        "known": run.program in OWN_PROGRAMS or bool(last and last.sources is not None),
        "code": sources | repository,
        "data": json.loads(last.inputs or "{}") if last else {},
        "sources": sources,
        "provenance": _provenance(last) if last else {},
        "scores": {f"{dataset}/{metric}": value for dataset, metric, value in scores},
        "costs": _costs(dict(planned.tuples().all()), budget, attempts),
    }


def _config(run: Any) -> dict[str, Any]:
    """Return the run's config, with defaults for fields added since."""
    config: dict[str, Any] = json.loads(run.config)
    try:
        program = programs.get(run.program)
        return config if program.schema is None else program.read(config).model_dump(mode="json")
    except (UserError, ValidationError):  # the program is gone or has changed
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


def _patch(patch: str | None) -> str | None:
    """Summarize a patch by its length and digest."""
    if not patch:
        return None
    return f"{len(patch.splitlines())} lines, {hashlib.sha256(patch.encode()).hexdigest()[:8]}"


def _costs(planned: Mapping[str, float], budget: Any, attempts: Iterable[Any]) -> dict[str, float | None]:
    costs: dict[str, float | None] = {f"{name}_flops": flops for name, flops in sorted(planned.items())}
    if planned:
        # Imported runs have "learner" instead of its components.
        components = ("learner", *COMPONENTS["learner"], *COMPONENTS["scoring"])
        costs["total_flops"] = sum(planned.get(name, 0.0) for name in components)
    if budget is not None:
        costs |= {"chip_hours": budget.chip_hours, "dollars": budget.dollars}
    started = [attempt for attempt in attempts if attempt.started_at is not None]
    if started:
        costs["seconds"] = sum(
            ((attempt.ended_at or attempt.heartbeat_at) - attempt.started_at).total_seconds()
            for attempt in started
        )
    return costs


def _source_diff(
    store: Store, first: Mapping[str, str], second: Mapping[str, str], now: Mapping[str, Path] | None = None
) -> str:
    """Return the unified diff of two states of custom code, given as file → digest.

    The store has the texts of stored states; `now` has the paths of the files if the second state is the
    current one.
    """
    differing = differing_files(first, second)
    digests = {digest for name in differing for digest in (first.get(name), second.get(name)) if digest}
    known = texts(store, digests)
    known |= dict(script_texts(now[name] for name in differing if now and name in now))
    return unified_diff(first, second, known)


def _pairs(first: Mapping[str, Value | None], second: Mapping[str, Value | None]) -> dict[str, Pair[Value]]:
    return {name: Pair(first.get(name), second.get(name)) for name in {**first, **second}}


def _differing(
    first: Mapping[str, Value | None], second: Mapping[str, Value | None]
) -> dict[str, Pair[Value]]:
    return {name: pair for name, pair in _pairs(first, second).items() if pair.first != pair.second}
