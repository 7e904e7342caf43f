"""Compare two runs, or a run with the current code and data, field by field."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import func, select, text

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
from jestlab.platform.store.records import RunRecord
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, EvaluationRow, run_key

SECTIONS = ("config", "needs", "code", "data", "provenance")
"""Sections of a comparison; only code and data with the current files."""


def compare(store: Store, first: str, second: str) -> dict[str, Any]:
    """Compare two runs by their fingerprints.

    Returns:
        Plain data:
        - runs: fingerprint, state, and the reason if it is retracted;
        - each of `SECTIONS`: key → both values if they differ, None for a missing value. config has dotted
          keys, and defaults for missing fields; needs has fingerprints by role; code and data have digests of
          files, and code also has the commit and the patch of the repository; provenance has the last
          attempt's version of jestlab, machine, and environment;
        - known: whether the code of both runs was recorded, or is part of jestlab;
        - source: the unified diff of the code, for files whose text is stored;
        - scores (by dataset/metric, at the last step) and costs (columns of `v_costs`): name → first, second,
          second_minus_first.

    Raises:
        UserError: A run isn't in the store.
    """
    runs = store.run(first), store.run(second)
    one, other = (_read(store, run) for run in runs)
    reasons = {row.fingerprint: row.reason for row in retracted(store)}
    known = one["sources"] is not None and other["sources"] is not None
    if not known:
        one |= {"code": {}, "sources": {}}
        other |= {"code": {}, "sources": {}}
    return {
        "runs": [
            {"fingerprint": run.fingerprint, "state": run.state, "retracted": reasons.get(run.fingerprint)}
            for run in runs
        ],
        "known": known,
        **{name: _differences(one[name], other[name]) for name in SECTIONS},
        "source": _source_diff(store, one["sources"], other["sources"], {}),
        **{name: _numbers(one[name], other[name]) for name in ("scores", "costs")},
    }


def compare_with_now(store: Store, fingerprint: str) -> dict[str, Any]:
    """Compare a run with the current files: known, code, data, and source, as in `compare`."""
    run = store.run(fingerprint)
    attempts = contributing(attempts_of(store, [fingerprint])[fingerprint])
    last = attempts[-1] if attempts else {"sources": None, "inputs": None}
    then, data = (json.loads(last[name] or "{}") for name in ("sources", "inputs"))
    files = {} if last["sources"] is None else sources_of(run.program, run.config) or {}
    now = digests_of(files)
    inputs: dict[str, Path] = {}
    for _, study in store.studies(fingerprint):
        inputs |= Record.model_validate(study.get("record", {})).named_files()
    return {
        "known": last["sources"] is not None or run.program in OWN_PROGRAMS,
        "code": _differences(then, now),
        "data": _differences(data, {name: digest_of(path) for name, path in inputs.items() if name in data}),
        "source": _source_diff(store, then, now, files),
    }


def _read(store: Store, run: RunRecord) -> dict[str, Any]:
    """Read the values of a run to compare, by section; "sources" is None if the code wasn't recorded."""
    is_run = EvaluationRow.run_id == run_key(run.fingerprint)
    last_step = select(func.max(EvaluationRow.step)).where(is_run).scalar_subquery()
    evaluations = (
        select(EvaluationRow.dataset, EvaluationRow.metric, EvaluationRow.value)
        .where(is_run, EvaluationRow.step == last_step)
        .order_by(EvaluationRow.dataset, EvaluationRow.metric)
    )
    attempts = (
        select(AttemptRow.__table__)
        .where(AttemptRow.run_id == run_key(run.fingerprint))
        .order_by(AttemptRow.number)
    )
    # In several experiments, a run has the same costs.
    priced = text("SELECT * FROM v_costs WHERE fingerprint = :run LIMIT 1").bindparams(run=run.fingerprint)
    costs = {name: value for row in store.rows(priced) for name, value in row._mapping.items()}
    # A run that was never started has no attempt.
    last: Mapping[str, Any] = defaultdict(lambda: None)
    for row in store.rows(attempts):
        last = row._mapping
    sources, data, versions, environment = (
        json.loads(last[name]) if last[name] else None
        for name in ("sources", "inputs", "versions", "environment")
    )
    if sources is None and run.program in OWN_PROGRAMS:
        sources = {}
    return {
        "config": {"program": run.program, "seed": run.seed} | flatten(_with_defaults(run)),
        "needs": {role: need.fingerprint for role, need in run.needs.items()},
        "sources": sources,
        "code": (sources or {}) | {"commit": last["code_commit"], "patch": _patch(last["code_patch"])},
        "data": data or {},
        "provenance": {
            "jestlab.commit": last["git_commit"],
            "jestlab.patch": _patch(last["git_patch"]),
            **{name: last[name] for name in ("device", "host", "executor", "chips")},
            **{f"versions.{name}": version for name, version in sorted((versions or {}).items())},
            **{f"environment.{name}": value for name, value in sorted((environment or {}).items())},
        },
        "scores": {f"{row.dataset}/{row.metric}": row.value for row in store.rows(evaluations)},
        "costs": {name: costs[name] for name in costs if name.endswith(("flops", "hours", "dollars"))},
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


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    pairs = {name: [first.get(name), second.get(name)] for name in {**first, **second}}
    return {name: [one, other] for name, (one, other) in pairs.items() if one != other}


def _numbers(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    numbers = {}
    for name in {**first, **second}:
        one, other = first.get(name), second.get(name)
        change = None if one is None or other is None else other - one
        if (one, other) != (None, None):
            numbers[name] = {"first": one, "second": other, "second_minus_first": change}
    return numbers
