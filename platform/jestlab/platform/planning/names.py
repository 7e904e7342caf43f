"""Check that names in a study exist: the metrics, the config keys, and the metadata columns that it
mentions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from jestlab.analysis.claims import parse_claims
from jestlab.analysis.claims.measures import SPIKES, is_score
from jestlab.analysis.configs import BATCH_SIZE, flat, lookup
from jestlab.analysis.metrics import Goal, Metric, Metrics
from jestlab.analysis.units import near, some
from jestlab.platform import programs
from jestlab.platform.errors import Path, SpecError, UserError, dotted, nearest, within
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.spec.tree import STUDIES

_SCORE_REPORTS = ("curves", "pareto", "speedup", "against", "step_costs")
"""Reports that show only the score."""

_COLUMNS = "runtime.diagnostics.columns"
_LOSS = "loss"  # the metric in which spikes are counted
_COMPOSITION = "composition"  # the report whose `x` is a metadata column instead of a config key


def check(plan: Plan, recorded: Callable[[], Collection[str]] = tuple) -> None:
    """Check the names in a study; in a union, those in each part.

    Args:
        plan: The study's plan.
        recorded: Returns the names of all metrics and evaluations in the store. It is called at most once,
            and only if a name isn't declared.

    Raises:
        SpecError: A metric of the score, a claim, or a report is neither declared nor recorded; the score's
            metrics differ in goal or unit; a claim uses `better_than` for a metric without a goal; or no run
            has a config key or column that a report uses.
    """
    recorded = cache(recorded)
    for part in plan.parts:
        with within(STUDIES, part.study.name):
            _check_study(part, recorded)
    if not plan.parts:
        _check_study(plan, recorded)


def _check_study(plan: Plan, recorded: Callable[[], Collection[str]]) -> None:
    spec = plan.study.to_dict()
    names = _Names(plan.runs, Metrics.of_spec(spec, (run.program for run in plan.runs)), recorded)
    for path, metric in _metrics(spec):
        names.check(path, metric)
    names.check_scores(spec)
    configs = [run.config for run in plan.runs]
    for path, key in _keys(spec):
        if key != BATCH_SIZE and all(lookup(config, key) is None for config in configs):
            known = dict.fromkeys(each for config in configs for each in flat(config))
            raise SpecError(path, f"no run has {key!r} in its config: {nearest(key, known)}")
    columns = {column for config in configs for column in lookup(config, _COLUMNS) or ()}
    for i, report in enumerate(spec.get("reports") or ()):
        column = report.get("x") if report["kind"] == _COMPOSITION else None
        if column is not None and column not in columns:
            message = f"no run counts selected examples by {column!r}: add that column to {_COLUMNS}"
            raise SpecError(("reports", str(i), "x"), message)


def _metrics(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the metrics that a study's score, claims, and reports use, each with its place."""
    yield from ((("score", str(i)), name) for i, name in enumerate(spec.get("score") or ()))
    for i, claim in enumerate(parse_claims(list(spec.get("claims") or ()))):
        for measure in dict.fromkeys(claim.measures):
            if not is_score(measure):
                yield ("claims", str(i), "measure"), _LOSS if measure == SPIKES else measure
    for i, report in enumerate(spec.get("reports") or ()):
        default = (_LOSS,) if report["kind"] == "optimizer_spikes" else ()
        for option, names in (("score", report.get("score")), ("metric", report.get("metric") or default)):
            yield from ((("reports", str(i), option, str(j)), name) for j, name in enumerate(names or ()))


