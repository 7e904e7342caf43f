"""Judge the claims of studies by the seeds that both sides of a claim have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..frames import DIVERGED, LOST, in_words
from ..intervals import half_widths, moments
from ..metrics import Metric
from ..names import Names, names_in
from ..provenance.warnings import retractions
from ..results import Snapshot, opens_store
from .claim import Claim, Study, studies
from .evidence import Relation
from .judged import Judged, Judging
from .measures import Measures, Term
from .registration import Registration, compare, content_now
from .rounds import Hours, budget
from .sign_test import NO_FORECAST

if TYPE_CHECKING:
    import pandas as pd

_MAX_NAMED = 4  # labels in a message

_RUNS = """
    SELECT run, label, seed, position, fingerprint, state, program, point
    FROM v_runs WHERE experiment = :experiment"""

_PARTS = ["experiment", "label", "seed", "fingerprint", "value", "weight", "difference"]


@opens_store
def read(store: Snapshot, experiments: Sequence[str]) -> list[Judged]:
    """Judge the claims of experiments; for a union of studies, those of its studies.

    Raises:
        FileNotFoundError: The URL of the store names a SQLite file that does not exist.
        ValueError: The URL names no results store, or the store lacks one of the experiments.
    """
    for name in experiments:
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

    for i, each in enumerate(judged):
        spent = limit - hours.spent < hours.of_seed(each)
        own = (each.experiment, each.claim.statement, each.labels)
        exploratory = "; ".join(change.text for change in changes if change.affects(*own))
        judged[i] = replace(each, spent=spent, registered=registered, exploratory=exploratory)
    return judged


def _judge_study(store: Snapshot, experiment: str, study: Study, judging: Judging) -> list[Judged]:
    claims = study.claims
    if not claims:
        return []
    runs = store.select(_RUNS, experiment=experiment)
    runs = runs.sort_values(["position", "label", "seed"], ignore_index=True)
    retracted = retractions(store, experiment)
    runs["retracted"] = [retracted.get(run, "") for run in runs["fingerprint"]]
    measures = Measures.load(store, experiment, study, runs)
    judging = replace(judging, until=study.until)
    return [judge(claim, experiment, study, runs, measures, judging) for claim in claims]


def judge(
    claim: Claim, experiment: str, study: Study, runs: pd.DataFrame, measures: Measures, judging: Judging
) -> Judged:
    """Judge one claim by an experiment's runs.

    Args:
        study: The study, which defines display names and the scale.
        runs: One row for each label and seed: run, label, seed, fingerprint, state, and retracted, the reason
            why the results are wrong; empty if they aren't.
    """
    import pandas as pd

    names = names_in(study.spec, runs)
    sides = [
        (measure, _labels(names, side.of), _labels(names, side.minus))
        for side, measure in zip((claim.of, claim.other), claim.measures, strict=True)
    ]
    weights = _weights(sides)
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
    values = measures.values(weights, completed)
    seeds = ended if weights.keys() <= {(measure, label) for measure, label, _ in values} else []
    if judging.until is not None:  # looks are in the order of the seeds, without gaps
        seeds = [seed for place, seed in enumerate(seeds) if seed == place]

    def value(measure: str, of: Sequence[str], minus: Sequence[str], seed: int) -> float:
        """Return the value of a side for one seed."""
        known, known_minus = (
            [values.get((measure, label, seed), math.nan) for label in labels] for labels in (of, minus)
        )
        if minus and not all(map(math.isfinite, known + known_minus)):
            return math.nan  # a difference to a run that diverged is neither good nor bad
        return sum(known) / len(known) - (sum(known_minus) / len(known_minus) if minus else 0.0)

    differences = [value(*sides[0], seed) - value(*sides[1], seed) for seed in seeds]
    of, other = (measures.metric(measure) for measure in claim.measures)
    metric = of if (of.goal, of.unit) == (other.goal, other.unit) else Metric()
    is_unclear = claim.comparison == "better_than" and metric.goal is None
    relation: Relation = "below" if metric.goal == "min" else "above"
    if claim.comparison != "better_than":
        relation = claim.comparison
    evidence = judging.test(differences, relation, claim.within or 0.0)
    if is_unclear:
        evidence = replace(evidence, verdict="undecided", forecast=NO_FORECAST, needed=None)
    if not completed:
        evidence = replace(evidence, verdict="not run")
    seeds, differences = seeds[: evidence.seeds], differences[: evidence.seeds]
    mean, std = moments(differences) if differences else (math.nan, math.nan)
    half = float(half_widths([std], [len(differences)])[0])
    parts = [
        {
            "experiment": experiment, "label": label, "seed": seed,
            "fingerprint": own[label, seed].fingerprint,
            "value": outcome if math.isfinite(outcome) else math.nan,
            "weight": weight, "difference": weight * outcome,
        }
        for (measure, label), weight in weights.items()
        for seed in seeds
        for outcome in [values.get((measure, label, seed), math.nan)]
    ]  # fmt: skip

    def fate(label: str, seed: int) -> str:
        """Describe why a run has no finite value; values are read only if all runs of a seed completed."""
        if (state := states[label, seed]) != "COMPLETED":
            return LOST.get(state, "has not completed")
        known = [values.get((measure, label, seed)) for measure, name in weights if name == label]
        if any(value is not None and not math.isfinite(value) for value in known):
            return DIVERGED
        return "has no value" if None in known and seed in completed else ""

    def told(seeds: Sequence[int], of: int) -> str:
        """Report the runs without a finite value in some seeds."""
        fates = {label: [fate(label, seed) for seed in seeds] for label in labels}
        texts = [f"{names.shown[label]} {text}" for label in labels if (text := in_words(fates[label], of))]
        return "; ".join(texts[:_MAX_NAMED]) + " …" * (len(texts) > _MAX_NAMED)

    gaps = [
        "retracted: " + "; ".join(" ".join(reason.split()) for reason in reasons) if reasons else "",
        f"{' and '.join(dict.fromkeys(claim.measures))}: no common goal and unit" if is_unclear else "",
        f"unknown run: {', '.join(unknown)}" if unknown else "",
        "" if planned else "the runs have no seed in common",
        told([seed for seed in planned if seed not in completed], len(planned)),
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
        lost=told(seeds, len(seeds if judging.until else planned)),
    )


def _labels(names: Names, runs: Sequence[str]) -> list[str]:
    """Return the labels of the named runs, without duplicates."""
    return list(dict.fromkeys(label for name in runs for label in names.meant(name)))


def _weights(sides: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> dict[Term, float]:
    """Return the weight of each term in the difference."""
    weights: dict[Term, float] = {}
    for sign, (measure, of, minus) in zip((1.0, -1.0), sides, strict=True):
        for part_sign, labels in ((sign, of), (-sign, minus)):
            for label in labels:
                weights[measure, label] = weights.get((measure, label), 0.0) + part_sign / len(labels)
    return weights
