"""Contrasts: the difference between the two sides of a claim, for each seed, and its missing results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..frames import DIVERGED, LOST, in_words
from ..intervals import half_widths, moments
from ..metrics import Metric
from ..names import Names, names_in
from .best import refusal, stand_ins
from .claim import Claim, Study
from .evidence import Relation, Sample
from .forecast import NO_FORECAST
from .judged import Judged, Judging
from .ladder import sizes_of, weights_of
from .measures import Measures, Term

if TYPE_CHECKING:
    import pandas as pd

    Place = tuple[str, int]
    """A label and a seed."""

_MAX_NAMED = 4  # labels in a message

_PARTS = ["experiment", "label", "seed", "fingerprint", "value", "weight", "difference"]


@dataclass(frozen=True)
class Contrast:
    """The sides of a claim, compared seed by seed.

    Attributes:
        study: The study, which defines display names and the scale.
        runs: Label and seed → the run: label, state, fingerprint, and retracted (why its results are wrong).
        members: Labels of all runs that the seeds need, also of those that are not chosen.
        chosen: Name of a side and seed → label of the best run, which the name represents.
        planned: The seeds that both sides have in the study.
        completed: The planned seeds whose runs have all completed.
        seeds: The seeds that count, in order.
        weights: Measure and label → weight in the difference.
        values: Measure, label, and seed → known value.
        relation: The range of differences for which the claim holds.
        metric: The metric of the difference.
        unclear: Why the direction of "better" is unknown; empty if it is known or doesn't matter.
        differences: One for each of `seeds`.
        gaps: Clauses about missing results.
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
    values: Mapping[tuple[str, str, int], float]
    relation: Relation
    metric: Metric
    unclear: str
    differences: Sequence[float]
    gaps: Sequence[str] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        """The labels of the compared runs."""
        return list(dict.fromkeys(label for _, label in self.weights))

    @property
    def is_testable(self) -> bool:
        """Whether the claim can be decided by its differences."""
        return bool(self.completed) and not self.unclear

    def judged(self, judging: Judging, sample: Sample) -> Judged:
        """Judge the claim by its differences."""
        evidence = judging.evidence(sample)
        if self.unclear:
            evidence = replace(evidence, verdict="undecided", forecast=NO_FORECAST)
        if not self.completed:
            evidence = replace(evidence, verdict="not run")
        seeds, differences = self.seeds[: evidence.seeds], self.differences[: evidence.seeds]
        mean, std = moments(differences) if differences else (math.nan, math.nan)
        half = float(half_widths([std], [len(differences)])[0])
        picked: dict[str, list[str]] = {}
        for (side, seed), label in self.chosen.items():
            picked.setdefault(side, []).extend([self.names.shown[label]] * (seed in seeds))
        gaps = [*self.gaps, "one seed has no interval" if len(seeds) == 1 else ""]
        return Judged(
            experiment=self.experiment,
            scale=self.study.scale,
            claim=self.claim,
            judging=judging,
            relation=self.relation,
            evidence=evidence,
            difference=mean,
            low=mean - half,
            high=mean + half,
            planned=len(self.planned),
            metric=self.metric,
            parts=self._parts(seeds),
            labels=tuple(self.members),
            chosen="; ".join(in_words(labels, len(seeds)) for labels in picked.values() if labels),
            shown=self.names.shown,
            gap=next(filter(None, gaps), ""),
            lost=self.describe_fates(seeds, len(seeds if judging.until else self.planned)),
        )

    def _parts(self, seeds: Sequence[int]) -> pd.DataFrame:
        """Return the rows that add up to the difference of each seed; see `Judged.parts`."""
        import pandas as pd

        parts = [
            {
                "experiment": self.experiment, "label": self.runs[label, seed].label, "seed": seed,
                "fingerprint": self.runs[label, seed].fingerprint,
                "value": outcome if math.isfinite(outcome) else math.nan,
                "weight": weight, "difference": weight * outcome,
            }
            for (measure, label), weight in self.weights.items()
            for seed in seeds
            for outcome in [self.values.get((measure, label, seed), math.nan)]
        ]  # fmt: skip
        return pd.DataFrame(parts, columns=_PARTS)

    def _fate(self, label: str, seed: int) -> str:
        """Return why a run has no finite value, or "". Seeds with incomplete runs have no values at all."""
        if (state := self.runs[label, seed].state) != "COMPLETED":
            return LOST.get(state, "has not completed")
        known = [self.values.get((measure, label, seed)) for measure, name in self.weights if name == label]
        if any(value is not None and not math.isfinite(value) for value in known):
            return DIVERGED
        return "has no value" if None in known and seed in self.completed else ""

    def describe_fates(self, seeds: Sequence[int], total: int) -> str:
        """Describe the runs without a finite value in some seeds, out of a total number of seeds."""
        fates = {label: [self._fate(label, seed) for seed in seeds] for label in self.labels}
        counted = {name: in_words(fates[name], total) for name in fates}
        texts = [f"{self.names.shown[name]} {text}" for name, text in counted.items() if text]
        return "; ".join(texts[:_MAX_NAMED]) + " …" * (len(texts) > _MAX_NAMED)


