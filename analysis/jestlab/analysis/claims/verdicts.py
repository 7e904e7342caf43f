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
from ..results import Snapshot, opens_store, runs_of
from .best import Compared
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

_PARTS = ["experiment", "label", "seed", "fingerprint", "value", "weight", "difference"]


@opens_store
def read(store: Snapshot, experiments: Sequence[str]) -> list[Judged]:
    """Judge the claims of experiments. The claims of a union include those of its studies.

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
    stored = store.once(studies)
    study = stored[experiment]
    # A study that was also launched separately is judged by its latest spec.
    parts = {name: stored.get(name, Study(spec, study.scale)) for name, spec in study.parts.items()}
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
        claim = (each.experiment, each.claim.statement, each.labels)
        exploratory = "; ".join(change.text for change in changes if change.affects(*claim))
        judged[i] = replace(each, spent=spent, registered=registered, exploratory=exploratory)
    return judged


def _judge_study(store: Snapshot, experiment: str, study: Study, judging: Judging) -> list[Judged]:
    claims = study.claims
    if not claims:
        return []
    runs, retracted = store.once(runs_of, experiment), retractions(store, experiment)
    runs = runs.assign(retracted=[retracted.get(run, "") for run in runs["fingerprint"]])
    measures = Measures.load(store, experiment, study, runs)
    judging = replace(judging, until=study.until)
    return [judge(claim, experiment, study, runs, measures, judging) for claim in claims]


def judge(
    claim: Claim, experiment: str, study: Study, runs: pd.DataFrame, measures: Measures, judging: Judging
) -> Judged:
    """Judge one claim by an experiment's runs.

    Args:
        study: The study, which defines display names and the scale.
        runs: One row for each label and seed: run, label, seed, fingerprint, state, and retracted (the reason
            why the results are wrong; empty if they aren't).
    """
    import pandas as pd

    names = names_in(study.spec, runs)
    sides = [
        Compared(measure, _labels(names, side.runs), _labels(names, side.minus), side.by)
        for side, measure in zip(claim.sides, claim.measures, strict=True)
    ]
    weights = _weights(sides)
    labels = list(dict.fromkeys(label for _, label in weights))
    unknown = [name for side in claim.sides for _, name in side.named() if not names.meant(name)]
    rows: Iterable[Any] = runs[runs["label"].isin(labels)].itertuples()
    compared = {(run.label, run.seed): run for run in rows}
    states = {place: run.state for place, run in compared.items()}
    all_seeds = {seed for _, seed in compared if not unknown}
    planned = sorted(seed for seed in all_seeds if all((label, seed) in compared for label in labels))
    reasons = {run.retracted: None for run in compared.values() if run.retracted and run.seed in planned}
    # A canceled run resumes with the next launch, so tests after every seed wait for it.
    final = {"COMPLETED", *LOST} - ({"CANCELLED"} if judging.until is not None else set())
    ended = [
        seed for seed in planned if not reasons and all(states[label, seed] in final for label in labels)
    ]
    needed = [terms for side in sides for terms in side.needed]
    completed = [
        seed
        for seed in ended
        if all(any(states[label, seed] == "COMPLETED" for _, label in terms) for terms in needed)
    ]
    every_term = list(dict.fromkeys(term for terms in needed for term in terms))
    values = measures.values(every_term, completed)
    values = {place: value for place, value in values.items() if states[place[1:]] == "COMPLETED"}
    known = {(measure, label) for measure, label, _ in values}
    refused = next(filter(None, (side.refused(measures) for side in sides)), "")
    seeds = ended if not refused and all(known.intersection(terms) for terms in needed) else []
    if judging.until is not None:  # looks are in the order of the seeds, without gaps
        seeds = [seed for place, seed in enumerate(seeds) if seed == place]

    def value(side: Compared, seed: int) -> float:
        """Return the value of a side for one seed."""
        added, subtracted = (
            [values.get((side.measure, label, seed), math.nan) for label in labels]
            for labels in (side.plus, side.minus)
        )
        if not added or (side.minus and not all(map(math.isfinite, added + subtracted))):
            return math.nan  # a difference to a run that diverged is neither good nor bad
        return sum(added) / len(added) - (sum(subtracted) / len(subtracted) if side.minus else 0.0)

    chosen = {seed: [side.in_seed(seed, values, measures) for side in sides] for seed in seeds}
    differences = [value(of, seed) - value(other, seed) for seed, (of, other) in chosen.items()]
    first, second = (measures.metric(measure) for measure in claim.measures)
    metric = first if (first.goal, first.unit) == (second.goal, second.unit) else Metric()
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
    weights_of = {seed: _weights(chosen[seed]) for seed in seeds}
    parts = [
        {
            "experiment": experiment, "label": label, "seed": seed,
            "fingerprint": compared[label, seed].fingerprint,
            "value": outcome if math.isfinite(outcome) else math.nan,
            "weight": weight, "difference": weight * outcome if weight else 0.0,
        }
        for measure, label in weights
        for seed, difference in zip(seeds, differences, strict=True)
        for weight in [weights_of[seed].get((measure, label), math.nan if math.isnan(difference) else 0.0)]
        for outcome in [values.get((measure, label, seed), math.nan)]
    ]  # fmt: skip

    def fate(label: str, seed: int) -> str:
        """Return why a run has no finite value, or "". Seeds with incomplete runs have no values at all."""
        if (state := states[label, seed]) != "COMPLETED":
            return LOST.get(state, "has not completed")
        known = [values.get((measure, label, seed)) for measure, name in weights if name == label]
        if any(value is not None and not math.isfinite(value) for value in known):
            return DIVERGED
        return "has no value" if None in known and seed in completed else ""

    def describe_fates(seeds: Sequence[int], total: int) -> str:
        """Describe the runs without a finite value in some seeds, out of a total number of seeds."""
        fates = {label: [fate(label, seed) for seed in seeds] for label in labels}
        texts = [f"{names.shown[name]} {text}" for name in labels if (text := in_words(fates[name], total))]
        return "; ".join(texts[:_MAX_NAMED]) + " …" * (len(texts) > _MAX_NAMED)

    choices = [
        in_words([names.shown[label] for seed in seeds for label in chosen[seed][i].plus], len(seeds))
        for i, side in enumerate(sides)
        if side.by
    ]
    gaps = [
        "retracted: " + "; ".join(" ".join(reason.split()) for reason in reasons) if reasons else "",
        f"{' and '.join(dict.fromkeys(claim.measures))}: no common goal and unit" if is_unclear else "",
        f"unknown run: {', '.join(unknown)}" if unknown else "",
        refused,
        "" if planned else "the runs have no seed in common",
        describe_fates([seed for seed in planned if seed not in completed], len(planned)),
        *(
            measures.missing(measure, names.shown[label])
            for measure, label in every_term
            if any(
                (measure, label, seed) not in values and states[label, seed] == "COMPLETED"
                for seed in completed
            )
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
        chosen="; ".join(filter(None, choices)),
        shown=names.shown,
        gap=next(filter(None, gaps), ""),
        lost=describe_fates(seeds, len(seeds if judging.until else planned)),
    )


def _labels(names: Names, runs: Sequence[str]) -> list[str]:
    """Return the labels of the named runs, without duplicates."""
    return list(dict.fromkeys(label for name in runs for label in names.meant(name)))


def _weights(sides: Sequence[Compared]) -> dict[Term, float]:
    """Return the weight of each term in the difference."""
    weights: dict[Term, float] = {}
    for sign, side in zip((1.0, -1.0), sides, strict=True):
        for part_sign, labels in ((sign, side.plus), (-sign, side.minus)):
            for label in labels:
                term = side.measure, label
                weights[term] = weights.get(term, 0.0) + part_sign / len(labels)
    return weights
