"""Why a run would run: what is new about it, field by field."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.plan import Action, Plan, PlannedRun
from jestlab.platform.spec.tree import Tree, flatten, lookup
from jestlab.platform.store.records import FinishedRun

_ABSENT = "—"


@dataclass(frozen=True)
class Difference:
    """A field in which a run differs from a finished one.

    Attributes:
        path: Dotted key.
        before: The finished run's value.
        now: The run's.
    """

    path: str
    before: Any
    now: Any


@dataclass(frozen=True)
class Why:
    """Why a run would run.

    Attributes:
        reason: In words.
        nearest: Folder of the finished run that is most like it.
        differences: From that one.
    """

    reason: str
    nearest: str | None = None
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        if self.nearest is None:
            return self.reason
        fields = ", ".join(f"{d.path} {_text(d.before)} → {_text(d.now)}" for d in self.differences)
        return f"{self.reason}; {self.nearest} differs in {fields}"


def explain(plan: Plan, finished: Iterable[FinishedRun]) -> dict[str, Why]:
    """Why the runs of a plan that are not done would run.

    Args:
        plan: Compared with the store.
        finished: What the store has completed.

    Returns:
        Fingerprint → why.
    """
    candidates: dict[str, _Candidates] = defaultdict(_Candidates)
    for run in finished:
        candidates[run.program].add(run)
    return {
        run.fingerprint: _why(run, candidates[run.program])
        for run in plan.runs
        if run.action is not Action.DONE
    }


def _why(run: PlannedRun, candidates: _Candidates) -> Why:
    if run.action is Action.RESUME:
        return Why(f"{run.state} before: goes on from its last checkpoint, if it has one")
    reason = "new" if run.state is None else f"{run.state} before: has not started yet"
    items = _items(run.program, run.config, run.needs)
    nearest = candidates.nearest(items or {})
    if nearest is None or items is None:
        return Why(f"{reason}: the store has no finished run of {run.program}")
    theirs = _items(nearest.program, nearest.config, nearest.needs) or {}
    changed = [path for path in {**theirs, **items} if theirs.get(path) != items.get(path)]
    differences = tuple(
        Difference(path, _value(nearest, path, theirs), _value(run, path, items)) for path in changed
    )
    return Why(reason, nearest.directory, differences)


class _Candidates:
    """Finished runs of one program as sets of fields and of their values, a bit each: quick to compare."""

    def __init__(self) -> None:
        self._bits: dict[object, int] = {}
        self._runs: list[tuple[int, int, FinishedRun]] = []

    def add(self, run: FinishedRun) -> None:
        """Take a run in, unless the program no longer understands its config."""
        items = _items(run.program, run.config, run.needs)
        if items is not None:
            self._runs.append((*self._masks(items), run))

    def nearest(self, items: Mapping[str, Any]) -> FinishedRun | None:
        """The run with the fewest differing fields; the first of several."""
        fields, pairs = self._masks(items)
        return min(
            self._runs,
            key=lambda known: (known[0] | fields).bit_count() - (known[1] & pairs).bit_count(),
            default=(0, 0, None),
        )[2]

    def _masks(self, items: Mapping[str, Any]) -> tuple[int, int]:
        """Bits of the fields and of the pairs."""
        fields = pairs = 0
        for path, value in items.items():
            fields |= 1 << self._bits.setdefault(path, len(self._bits))
            pairs |= 1 << self._bits.setdefault((path, json.dumps(value, sort_keys=True)), len(self._bits))
        return fields, pairs


def _items(program: str, config: Tree, needs: Mapping[str, str]) -> dict[str, Any] | None:
    """What decides a result, flat: fields of the identity, with fingerprints for the names of needed runs."""
    try:
        its_program = programs.get(program)
        schema = its_program.schema
        identity = its_program.identity(config if schema is None else schema.model_validate(config))
    except (UserError, ValidationError):
        return None
    return flatten(identity) | {role: fingerprint[:8] for role, fingerprint in needs.items()}


def _value(run: PlannedRun | FinishedRun, path: str, items: Mapping[str, Any]) -> Any:
    """A field's value; identities leave defaults out, whole configs do not."""
    if path in items:
        return items[path]
    try:
        return lookup(run.config, path.split("."))
    except KeyError:
        return _ABSENT


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