def _keys(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the config keys by which a study's reports compare runs, each with its place."""
    for i, report in enumerate(spec.get("reports") or ()):
        place = ("reports", str(i))
        for option in ("x", "split"):
            if report.get(option) is not None and report["kind"] != _COMPOSITION:
                yield (*place, option), report[option]
        yield from (((*place, "by", str(j)), key) for j, key in enumerate(report.get("by") or ()))


class _Names:
    """The metrics of a study's runs, and their goals and units."""

    def __init__(
        self, runs: Iterable[PlannedRun], declared: Metrics, recorded: Callable[[], Collection[str]]
    ) -> None:
        self.declared = declared
        self._recorded = recorded
        self._patterns: dict[str, None] = dict.fromkeys(declared.declared)
        for run in runs:
            program = programs.get(run.program)
            self._patterns |= dict.fromkeys(program.records(program.read(run.config)))

    def check(self, path: Path, name: str) -> None:
        """Check that a metric is declared or recorded."""
        if any(name == pattern or fnmatchcase(name, pattern) for pattern in self._patterns):
            return
        if name in (recorded := self._recorded()):
            return
        known = [pattern for pattern in self._patterns if "*" not in pattern]
        hint = near(name, [*known, *recorded])
        declare = f"declare the metric, metrics: {{{name}: {{goal: max}}}} or {{goal: min}}"
        raise SpecError(path, f"{name!r} is neither declared nor recorded: {hint or declare}")

    def check_scores(self, spec: Mapping[str, Any]) -> None:
        """Check that the score is well defined wherever it is shown or compared."""
        own = list(spec.get("score") or ())
        evaluations = [name for name in self.declared.names if "/" in name]
        score = self._mean(own, ("score",)) if own else None
        for i, report in enumerate(spec.get("reports") or ()):
            if report.get("score"):
                self._mean(report["score"], ("reports", str(i), "score"))
            elif not own and evaluations and report["kind"] in _SCORE_REPORTS:
                self._mean(evaluations, ("score",))
        for i, claim in enumerate(parse_claims(list(spec.get("claims") or ()))):
            for measure in claim.measures:
                of_score = is_score(measure)
                if of_score and not own and evaluations:
                    score = self._mean(evaluations, ("score",))
                goal = self._score_goal(score) if of_score else self.declared.of(measure).goal
                if claim.comparison == "better_than" and goal is None and measure != SPIKES:
                    name = (own or evaluations or ["*"])[0] if of_score else measure
                    raise SpecError(
                        ("claims", str(i), "better_than"),
                        f"{measure} has no goal: declare it, metrics: {{{name}: {{goal: max}}}} or "
                        "{goal: min}; or use `above` or `below` in the claim",
                    )

    def _score_goal(self, score: Metric | None) -> Goal | None:
        """Return the goal of the score; by default, the goal that all evaluations of the programs share."""
        if score is not None:
            return score.goal
        goals = {self.declared.of(pattern).goal for pattern in self._patterns if "/" in pattern} - {None}
        return goals.pop() if len(goals) == 1 else None

    def _mean(self, names: list[str], path: Path) -> Metric:
        try:
            return self.declared.mean(names)
        except ValueError as error:
            raise SpecError(path, str(error)) from None


def check_first(experiment: str, spec: Mapping[str, Any], program: str, scores: Collection[str]) -> None:
    """Check the names in a run's first evaluation, before the run spends its budget.

    A missing name can still come later, for example from a final test. But next to an undeclared name, it is
    most likely the same metric under another name.

    Args:
        experiment: Name of the study.
        spec: The study, as written.
        program: Name of the run's program.
        scores: Names (dataset/metric) that the run has reported.

    Raises:
        UserError: A required name is missing, and another name isn't declared.
    """
    declared = Metrics.of_spec(spec, [program])
    missing = [(path, name) for path, name in _metrics(spec) if "/" in name and name not in scores]
    unknown = [name for name in scores if declared.find(name) is None]
    if not missing or not unknown:
        return
    path, name = missing[0]
    hint = near(name, scores)
    raise UserError(
        f"the first evaluation reports {some(unknown)}, which {experiment} doesn't declare, but not {name}, "
        f"which its {dotted(path)} requires{f' ({hint})' if hint else ''}: fix the name in the spec or the "
        f"program; if the run reports {name} later, declare {unknown[0]} under `metrics` as well"
    )
