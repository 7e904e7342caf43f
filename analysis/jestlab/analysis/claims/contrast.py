"""Contrasts: the difference between the two sides of a claim, for each seed, and its missing results."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ..frames import DIVERGED, LOST, in_words
from ..intervals import Gap, gap_of
from ..metrics import Metric
from ..names import Names, names_in
from .best import refusal, stand_ins
from .claim import Claim, Study
from .evidence import Relation
from .ladder import sizes_of, weights_of
from .measures import Measures, Place, Term, Value

_MAX_NAMED = 4  # labels in a message

_PARTS = ["experiment", "label", "seed", "fingerprint", "value", "weight", "difference"]


@dataclass(frozen=True)
class Contrast:
    """The sides of a claim, compared seed by seed.

    Attributes:
        experiment: The experiment whose runs are compared.
        study: Its spec and scale.
        names: Display names of runs and labels.
        runs: Label and seed → the run: label, state, fingerprint, and retracted (why its results are wrong).
        members: Labels of all runs that the seeds need, also of those that are not chosen.
        chosen: Name of a side and seed → label of the best run, which the name represents.
        planned: The seeds that both sides have in the study.
        completed: The planned seeds whose runs have all completed.
        seeds: The seeds that count, in order.
        weights: Measure and label → weight in the difference.
        values: Measure, label, and seed → known value.
        differences: One for each of `seeds`.
        relation: The range of differences for which the claim holds.
        metric: The metric of the difference.
        problem: Why the claim can't be decided by its differences; empty if it can.
        gaps: Clauses about missing results, except those of runs; often empty.
        lacking: Clauses about values that completed runs lack.
    """

    experiment: str
    study: Study
    claim: Claim
    names: Names
    runs: Mapping[Place, Any]
    members: Sequence[str]
    chosen: Mapping[Place, str]
    planned: Sequence[int]
    completed: Sequence[int]
    seeds: Sequence[int]
    weights: Mapping[Term, float]
    values: Mapping[Value, float]
    differences: Sequence[float]
    relation: Relation
    metric: Metric
    problem: str
    gaps: Sequence[str]
    lacking: Sequence[str]

    def first(self, count: int) -> "Contrast":
        """Return the contrast in its first seeds."""
        return replace(self, seeds=self.seeds[:count], differences=self.differences[:count])

    @property
    def difference(self) -> Gap:
        """Mean over the seeds of one side minus the other, with the confidence interval by Student's t.

        The interval is not corrected for other claims or looks.
        """
        return gap_of(self.differences)

    @property
    def parts(self) -> pd.DataFrame:
        """The rows that add up to the difference of each seed.

        One row for each run and measure: experiment, label, seed, fingerprint, value (of the measure),
        weight, and difference (weight × value).
        """
        parts = [
            {
                "experiment": self.experiment, "label": self.runs[label, seed].label, "seed": seed,
                "fingerprint": self.runs[label, seed].fingerprint,
                "value": outcome if math.isfinite(outcome) else math.nan,
                "weight": weight, "difference": weight * outcome,
            }
            for (measure, label), weight in self.weights.items()
            for seed in self.seeds
            for outcome in [self.values.get((measure, label, seed), math.nan)]
        ]  # fmt: skip
        return pd.DataFrame(parts, columns=_PARTS)

    @property
    def choices(self) -> str:
        """How often each label was chosen as the best: "lr=0.1 in 4 of 5, lr=1 in 1 of 5 seeds"."""
        picked: dict[str, list[str]] = {}
        for (side, seed), label in self.chosen.items():
            picked.setdefault(side, []).extend([self.names.shown[label]] * (seed in self.seeds))
        return "; ".join(in_words(labels, len(self.seeds)) for labels in picked.values() if labels)

    @property
    def lost(self) -> str:
        """The seeds in which runs diverged or failed: "joint diverged in 2 of 5 seeds"."""
        return self._fates(self.seeds, len(self.seeds if self.study.until else self.planned))

    @property
    def gap(self) -> str:
        """One clause about missing results; empty if nothing is missing."""
        missing = [seed for seed in self.planned if seed not in self.completed]
        gaps = (*self.gaps, self._fates(missing, len(self.planned)), *self.lacking)
        return next(filter(None, gaps), "one seed has no interval" * (len(self.seeds) == 1))

    def _fates(self, seeds: Sequence[int], total: int) -> str:
        """Describe the runs without a finite value in some seeds, out of a total number of seeds."""
        fates = {label: [self._fate(label, seed) for seed in seeds] for _, label in self.weights}
        counted = {label: in_words(each, total) for label, each in fates.items()}
        texts = [f"{self.names.shown[label]} {text}" for label, text in counted.items() if text]
        return "; ".join(texts[:_MAX_NAMED]) + " …" * (len(texts) > _MAX_NAMED)

    def _fate(self, label: str, seed: int) -> str:
        """Return why a run has no finite value, or "". Seeds with incomplete runs have no values at all."""
        if (state := self.runs[label, seed].state) != "COMPLETED":
            return LOST.get(state, "has not completed")
        known = [self.values.get((measure, label, seed)) for measure, name in self.weights if name == label]
        if any(value is not None and not math.isfinite(value) for value in known):
            return DIVERGED
        return "has no value" if None in known and seed in self.completed else ""


def contrast_of(
    claim: Claim, experiment: str, study: Study, runs: pd.DataFrame, measures: Measures
) -> Contrast:
    """Compare the sides of a claim by an experiment's runs.

    Args:
        runs: One row for each label and seed: run, label, seed, fingerprint, config, state, and retracted
            (the reason why the results are wrong; empty if they aren't).
    """
    names = names_in(study.spec, runs)
    named = [name for side in claim.sides for _, name in side.named()]
    members = _labels(names, named)
    compared, chosen = _compared(claim, names, study, runs[runs["label"].isin(members)], measures)
    by = {side.best_run(names.shown): side.by for side in claim.sides if side.by}
    sides = [
        (
            measure,
            [side.best_run(names.shown)] if side.by else _labels(names, side.of),
            _labels(names, side.minus),
        )
        for side, measure in zip(claim.sides, claim.measures, strict=True)
    ]
    weights, no_exponent = _ladder(claim, _weights(sides), runs)
    metric, no_goal = _metric(claim, measures)
    refused = (refusal(each, claim.measures, measures) for each in by.values())
    problem = next(filter(None, (*refused, no_exponent, no_goal)), "")

    unknown = [name for name in named if not names.meant(name)]
    all_seeds = {seed for _, seed in compared if not unknown}
    labels = {label for _, label in weights}
    planned = sorted(seed for seed in all_seeds if all((label, seed) in compared for label in labels))
    wrong = dict.fromkeys(run.retracted for run in compared.values() if run.retracted and run.seed in planned)
    usable = [] if wrong else planned
    completed, ended = (
        [seed for seed in usable if all(compared[label, seed].state in each for label in labels)]
        for each in ({"COMPLETED"}, _final(study))
    )
    picked = {name for name, _ in chosen}
    places = {
        (measure, label, seed): (measure, chosen.get((label, seed), label), seed)
        for measure, label in weights
        for seed in completed
    }
    found = measures.values(places.values())
    values = {place: found[of_run] for place, of_run in places.items() if of_run in found}
    seeds = [] if problem or weights.keys() - {place[:2] for place in values} else ended
    if study.until is not None:  # looks are in the order of the seeds, without gaps
        seeds = [seed for place, seed in enumerate(seeds) if seed == place]
    is_relative = claim.is_ladder or any(side.minus for side in claim.sides)

    def mean(measure: str, labels: Sequence[str], seed: int) -> float:
        return sum(values.get((measure, label, seed), math.nan) for label in labels) / max(1, len(labels))

    def difference(seed: int) -> float:
        known = [values.get((*term, seed), math.nan) for term in weights]
        if is_relative and not all(map(math.isfinite, known)):
            return math.nan  # a difference to a run that diverged is neither good nor bad
        if claim.is_ladder:
            return sum(weight * each for weight, each in zip(weights.values(), known, strict=True))
        of, other = (mean(measure, of, seed) - mean(measure, minus, seed) for measure, of, minus in sides)
        return of - other

    return Contrast(
        experiment=experiment,
        study=study,
        claim=claim,
        names=names,
        runs=compared,
        members=members,
        chosen=chosen,
        planned=planned,
        completed=completed,
        seeds=seeds,
        weights=weights,
        values=values,
        differences=[difference(seed) for seed in seeds],
        relation=_relation(claim, metric),
        metric=metric,
        problem=problem,
        gaps=[
            "retracted: " + "; ".join(" ".join(reason.split()) for reason in wrong) if wrong else "",
            f"unknown run: {', '.join(unknown)}" if unknown else "",
            problem,
            "" if planned else "the runs have no seed in common",
        ],
        lacking=[
            measures.missing(measure if label in picked else by.get(label, measure), names.shown[label])
            for measure, label in weights
            if any((measure, label, seed) not in values for seed in completed)
        ],
    )


def _final(study: Study) -> set[str]:
    """Return the states in which a run has ended.

    A canceled run resumes with the next launch, so tests after every seed wait for it.
    """
    return {"COMPLETED", *LOST} - ({"CANCELLED"} if study.until is not None else set())


def _compared(
    claim: Claim, names: Names, study: Study, runs: pd.DataFrame, measures: Measures
) -> tuple[dict[Place, Any], dict[Place, str]]:
    """Return the runs by label and seed, and those that are chosen; see `Contrast`.

    The name of a side represents the best run, or a run that has not ended or was lost.
    """
    rows: Iterable[Any] = runs.itertuples()
    compared = {(run.label, run.seed): run for run in rows}
    states = {place: run.state for place, run in compared.items()}
    chosen: dict[Place, str] = {}
    for side in (each for each in claim.sides if each.by):
        candidates, name = _labels(names, side.best), side.best_run(names.shown)
        for seed, label, is_best in stand_ins(measures, states, candidates, side.by, _final(study)):
            compared[name, seed] = compared[label, seed]
            chosen |= {(name, seed): label} if is_best else {}
    return compared, chosen


def _labels(names: Names, runs: Iterable[str]) -> list[str]:
    """Return the labels of the named runs, without duplicates."""
    return list(dict.fromkeys(label for name in runs for label in names.meant(name)))


def _weights(sides: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> dict[Term, float]:
    """Return the weight of each term in the difference."""
    weights: dict[Term, float] = {}
    for sign, (measure, plus, minus) in zip((1.0, -1.0), sides, strict=False):
        for part_sign, labels in ((sign, plus), (-sign, minus)):
            for label in labels:
                weights[measure, label] = weights.get((measure, label), 0.0) + part_sign / len(labels)
    return weights


def _ladder(claim: Claim, weights: dict[Term, float], runs: pd.DataFrame) -> tuple[dict[Term, float], str]:
    """Return the weights of a claim about an exponent, or the reason why it has none; else those given."""
    if claim.exponent_above is None:
        return weights, ""
    configs = dict(zip(runs["label"], map(json.loads, runs["config"]), strict=True))
    sizes, problem = sizes_of(configs, [label for _, label in weights], claim.over)
    found = weights.values() if problem else weights_of(sizes, claim.exponent_above)
    return dict(zip(weights, found, strict=True)), problem


def _metric(claim: Claim, measures: Measures) -> tuple[Metric, str]:
    """Return the metric of the difference, and why it isn't known which differences are better, if so."""
    first, last = (measures.metric(measure) for measure in (claim.measures[0], claim.measures[-1]))
    metric = first if (first.goal, first.unit) == (last.goal, last.unit) else Metric()
    is_unclear = claim.comparison == "better_than" and metric.goal is None
    names = " and ".join(dict.fromkeys(claim.measures))
    return metric, f"{names}: no common goal and unit" if is_unclear else ""


def _relation(claim: Claim, metric: Metric) -> Relation:
    if claim.comparison == "better_than":
        return "below" if metric.goal == "min" else "above"
    return claim.comparison
