"""Explain why a run would run: how it differs from the most similar completed run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Action, Plan, PlannedRun
from jestlab.platform.spec.tree import Tree, flatten, lookup
from jestlab.platform.store.records import FinishedRun

_ABSENT = "—"


@dataclass(frozen=True)
class Difference:
    """A field in which a run differs from a completed run, by its dotted key."""

    path: str
    before: Any
    now: Any


@dataclass(frozen=True)
class RunReason:
    """Why a run would run, with its differences from the most similar completed run, named by its folder."""

    reason: str
    nearest: str | None = None
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        if self.nearest is None:
            return self.reason
        fields = ", ".join(f"{d.path} {_text(d.before)} → {_text(d.now)}" for d in self.differences)
        return f"{self.reason}; {self.nearest} differs in {fields}"


def explain(plan: Plan, finished: Iterable[FinishedRun]) -> dict[str, RunReason]:
    """Explain for each run that a launch starts or resumes why it would run, by its fingerprint.

    Args:
        plan: The plan, with the states of its runs.
        finished: All completed runs of the store.
    """
    candidates: dict[str, _Candidates] = defaultdict(_Candidates)
    for run in finished:
        candidates[run.program].add(run)
    return {
        run.fingerprint: _reason(run, candidates[run.program])
        for run in plan.runs
        if run.action is not Action.DONE
    }


def _reason(run: PlannedRun, candidates: _Candidates) -> RunReason:
    if run.action is Action.RESUME:
        return RunReason(f"{run.state} before: resumes from its latest checkpoint, if it has one")
    reason = "new" if run.state is None else f"{run.state} before: has not started yet"
    fields = _identity_fields(run)
    nearest = candidates.nearest(fields or {})
    if nearest is None or fields is None:
        return RunReason(f"{reason}: the store has no completed run of {run.program}")
    before = _identity_fields(nearest) or {}
    differences = tuple(
        Difference(path, _value(nearest, path, before), _value(run, path, fields))
        for path in {**before, **fields}
        if before.get(path) != fields.get(path)
    )
    return RunReason(reason, nearest.directory, differences)


class _Candidates:
    """Completed runs of one program. Each field, and each pair of field and value, is a bit, for fast
    comparison."""

    def __init__(self) -> None:
        self._bits: dict[object, int] = {}
        self._runs: list[tuple[int, int, FinishedRun]] = []

    def add(self, run: FinishedRun) -> None:
        """Add a run, unless its config has become invalid."""
        fields = _identity_fields(run)
        if fields is not None:
            self._runs.append((*self._masks(fields), run))

    def nearest(self, fields: Mapping[str, Any]) -> FinishedRun | None:
        """Return the first run with the fewest differing fields."""
        keys, pairs = self._masks(fields)
        return min(
            self._runs,
            key=lambda entry: (entry[0] | keys).bit_count() - (entry[1] & pairs).bit_count(),
            default=(0, 0, None),
        )[2]

    def _masks(self, fields: Mapping[str, Any]) -> tuple[int, int]:
        """Return the bits of the fields, and of the pairs of field and value."""
        keys = pairs = 0
        for path, value in fields.items():
            keys |= 1 << self._bits.setdefault(path, len(self._bits))
            pairs |= 1 << self._bits.setdefault((path, json.dumps(value, sort_keys=True)), len(self._bits))
        return keys, pairs


def _identity_fields(run: PlannedRun | FinishedRun) -> dict[str, Any] | None:
    """Return the fields of a run's identity, with fingerprints as names of dependencies; None if invalid."""
    try:
        program = programs.get(run.program)
        identity = program.identity(program.read(run.config))
    except (UserError, ValidationError):
        return None
    return flatten(identity) | {role: fingerprint[:8] for role, fingerprint in run.needs.items()}


def _value(run: PlannedRun | FinishedRun, path: str, fields: Mapping[str, Any]) -> Any:
    """Return a field's value. Identities omit defaults, but whole configs don't."""
    if path in fields:
        return fields[path]
    config: Tree = run.config
    try:
        return lookup(config, path.split("."))
    except KeyError:
        return _ABSENT


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
