"""Judge the claims of studies by the seeds that both sides of a claim have."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import NotYet
from ..frames import DIVERGED, LOST, in_words
from ..intervals import half_widths, moments
from ..metrics import Metric, Metrics
from ..names import Names, names_in
from ..provenance.soundness import retractions
from ..results import Snapshot, opens_store
from .claim import Claim, Side
from .evidence import Relation, Verdict
from .judged import Judged, Judging
from .measures import Measures, Place
from .registration import Registration, compare, content_now
from .rounds import Hours, budget
from .sign_test import NO_FORECAST
from .study import Study, studies

if TYPE_CHECKING:
    import pandas as pd

_MAX_NAMED = 4  # labels in a message

_RUNS = """
    SELECT run, label, seed, position, fingerprint, state, program, point
    FROM v_runs WHERE experiment = :experiment"""

_PARTS = ["experiment", "label", "seed", "fingerprint", "value", "weight", "difference"]

Term = tuple[str, str]
"""A measure and a label."""


@opens_store
def read(store: Snapshot, experiments: Sequence[str]) -> list[Judged]:
    """Judge the claims of experiments; for a union of studies, those of its studies.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiments: Names of the experiments.

    Raises:
        FileNotFoundError: The URL names a SQLite file that does not exist.
        ValueError: The URL names no results store, or the store lacks one of the experiments.
    """
    known = store.once(studies)
    for name in experiments:
        if name not in known:
            store.check_known(name)
    return [judged for name in experiments for judged in load(store, name)]


@opens_store
def load(store: Snapshot, experiment: str) -> list[Judged]:
    """Judge the claims of one experiment of a store."""
    known = store.once(studies)
    study = known[experiment]
    # A study that was also launched separately is judged by its latest spec.
    parts = {name: known.get(name, Study(spec, study.scale)) for name, spec in study.parts.items()}
    judging = Judging(study.family, sum(len(each.claims) for each in (study, *parts.values())))
    judged = [
        each
        for name, part in (*parts.items(), (experiment, study))
        for each in _judge_study(store, name, part, judging)
    ]
    registered = Registration.load(store.connection, experiment)
    changes = compare(registered.content, content_now(store, experiment, study.spec)) if registered else []
    limit = budget(judged)
    hours = Hours.load(store, experiment) if math.isfinite(limit) else Hours()

    def exploratory(each: Judged) -> str:
        own = (each.experiment, each.claim.statement, each.labels)
        return "; ".join(change.text for change in changes if change.affects(*own))

    return [
        replace(
            each,
            spent=limit - hours.spent < hours.of_seed(each),
            registered=registered,
            exploratory=exploratory(each),
        )
        for each in judged
    ]


def _judge_study(store: Snapshot, experiment: str, study: Study, judging: Judging) -> list[Judged]:
    claims = study.claims
    if not claims:
        return []
    runs = store.select(_RUNS, experiment=experiment)
    runs = runs.sort_values(["position", "label", "seed"], ignore_index=True)
    retracted = retractions(store, experiment)
    runs["retracted"] = [retracted.get(run, "") for run in runs["fingerprint"]]
    frames = None
    if len(runs):
        with suppress(NotYet):  # training metrics may exist before the first evaluation
            frames = store.frames(experiment)
    names = [measure for claim in claims for measure in claim.measures]
    declared = Metrics.of_spec(study.spec, runs["program"].unique())
    measures = Measures.load(store, experiment, names, study.scope, frames, declared)
    judging = replace(judging, until=study.until)
    return [judge(claim, experiment, study, runs, measures, judging) for claim in claims]


def judge(
    claim: Claim,
    experiment: str,
    study: Study,
    runs: pd.DataFrame,
    measures: Measures,
    judging: Judging,
) -> Judged:
    """Judge one claim by an experiment's runs.

    Args:
        claim: The claim.
        experiment: Name of the experiment.
        study: The study, which defines display names and the scale.
        runs: One row for each label and seed: run, label, seed, fingerprint, state, and retracted, the reason
            why the results are wrong; empty if they aren't.
        measures: The measurements.
        judging: How to judge.
    """
    import pandas as pd

    names = names_in(study.spec, runs)
    weights = _weights(claim, names)
    labels = list(dict.fromkeys(label for _, label in weights))
    unknown = [name for side in (claim.of, claim.other) for _, name in side.named() if not names.meant(name)]
    rows: Iterable[Any] = runs[runs["label"].isin(labels)].itertuples()
    own = {(run.label, run.seed): run for run in rows}
    states = {place: run.state for place, run in own.items()}
    every = {seed for _, seed in own if not unknown}
    planned = sorted(seed for seed in every if all((label, seed) in own for label in labels))
    reasons = dict.fromkeys(run.retracted for run in own.values() if run.retracted and run.seed in planned)
    # A stopped run resumes with the next launch, so the looks of a sequence wait for it.
    final = {"COMPLETED", *LOST} - ({"CANCELLED"} if judging.until is not None else set())
    completed, ended = (
        [seed for seed in planned if not reasons and all(states[label, seed] in each for label in labels)]
        for each in ({"COMPLETED"}, final)
    )
    values: dict[tuple[str, str, int], float] = {}
    for measure in dict.fromkeys(claim.measures):
        places = {(label, seed) for by, label in weights if by == measure for seed in completed}
        values |= {(measure, *place): value for place, value in measures.values(measure, places).items()}
    seeds = ended if weights.keys() <= {(measure, label) for measure, label, _ in values} else []
    if judging.until is not None:  # looks are in the order of the seeds, without gaps
        seeds = [seed for place, seed in enumerate(seeds) if seed == place]

    outcomes = {
        (measure, label, seed): _outcome(values.get((measure, label, seed)), measures.metric(measure))
        for measure, label in weights
        for seed in seeds
    }
    of, other = (
        [_side_value(side, measure, seed, names, outcomes) for seed in seeds]
        for side, measure in zip((claim.of, claim.other), claim.measures, strict=True)
    )
    differences = [value - compared for value, compared in zip(of, other, strict=True)]
    metric, unclear = _metric(claim, measures)
    relation: Relation = "below" if metric.goal == "min" else "above"
    if claim.comparison != "better_than":
        relation = claim.comparison
    evidence = judging.test(differences, relation, claim.within or 0.0)
    if unclear or not completed:
        verdict: Verdict = "undecided" if completed else "not run"
        forecast = NO_FORECAST if unclear else evidence.forecast
        evidence = replace(evidence, verdict=verdict, forecast=forecast, needed=None)
    seeds, differences = seeds[: evidence.seeds], differences[: evidence.seeds]
    mean, std = moments(differences) if differences else (math.nan, math.nan)
    half = float(half_widths([std], [len(differences)])[0])
    parts = [
        {
            "experiment": experiment, "label": label, "seed": seed,
            "fingerprint": own[label, seed].fingerprint,
            "value": values.get((measure, label, seed), math.nan),
            "weight": weight, "difference": weight * outcomes[measure, label, seed],
        }
        for (measure, label), weight in weights.items()
        for seed in seeds
    ]  # fmt: skip
    gaps = [
        "retracted: " + "; ".join(" ".join(reason.split()) for reason in reasons) if reasons else "",
        unclear,
        f"unknown run: {', '.join(unknown)}" if unknown else "",
        _gap(names, labels, planned, states),
        *(
            measures.missing(measure, names.shown[label])
            for measure, label in weights
            if any((measure, label, seed) not in values for seed in completed)
        ),
        "one seed has no interval" if len(seeds) == 1 else "",
    ]
    return Judged(
        experiment=experiment,
        scale=study.scale,
        claim=claim,
        judging=judging,
        relation=relation,
        evidence=evidence,
        difference=mean,
        low=mean - half,
        high=mean + half,
        planned=len(planned),
        metric=metric,
        parts=pd.DataFrame(parts, columns=_PARTS),
        labels=tuple(labels),
        shown=names.shown,
        gap=next(filter(None, gaps), ""),
        lost=_lost(names, weights, seeds, states, values, len(seeds if judging.until else planned)),
    )


def _labels(names: Names, runs: Sequence[str]) -> list[str]:
    """Return the labels of the named runs, without duplicates."""
    return list(dict.fromkeys(label for name in runs for label in names.meant(name)))


def _weights(claim: Claim, names: Names) -> dict[Term, float]:
    """Return the weight of each term in the difference."""
    weights: dict[Term, float] = {}
    for sign, side, measure in zip((1.0, -1.0), (claim.of, claim.other), claim.measures, strict=True):
        for part_sign, runs in ((sign, side.of), (-sign, side.minus)):
            labels = _labels(names, runs)
            for label in labels:
                weights[measure, label] = weights.get((measure, label), 0.0) + part_sign / len(labels)
    return weights


def _outcome(value: float | None, metric: Metric) -> float:
    """Return the value of a run; NaN if unknown, and the worst value if the run diverged."""
    if value is None:
        return math.nan
    return value if math.isfinite(value) else -math.inf * metric.sign


def _side_value(
    side: Side, measure: str, seed: int, names: Names, outcomes: Mapping[tuple[str, str, int], float]
) -> float:
    """Return the value of a side for one seed."""
    of, minus = (
        [outcomes[measure, label, seed] for label in _labels(names, runs)] for runs in (side.of, side.minus)
    )
    if minus and not all(map(math.isfinite, (*of, *minus))):
        return math.nan  # a difference to a run that diverged is neither good nor bad
    return sum(of) / len(of) - (sum(minus) / len(minus) if minus else 0.0)


def _metric(claim: Claim, measures: Measures) -> tuple[Metric, str]:
    """Return goal and unit of the difference, and why they are unclear; empty if they are clear."""
    of, other = (measures.metric(measure) for measure in claim.measures)
    metric = of if (of.goal, of.unit) == (other.goal, other.unit) else Metric()
    if claim.comparison != "better_than" or metric.goal is not None:
        return metric, ""
    return metric, f"{' and '.join(dict.fromkeys(claim.measures))}: no common goal and unit"


def _gap(names: Names, labels: Sequence[str], planned: Sequence[int], states: Mapping[Place, str]) -> str:
    """List the missing runs in one clause."""
    if not planned:
        return "the runs have no seed in common"
    missing = [
        f"{names.shown[label]} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
        for label in labels
        if (seeds := [seed for seed in planned if states[label, seed] != "COMPLETED"])
    ]
    return f"not completed: {_few(missing)}" if missing else ""


def _lost(
    names: Names,
    terms: Collection[Term],
    seeds: Sequence[int],
    states: Mapping[Place, str],
    values: Mapping[tuple[str, str, int], float],
    of: int,
) -> str:
    """Report in how many of so many seeds which runs diverged, failed, or have no value."""

    def fate(label: str, seed: int) -> str:
        found = [values.get((measure, label, seed)) for measure, name in terms if name == label]
        if any(value is not None and not math.isfinite(value) for value in found):
            return DIVERGED
        # Values are read only if both sides have completed.
        lacks = None in found and all(states[name, seed] == "COMPLETED" for _, name in terms)
        return LOST.get(states[label, seed], "has no value" * lacks)

    labels = dict.fromkeys(label for _, label in terms)
    found = {label: in_words([fate(label, seed) for seed in seeds], of) for label in labels}
    return _few([f"{names.shown[label]} {text}" for label, text in found.items() if text])


def _few(items: Sequence[str]) -> str:
    """Join the first items."""
    return "; ".join(items[:_MAX_NAMED]) + " …" * (len(items) > _MAX_NAMED)
