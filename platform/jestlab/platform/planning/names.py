"""Check that the metrics, config keys, and metadata columns that a study mentions exist."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from jestlab.analysis.claims import Claim, parse_claims
from jestlab.analysis.claims.claim import BOTH, LOSS, SPIKES, is_score
from jestlab.analysis.claims.ladder import sizes_of
from jestlab.analysis.configs import BATCH_SIZE, flat, lookup
from jestlab.analysis.efforts import EFFORTS
from jestlab.analysis.metrics import OF_PROGRAM, UNKNOWN, Goal, Metric, Metrics, lacks_goal
from jestlab.analysis.names import Names
from jestlab.analysis.units import near, some
from jestlab.platform import programs
from jestlab.platform.errors import Path, SpecError, UserError, dotted, nearest, within
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.tree import STUDIES

_SCORE_REPORTS = ("curves", "pareto", "speedup", "against", "scaling", "step_costs")
"""Reports that show only the score."""

_COLUMNS = "runtime.diagnostics.columns"
_COMPOSITION = "composition"  # the report whose `x` is a metadata column instead of a config key


def check(plan: Plan, recorded: Callable[[], Collection[str]] = tuple) -> None:
    """Check the names in a study; in a union, those in each part.

    Args:
        plan: The study's plan.
        recorded: Returns the names of all metrics and evaluations in the store. It is called at most once,
            and only if a name isn't declared.

    Raises:
        SpecError: A metric of the score, a claim, or a report is neither declared nor recorded; the score's
            metrics differ in goal or unit; a claim uses `better_than`, or chooses the best run, for a metric
            without a goal; the metric that chooses is in the score; or no run has a config key or column that
            a report uses, or a claim about an exponent has too few sizes.
    """
    recorded = cache(recorded)
    for part in plan.parts:
        with within(STUDIES, part.study.name):
            _check_study(part, recorded)
    if not plan.parts:
        _check_study(plan, recorded)


def _check_study(plan: Plan, recorded: Callable[[], Collection[str]]) -> None:
    spec, configs = plan.study.to_dict(), [run.config for run in plan.runs]
    declared = Metrics.of_spec(spec, (run.program for run in plan.runs))
    patterns = dict.fromkeys(declared.declared)
    for run in plan.runs:
        program = programs.get(run.program)
        recorded_by: Collection[str] = OF_PROGRAM.get(run.program, ())
        if program.records is not None:
            recorded_by = program.records(program.read(run.config))
        patterns |= dict.fromkeys(recorded_by)
    for path, name in metrics_used(spec):
        if name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns) or name in recorded():
            continue
        hint = near(name, [*(pattern for pattern in patterns if "*" not in pattern), *recorded()])
        declare = f"declare the metric, metrics: {{{name}: {{goal: max}}}} or {{goal: min}}"
        raise SpecError(path, f"{name!r} is neither declared nor recorded: {hint or declare}")
    _check_scores(spec, declared, [declared.of(pattern).goal for pattern in patterns if "/" in pattern])
    columns = {column for config in configs for column in lookup(config, _COLUMNS) or ()}
    for path, key in _keys(spec):
        if path[-1] == _COMPOSITION:
            if key not in columns:
                message = f"no run counts selected examples by {key!r}: add that column to {_COLUMNS}"
                raise SpecError((*path[:-1], "x"), message)
        elif key != BATCH_SIZE and all(lookup(config, key) is None for config in configs):
            known = dict.fromkeys(each for config in configs for each in flat(config))
            raise SpecError(path, f"no run has {key!r} in its config: {nearest(key, known)}")
    if not plan.waiting:  # all labels are known
        _check_sizes(plan, spec)


def _check_sizes(plan: Plan, spec: Mapping[str, Any]) -> None:
    """Check that the runs of claims about exponents have enough sizes."""
    places = {place.label: (place, run.config) for run in plan.runs for place in run.places}
    configs = {label: config for label, (_, config) in places.items()}
    names = Names(spec, ((place.name, label, place.point) for label, (place, _) in places.items()))
    for path, claim in _claims(spec):
        labels = [label for name in claim.of.of for label in names.meant(name)]
        if claim.is_ladder and labels and (problem := sizes_of(configs, labels, claim.over)[1]):
            raise SpecError((*path, "over"), f"{problem}: name the key of the size, and add sizes to an axis")


def _reports(spec: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for i, report in enumerate(spec.get("reports") or ()):
        yield ("reports", str(i)), report


def _claims(spec: Mapping[str, Any]) -> Iterator[tuple[Path, Claim]]:
    for i, claim in enumerate(parse_claims(spec.get("claims"))):
        yield ("claims", str(i)), claim


def metrics_used(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the metrics that a study's score, claims, and reports use, each with its place."""
    yield from ((("score", str(i)), name) for i, name in enumerate(spec.get("score") or ()))
    for place, claim in _claims(spec):
        for measure in dict.fromkeys(claim.measures):
            if not is_score(measure):
                yield (*place, "measure"), LOSS if measure == SPIKES else measure
    yield from ((place, LOSS if by == SPIKES else by) for place, by, _ in _choosing(spec))
    for place, report in _reports(spec):
        default = (LOSS,) if report["kind"] == "optimizer_spikes" else ()
        for option, names in (("score", report.get("score")), ("metric", report.get("metric") or default)):
            yield from (((*place, option, str(i)), name) for i, name in enumerate(names or ()))


