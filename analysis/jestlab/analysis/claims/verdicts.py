"""Judge the claims of studies by the seeds that both sides of a claim have."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..provenance.warnings import retractions
from ..results import Snapshot, opens_store, runs_of
from .claim import Study, studies
from .contrast import Contrast, contrast_of
from .family import Family
from .judged import Judged, Judging
from .measures import Measures
from .registration import Registration, compare, content_now
from .rounds import Hours, budget


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
    contrasts = _contrasts(store, {**parts, experiment: study})
    judged = judge(contrasts, study.family)
    registered = Registration.load(store.connection, experiment)
    changes = compare(registered.content, content_now(store, experiment, study.spec)) if registered else []
    limit = budget(judged)
    hours = Hours.load(store, experiment) if math.isfinite(limit) else Hours()

    for i, each in enumerate(judged):
        spent = limit - hours.spent < hours.of_seed(each)
        claim = (each.contrast.experiment, each.claim.statement, each.contrast.members)
        exploratory = "; ".join(change.text for change in changes if change.affects(*claim))
        judged[i] = replace(each, spent=spent, registered=registered, exploratory=exploratory)
    return judged


def judge(contrasts: Sequence[Contrast], family: Family) -> list[Judged]:
    """Judge all claims of a family.

    Under a false discovery rate, the level of a claim depends on how many are decided. Forecasts assume the
    number that is expected at the end: those decided now, and the rest by their chances at that level.
    """
    judging = Judging(family, len(contrasts))
    rules = [replace(judging, until=each.study.until) for each in contrasts]
    samples = [
        rule.sample(each.differences, each.relation, each.claim.within or 0.0)
        for rule, each in zip(rules, contrasts, strict=True)
    ]
    p_values = [each.p_value for each in samples]
    decided = family.decided(p_values)
    level = family.level(len(contrasts), decided)
    open_ = [
        sample
        for contrast, sample in zip(contrasts, samples, strict=True)
        if sample.is_open and sample.p_value > level and not contrast.problem
    ]
    ahead, expected = len(contrasts) + 1, len(contrasts)
    while expected < ahead:
        ahead = expected
        chances = (each.forecast(family.level(len(contrasts), ahead)).decided for each in open_)
        expected = decided + math.ceil(sum(chances))
    rules = [
        replace(rule, decided=decided + (p > level), ahead=ahead)
        for rule, p in zip(rules, p_values, strict=True)
    ]
    results = [rule.evidence(sample) for rule, sample in zip(rules, samples, strict=True)]
    return [
        Judged(contrast.first(evidence.seeds), rule, evidence)
        for contrast, rule, evidence in zip(contrasts, rules, results, strict=True)
    ]


def _contrasts(store: Snapshot, parts: Mapping[str, Study]) -> list[Contrast]:
    """Compare the sides of all claims of studies, by name."""
    contrasts = []
    for name, study in parts.items():
        if not study.claims:
            continue
        runs, retracted = store.once(runs_of, name), retractions(store, name)
        runs = runs.assign(retracted=[retracted.get(run, "") for run in runs["fingerprint"]])
        measures = Measures.load(store, name, study, runs)
        contrasts += [contrast_of(claim, name, study, runs, measures) for claim in study.claims]
    return contrasts
