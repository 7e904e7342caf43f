"""Check that what a study mentions is there: metrics that somebody measures, keys and columns of runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from jestlab.analysis.claims import parse_claims
from jestlab.analysis.claims.measures import SPIKES, is_score
from jestlab.analysis.configs import BATCH_SIZE, flat, lookup
from jestlab.analysis.metrics import Goal, Metric, Metrics
from jestlab.analysis.units import near
from jestlab.platform import programs
from jestlab.platform.errors import Path, SpecError, nearest, within
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.spec import mentions
from jestlab.platform.spec.tree import STUDIES

_BY_SCORE = ("curves", "pareto", "speedup", "against", "step_costs")
"""Reports that show the score, and no metric beside it."""

_COLUMNS = "runtime.diagnostics.columns"


def check(plan: Plan, recorded: Callable[[], Collection[str]] = tuple) -> None:
    """Check the names in a study, in a union those of each part and then its own.

    Args:
        plan: The study's plan.
        recorded: Returns the names of all metrics and evaluations in the store; it is asked at most once, and
            only if a name is declared by nobody.

    Raises:
        SpecError: Nobody declares or has recorded a metric that score, claims or reports mention; metrics of
            different goals or units make the score; a claim is of something "better", and nobody says what
            is better; no run has a config key that a report compares by, or counts by its column. The place
            and the remedy are named.
    """
    asked = cache(recorded)
    for part in plan.parts:
        with within(STUDIES, part.study.name):
            _check_study(part, asked)
    if not plan.parts:
        _check_study(plan, asked)


def _check_study(plan: Plan, recorded: Callable[[], Collection[str]]) -> None:
    spec = plan.study.to_dict()
    names = _Names(plan.runs, Metrics.of_spec(spec, (run.program for run in plan.runs)), recorded)
    for mention in mentions.metrics(spec):
        names.check(mention)
    names.check_scores(spec)
    configs = [run.config for run in plan.runs]
    for mention in mentions.keys(spec):
        if mention.name != BATCH_SIZE and all(lookup(config, mention.name) is None for config in configs):
            known = dict.fromkeys(key for config in configs for key in flat(config))
            raise SpecError(
                mention.path, f"no run has {mention.name!r} in its config: {nearest(mention.name, known)}"
            )
    counted = {column for config in configs for column in lookup(config, _COLUMNS) or ()}
    for mention in mentions.columns(spec):
        if mention.name not in counted:
            raise SpecError(
                mention.path,
                f"no run counts what it selects by {mention.name!r}: name that column in {_COLUMNS}",
            )


class _Names:
    """What the runs of a study measure, and what that means."""

    def __init__(
        self, runs: Iterable[PlannedRun], declared: Metrics, recorded: Callable[[], Collection[str]]
    ) -> None:
        self.declared = declared
        self._recorded = recorded
        self._patterns: dict[str, None] = dict.fromkeys(declared.declared)
        for run in runs:
            self._patterns |= dict.fromkeys(_recorded_by(run))

    def check(self, mention: mentions.Mention) -> None:
        """Check that somebody measures a metric."""
        name = mention.name
        if any(name == pattern or fnmatchcase(name, pattern) for pattern in self._patterns):
            return
        if name in (recorded := self._recorded()):
            return
        known = [pattern for pattern in self._patterns if "*" not in pattern]
        hint = near(name, [*known, *recorded])
        declare = f"declare what the program measures, metrics: {{{name}: {{goal: max}}}} or {{goal: min}}"
        raise SpecError(mention.path, f"nothing declares or has recorded {name!r}: {hint or declare}")

    def check_scores(self, spec: Mapping[str, Any]) -> None:
        """Check that the score means something wherever it is shown or compared."""
        own = list(spec.get("score") or ())
        named = [name for name in self.declared.names if "/" in name]
        score = self._mean(own, ("score",)) if own else None
        for i, report in enumerate(spec.get("reports") or ()):
            if report.get("score"):
                self._mean(report["score"], ("reports", str(i), "score"))
            elif not own and named and report["kind"] in _BY_SCORE:
                self._mean(named, ("score",))
        for i, claim in enumerate(parse_claims(list(spec.get("claims") or ()))):
            for measure in claim.measures:
                of_score = is_score(measure)
                if of_score and not own and named:
                    score = self._mean(named, ("score",))
                goal = self._goal(score) if of_score else self.declared.of(measure).goal
                if claim.comparison == "better_than" and goal is None and measure != SPIKES:
                    name = (own or named or ["*"])[0] if of_score else measure
                    raise SpecError(
                        ("claims", str(i), "better_than"),
                        f"nothing says which {measure} is better: metrics: {{{name}: {{goal: max}}}} or "
                        "{goal: min}; or claim that it is `above` or `below`",
                    )

    def _goal(self, score: Metric | None) -> Goal | None:
        """The goal of the score; where the study names no evaluation, that of all that programs declare."""
        if score is not None:
            return score.goal
        goals = {self.declared.of(pattern).goal for pattern in self._patterns if "/" in pattern} - {None}
        return goals.pop() if len(goals) == 1 else None

    def _mean(self, names: list[str], path: Path) -> Metric:
        """What the mean of metrics means."""
        try:
            return self.declared.mean(names)
        except ValueError as error:
            raise SpecError(path, str(error)) from None


def _recorded_by(run: PlannedRun) -> Collection[str]:
    """Return patterns of what a run records; none of a program that does not say."""
    program = programs.get(run.program)
    if program.records is None:
        return ()
    return program.records(program.read(run.config))