def contrast_of(
    claim: Claim, experiment: str, study: Study, runs: pd.DataFrame, measures: Measures
) -> Contrast:
    """Compare the sides of a claim by an experiment's runs.

    Args:
        runs: One row for each label and seed: run, label, seed, fingerprint, config, state, and retracted
            (the reason why the results are wrong; empty if they aren't).
    """
    names = names_in(study.spec, runs)
    tuned = {side: side.best_run(names.shown) for side in claim.sides if side.by}
    best = {name: (side.by, _labels(names, side.best)) for side, name in tuned.items()}
    sides = [
        (measure, [tuned[side]] if side in tuned else _labels(names, side.of), _labels(names, side.minus))
        for side, measure in zip(claim.sides, claim.measures, strict=True)
    ]
    weights, refused = _ladder(claim, _weights(sides), runs)
    labels = list(dict.fromkeys(label for _, label in weights))
    terms = [(name, each) for name, label in weights for each in best.get(label, ("", [label]))[1]]
    members = list(dict.fromkeys(label for _, label in terms))
    unknown = [name for side in claim.sides for _, name in side.named() if not names.meant(name)]
    rows: Iterable[Any] = runs[runs["label"].isin(members)].itertuples()
    compared = {(run.label, run.seed): run for run in rows}
    # A canceled run resumes with the next launch, so tests after every seed wait for it.
    final = {"COMPLETED", *LOST} - ({"CANCELLED"} if study.until is not None else set())
    states = {place: run.state for place, run in compared.items()}
    chosen: dict[Place, str] = {}
    for name, (by, candidates) in best.items():
        refused = refused or refusal(by, claim.measures, measures)
        for seed, label, is_best in stand_ins(measures, states, candidates, by, final):
            compared[name, seed] = compared[label, seed]
            chosen |= {(name, seed): label} if is_best else {}
    all_seeds = {seed for _, seed in compared if not unknown}
    planned = sorted(seed for seed in all_seeds if all((label, seed) in compared for label in labels))
    reasons = {run.retracted: None for run in compared.values() if run.retracted and run.seed in planned}
    usable = [] if reasons else planned
    completed, ended = (
        [seed for seed in usable if all(compared[label, seed].state in states for label in labels)]
        for states in ({"COMPLETED"}, final)
    )
    values = measures.values(terms, completed)
    for (name, seed), label in chosen.items():
        pairs = [((term, name, seed), (term, label, seed)) for term in claim.measures]
        values |= {place: values[of_run] for place, of_run in pairs if of_run in values}
    known = {(measure, label) for measure, label, _ in values}
    seeds = ended if not refused and weights.keys() <= known else []
    if study.until is not None:  # looks are in the order of the seeds, without gaps
        seeds = [seed for place, seed in enumerate(seeds) if seed == place]

    def value(measure: str, plus: Sequence[str], minus: Sequence[str], seed: int) -> float:
        """Return the value of a side for one seed."""
        known = [values.get((measure, label, seed), math.nan) for label in (*plus, *minus)]
        if minus and not all(map(math.isfinite, known)):
            return math.nan  # a difference to a run that diverged is neither good nor bad
        added, subtracted = known[: len(plus)], known[len(plus) :]
        return sum(added) / len(added) - sum(subtracted) / max(1, len(subtracted))

    def difference(seed: int) -> float:
        if claim.other is not None:
            return value(*sides[0], seed) - value(*sides[1], seed)
        each = [weight * values.get((*term, seed), math.nan) for term, weight in weights.items()]
        return sum(each) if all(map(math.isfinite, each)) else math.nan

    first, second = (measures.metric(measure) for measure in (claim.measures[0], claim.measures[-1]))
    metric = first if (first.goal, first.unit) == (second.goal, second.unit) else Metric()
    is_unclear = claim.comparison == "better_than" and metric.goal is None
    unclear = f"{' and '.join(dict.fromkeys(claim.measures))}: no common goal and unit" if is_unclear else ""
    relation: Relation = "below" if metric.goal == "min" else "above"
    if claim.comparison != "better_than":
        relation = claim.comparison
    contrast = Contrast(
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
        relation=relation,
        metric=metric,
        unclear=refused or unclear,
        differences=[difference(seed) for seed in seeds],
    )
    unchosen = {name: by for name, (by, _) in best.items() if name not in {side for side, _ in chosen}}
    gaps = [
        "retracted: " + "; ".join(" ".join(reason.split()) for reason in reasons) if reasons else "",
        f"unknown run: {', '.join(unknown)}" if unknown else "",
        refused or unclear,
        "" if planned else "the runs have no seed in common",
        contrast.describe_fates([seed for seed in planned if seed not in completed], len(planned)),
        *(
            measures.missing(unchosen.get(label, measure), names.shown[label])
            for measure, label in weights
            if any((measure, label, seed) not in values for seed in completed)
        ),
    ]
    return replace(contrast, gaps=gaps)


def _labels(names: Names, runs: Sequence[str]) -> list[str]:
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