def _choosing(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str, Sequence[str] | None]]:
    """Yield the metrics that choose the best run, each with its place and the score that is reported, if any.

    An empty score is the study's own.
    """
    for place, claim in _claims(spec):
        for key, side, measure in zip(claim.keys, claim.sides, claim.measures, strict=True):
            if side.by:
                yield (*place, key, "by"), side.by, () if is_score(measure) else None
    for place, report in _reports(spec):
        for row, choice in (report.get("best") or {}).items():
            yield (*place, "best", row, "by"), choice["by"], report.get("score") or ()


def _keys(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the config keys by which a study's claims and reports compare runs, each with its place."""
    yield from (((*place, "over"), claim.over) for place, claim in _claims(spec) if claim.over)
    for place, report in _reports(spec):
        for option in ("x", "split"):
            if report.get(option) not in (None, *(EFFORTS if option == "x" else ())):
                is_column = option == "x" and report["kind"] == _COMPOSITION
                yield (*place, _COMPOSITION if is_column else option), report[option]
        yield from (((*place, "by", str(i)), key) for i, key in enumerate(report.get("by") or ()))


def _check_scores(spec: Mapping[str, Any], declared: Metrics, goals: Sequence[Goal | None]) -> None:
    """Check that the score is well defined wherever it is shown or compared.

    Args:
        spec: The study.
        declared: Metrics of the study.
        goals: Goals of all evaluations, or None without one. If the spec names no evaluations, and all goals
            that aren't None are equal, this is the goal of the score.
    """

    def mean(names: Sequence[str], path: Path) -> Metric:
        try:
            return declared.mean(names)
        except ValueError as error:
            raise SpecError(path, str(error)) from None

    own = list(spec.get("score") or ())
    evaluations = [name for name in declared.names if "/" in name]
    measures = [measure for _, claim in _claims(spec) for measure in claim.measures]
    shows_score = any(
        report["kind"] in _SCORE_REPORTS and not report.get("score") for _, report in _reports(spec)
    )
    for place, report in _reports(spec):
        if report.get("score"):
            mean(report["score"], (*place, "score"))
    names = own or (evaluations if shows_score or any(map(is_score, measures)) else [])
    shared = set(goals) - {None}
    score_goal = mean(names, ("score",)).goal if names else shared.pop() if len(shared) == 1 else None
    for place, by, score in _choosing(spec):
        if declared.of(by).goal is None and by != SPIKES:
            raise SpecError(place, lacks_goal([by]))
        if score is not None and by in (score or own or evaluations):
            raise SpecError(place, f"{by} is part of the score, which is reported. {BOTH} as `score`")
    for place, claim in _claims(spec):
        for measure in claim.measures:
            goal = score_goal if is_score(measure) else declared.of(measure).goal
            if claim.comparison == "better_than" and goal is None and measure != SPIKES:
                name = (own or evaluations or ["*"])[0] if is_score(measure) else measure
                raise SpecError(
                    (*place, claim.keys[-1]),
                    f"{measure} has no goal: declare it, metrics: {{{name}: {{goal: max}}}} or {{goal: min}}"
                    + "; or use `above` or `below` in the claim" * (claim.other is not None),
                )


def check_first(experiment: str, spec: Mapping[str, Any], program: str, scores: Collection[str]) -> None:
    """Check the names in a run's first evaluation, before the run spends its budget.

    A missing name alone isn't an error: a later evaluation, such as a final test, may report it. If the run
    also reports an undeclared name, that is most likely the missing metric under another name.

    Args:
        experiment: Name of the study.
        spec: The study, as written.
        program: Name of the run's program.
        scores: Names (dataset/metric) that the run has reported.

    Raises:
        UserError: A required name is missing, and another name isn't declared.
    """
    declared = Metrics.of_spec(spec, [program])
    missing = [(path, name) for path, name in metrics_used(spec) if "/" in name and name not in scores]
    unknown = [name for name in scores if declared.of(name) is UNKNOWN]
    if not missing or not unknown:
        return
    path, name = missing[0]
    hint = near(name, scores)
    raise UserError(
        f"the first evaluation reports {some(unknown)}, which {experiment} doesn't declare, but not {name}, "
        f"which its {dotted(path)} requires{f' ({hint})' if hint else ''}: fix the name in the spec or the "
        f"program; if the run reports {name} later, declare {unknown[0]} under `metrics` as well"
    )
