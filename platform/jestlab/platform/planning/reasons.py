"""Find the reason why a run would run, and how it differs from the most similar completed run."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Action, Plan, PlannedRun
from jestlab.platform.spec.tree import Tree, flatten, lookup
from jestlab.platform.store.records import RunRecord

_ABSENT = "—"

_Run = PlannedRun | RunRecord
_Candidate = tuple[_Run, frozenset[object]]
"""A completed run, and the parts of its identity."""


@dataclass(frozen=True)
class RunReason:
    """Why a run would run.

    Attributes:
        reason: Why the run isn't complete, such as "new".
        nearest: Folder of the most similar completed run; None if there is none.
        differences: Dotted key → values "before", of the nearest run, and "now", if they differ.
    """

    reason: str
    nearest: str | None = None
    differences: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.nearest is None:
            return self.reason
        values = ((path, map(_text, pair.values())) for path, pair in self.differences.items())
        fields = ", ".join(f"{path} {' → '.join(pair)}" for path, pair in values)
        return f"{self.reason}; {self.nearest} differs in {fields}"


def reasons_to_run(plan: Plan, finished: Iterable[_Run]) -> dict[str, RunReason]:
    """Return why each run that a launch starts or resumes would run: fingerprint → reason.

    Args:
        plan: The plan, with the states of its runs.
        finished: All completed runs of the store.
    """
    candidates: dict[str, list[_Candidate]] = defaultdict(list)
    for run in finished:
        if (fields := _identity_fields(run)) is not None:
            candidates[run.program].append((run, _parts(fields)))
    return {
        run.fingerprint: _reason(run, candidates[run.program])
        for run in plan.runs
        if run.action is not Action.DONE
    }


def _reason(run: PlannedRun, candidates: Iterable[_Candidate]) -> RunReason:
    if run.action is Action.RESUME:
        return RunReason(f"{run.state} before: resumes from its latest checkpoint, if it has one")
    reason = "new" if run.state is None else f"{run.state} before: has not started yet"
    fields = _identity_fields(run)
    parts = _parts(fields or {})
    nearest, _ = min(candidates, key=lambda candidate: len(candidate[1] ^ parts), default=(None, parts))
    if nearest is None or fields is None:
        return RunReason(f"{reason}: the store has no completed run of {run.program}")
    before = _identity_fields(nearest) or {}
    differences = {
        path: {"before": _value(nearest, path, before), "now": _value(run, path, fields)}
        for path in {**before, **fields}
        if before.get(path) != fields.get(path)
    }
    return RunReason(reason, nearest.directory, differences)


def _parts(fields: Mapping[str, Any]) -> frozenset[object]:
    """Return fields as a set: two such sets differ in two elements for each field that differs."""
    pairs = ((path, json.dumps(value, sort_keys=True)) for path, value in fields.items())
    return frozenset([*fields, *pairs])


def _identity_fields(run: _Run) -> dict[str, Any] | None:
    """Return the fields of a run's identity, and role → fingerprint; None if the config is invalid."""
    try:
        program = programs.get(run.program)
        identity = program.identity(program.read(run.config))
    except (UserError, ValidationError):
        return None
    needs = {r: need if isinstance(need, str) else need.fingerprint for r, need in run.needs.items()}
    return flatten(identity) | {role: fingerprint[:8] for role, fingerprint in needs.items()}


def _value(run: _Run, path: str, fields: Mapping[str, Any]) -> Any:
    """Return a field's value. Identities omit fields at their default, so also look in the whole config."""
    if path in fields:
        return fields[path]
    config: Tree = run.config
    try:
        return lookup(config, path.split("."))
    except KeyError:
        return _ABSENT


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
