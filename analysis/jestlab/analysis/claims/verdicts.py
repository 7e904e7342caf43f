"""Verdicts on claims: what a study's runs say, by the seeds that both sides of a claim have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..frames import unknown_experiment
from ..intervals import half_widths, moments
from ..lost import DIVERGED, LOST, in_words
from ..metrics import Metric, Metrics, lacks_goal
from ..names import names_in
from ..results import Snapshot, opens_store
from ..soundness import retractions
from . import evidence
from .claim import Claim, Comparison, Family, Side, Until
from .evidence import VERDICTS, Evidence, Verdict
from .hours import Hours
from .measures import Measures, Place
from .power import Needed
from .registration import Registration, compare, content_now
from .sign_test import Forecast
from .study import Study, studies

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection


_PLURALS: dict[Verdict, str] = {"holds": "hold", "does not hold": "do not hold"}
"""Verdict → its form for several claims, where that is another one."""

_PARTS = ["experiment", "label", "seed", "fingerprint", "value", "weight", "difference"]
FUTILE = 0.05
"""A claim is out of reach if the probability of a decision is below this."""

_MOST_NAMED = 4  # of labels that are missing

_RUNS = """
    SELECT run, label, seed, position, fingerprint, state, program, point
    FROM v_runs WHERE experiment = :experiment"""


@dataclass(frozen=True)
class Judging:
    """How the claims of a study are judged.

    Attributes:
        family: The error that they share.
        claims: Number of claims in the family.
        until: When the study has enough seeds; None where their number is fixed, and one look is taken.
    """

    family: Family = field(default_factory=Family)
    claims: int = 1
    until: Until | None = None

    @property
    def error(self) -> float:
        """Probability with which one claim may be judged wrongly."""
        return self.family.share(self.claims)

    def of(self, values: Sequence[float], where: Comparison, within: float) -> Evidence:
        """Judge the differences of a claim, one a seed, in the order of the seeds."""
        side: evidence.Relation = "near" if where == "near" else "below" if where == "below" else "above"
        if self.until is None:
            return evidence.one_look(values, side, within, self.error)
        return evidence.any_look(values, side, within, self.error, self.until.at_most)


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Attributes:
        experiment: Whose runs decide it.
        scale: The scale they ran at; empty if the study has none.
        claim: The claim.
        verdict: Whether it holds.
        difference: What it is of minus what it is compared with, mean over seeds; NaN where nothing is known.
        low: End of its 95% confidence interval by Student's t, of this claim by itself and one look; NaN by
            fewer than two seeds.
        high: The other end.
        seeds: By how many seeds.
        planned: Of how many that both sides have in the study.
        evidence: What the seeds say with the error of its family.
        judging: How it was judged.
        gap: What is missing for a better verdict, one clause; empty if nothing is.
        metric: What the difference is one of: its goal, if a claim needs one, and how it is written.
        parts: One row a run that went into it: experiment, label, seed, fingerprint, value (of the measure),
            weight, difference (what it adds to that of its seed: weight × value); a run that is measured in
            two ways has two.
        labels: Of the runs that decide it.
        shown: Label or run → the name that is shown for it.
        spent: Whether the study's budget is spent.
        registered: What was registered before the first run; None if nothing was.
        exploratory: What of the claim is not as it was registered; empty if all is.
        other_code: Whether it is judged by other code than there was when it was registered.
        lost: In how many seeds which runs diverged or failed: "joint diverged in 2 of 5 seeds".
    """

    experiment: str
    scale: str
    claim: Claim
    verdict: Verdict
    difference: float
    low: float
    high: float
    seeds: int
    planned: int
    evidence: Evidence
    judging: Judging
    gap: str
    metric: Metric
    parts: pd.DataFrame
    labels: tuple[str, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    spent: bool = False
    registered: Registration | None = None
    exploratory: str = ""
    other_code: bool = False
    lost: str = ""

    @property
    def said(self) -> str:
        """The verdict in words: with the scale where the claim does not hold, and with the number of seeds
        where some are missing."""
        if self.verdict in ("undecided", "not run"):
            return self.verdict
        where = f" at this scale ({self.scale})" if self.scale and self.verdict == "does not hold" else ""
        return self.verdict + where + (f", by {self.seeds} of {self.planned} seeds" if self._lacks else "")

    @property
    def chance(self) -> float:
        """Probability with which any claim of the family would show evidence so strong for the wrong side."""
        return min(1.0, self.evidence.chance * self.judging.family.error / self.judging.error)

    @property
    def reason(self) -> str:
        """The likely reason why it does not hold, or what is missing to decide; empty where it holds."""
        if self.verdict == "holds":
            return ""
        if self.seeds < 2:
            return self.gap or self.lost
        against = self.verdict == "does not hold" or not self.leans_towards
        return "; ".join(filter(None, (self.lost, self._leaning, self.claim.unless if against else "")))

    @property
    def leans_towards(self) -> bool:
        """Whether the mean by itself lies where the claim says, or without one most seeds do."""
        claim, difference = self.claim, self.difference
        if math.isnan(difference):
            return 2 * self.evidence.agree > self.seeds
        where = place(claim.comparison, self.metric)
        if where == "near":
            return abs(difference) <= (claim.within or 0.0)
        return (difference if where == "above" else -difference) > -(claim.within or 0.0)

    @property
    def is_decided(self) -> bool:
        """Whether it is known that it holds, or that it does not."""
        return self.verdict in ("holds", "does not hold")

    @property
    def is_futile(self) -> bool:
        """Whether more seeds would hardly decide it, up to the most that its study may have."""
        ahead = self.evidence.forecast
        return self.verdict == "undecided" and isinstance(ahead, Forecast) and ahead.decided < FUTILE

    @property
    def is_open(self) -> bool:
        """Whether its study goes on for its sake, as far as the budget allows."""
        until = self.judging.until
        if until is None or self.is_decided:
            return False
        return self.seeds < until.at_least or (self.seeds < until.at_most and not self.is_futile)

    @property
    def stopped(self) -> str:
        """Why no more seeds are run for it, in words."""
        until = self.judging.until
        if until is None:
            return f"{self.planned} seeds planned" if self.planned != 1 else "one seed planned"
        if self.is_decided:
            return "decided"
        if self.is_open:
            return "budget spent" if self.spent else "goes on"
        if self.seeds >= until.at_most:
            return f"{until.at_most} seeds, the most"
        return f"hopeless (a chance under {FUTILE:.0%} of a decision by {until.at_most} seeds)"

    @property
    def _lacks(self) -> bool:
        """Whether seeds are missing that were planned for its sake."""
        return self.seeds < self.planned and self.judging.until is None

    @property
    def _leaning(self) -> str:
        """Which way an undecided claim leans, and what would decide it."""
        if self.verdict != "undecided":
            return ""
        leans = f"leans {'towards' if self.leans_towards else 'against'} the claim"
        until = self.judging.until
        most = "" if until is None else f" by {until.at_most} seeds"
        ahead = _ahead(self.evidence.forecast, most) if until is None or self.is_open else ""
        return "; ".join(filter(None, (leans, ahead)))


@opens_store
def read(store: Snapshot, experiments: Sequence[str]) -> list[Judged]:
    """Judge the claims of experiments; of a union of studies, those of its studies.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiments: Their names.

    Raises:
        FileNotFoundError: The URL names a SQLite file that does not exist.
        ValueError: What is there is no results store, or it does not know one of the experiments.
    """
    known = store.once(studies)
    for name in experiments:
        if name not in known:
            raise ValueError(unknown_experiment(name, list(known)))
    return [judged for name in experiments for judged in load(store, name)]


@opens_store
def load(
    store: Snapshot,
    experiment: str,
) -> list[Judged]:
    """Judge the claims of one experiment.

    Args:
        store: The store.
        experiment: Its name.
    """
    known, connection = store.once(studies), store.connection
    study = known[experiment]
    # A study that was launched by itself since is judged by what it has become.
    parts = {name: known.get(name, Study(spec, study.scale)) for name, spec in study.parts.items()}
    judging = Judging(study.family, sum(len(each.claims) for each in (study, *parts.values())))
    found: list[Judged] = []
    for name, part in parts.items():
        found += _of_study(store, name, part, judging)
    found += _of_study(store, experiment, study, judging)
    registered = Registration.load(connection, experiment)
    if registered is not None:
        changes = compare(registered.content, content_now(connection, experiment, study.spec))
        found = [
            replace(
                each,
                registered=registered,
                exploratory=changes.of(each.experiment, each.claim.statement, each.labels),
                other_code=changes.code,
            )
            for each in found
        ]
    return _within_budget(connection, experiment, found)


def counted(judged: Sequence[Judged]) -> str:
    """Say how many claims have which verdict: "At scale smoke, 3 claims: 2 hold, 1 undecided."."""
    counts = Counter(each.verdict for each in judged)
    scales = list(dict.fromkeys(each.scale for each in judged if each.scale))
    where = f"At scale {' and '.join(scales)}, " if scales else ""
    if len(judged) == 1:
        return f"{where}1 claim: {judged[0].verdict}."
    forms = {each: _PLURALS.get(each, each) if counts[each] > 1 else each for each in VERDICTS}
    parts = [f"{counts[each]} {form}" for each, form in forms.items() if counts[each]]
    return f"{where}{len(judged)} claims: {', '.join(parts)}."


def place(comparison: Comparison, metric: Metric) -> Comparison:
    """Say where a claim says that its side lies: "better_than" is above, or below where less is better."""
    if comparison != "better_than":
        return comparison
    return "below" if metric.goal == "min" else "above"


def judge(
    claim: Claim,
    experiment: str,
    scale: str,
    runs: pd.DataFrame,
    measures: Measures,
    spec: Mapping[str, Any] | None = None,
    judging: Judging | None = None,
) -> Judged:
    """Judge one claim by an experiment's runs.

    Args:
        claim: The claim.
        experiment: Name of the experiment.
        scale: Of it.
        runs: One row a label and seed: run, label, seed, fingerprint, state, and perhaps retracted: why its
            results are wrong, else nothing.
        measures: What they can be judged by.
        spec: The study, which says what its runs are called.
        judging: How; by itself and one look unless it is said.
    """
    import pandas as pd

    judging = judging or Judging()

    study = _Runs(runs, spec or {})
    weights, unknown = study.weights(claim)
    labels = list(dict.fromkeys(label for _, label in weights))
    planned = set() if unknown else set.intersection(*(study.seeds[label] for label in labels))
    completed = {seed for seed in planned if all(study.completed(label, seed) for label in labels)}
    # What was stopped resumes with the next launch: the looks of a sequence wait for it.
    over = {"COMPLETED", *LOST} - ({"CANCELLED"} if judging.until is not None else set())
    ended = {seed for seed in planned if all(study.runs[label, seed].state in over for label in labels)}
    wrong = dict.fromkeys(filter(None, (study.runs[label, s].retracted for label in labels for s in planned)))
    if wrong:
        completed = ended = set()
    values = {
        measure: measures.values(
            measure, {(label, seed) for by, label in weights if by == measure for seed in completed}
        )
        for measure in dict.fromkeys(measure for measure, _ in weights)
    }
    # Where only some seeds lack a value there is a reason for it, too.
    measured = completed and all(
        any((label, seed) in values[by] for seed in completed) for by, label in weights
    )
    known = sorted(ended) if measured else []
    if judging.until is not None:
        # Looks are taken in the order of the seeds, not of their ends: from 0 on without a gap.
        known = [seed for place, seed in enumerate(known) if seed == place]
    places = [(label, seed) for label in labels for seed in known]
    outcomes = {
        measure: {place: _outcome(measures.metric(measure), found.get(place)) for place in places}
        for measure, found in values.items()
    }
    of, other = (outcomes.get(measure, {}) for measure in claim.measures)
    by_seed = [study.side(claim.of, seed, of) - study.side(claim.other, seed, other) for seed in known]
    metric, unclear = _meaning(claim, measures)
    found = judging.of(by_seed, place(claim.comparison, metric), (claim.within or 0.0))
    if unclear:
        found = replace(found, verdict="undecided", forecast=None)
    if not completed:
        found = replace(found, verdict="not run")
    known, by_seed = known[: found.seeds], by_seed[: found.seeds]
    mean, low, high = _interval(by_seed)
    parts = [
        {
            "experiment": experiment,
            "label": label,
            "seed": seed,
            "fingerprint": study.runs[label, seed].fingerprint,
            "value": values[measure].get((label, seed), math.nan),
            "weight": weight,
            "difference": weight * outcomes[measure][label, seed],
        }
        for (measure, label), weight in weights.items()
        for seed in known
    ]
    return Judged(
        experiment=experiment,
        scale=scale,
        claim=claim,
        verdict=found.verdict,
        difference=mean,
        low=low,
        high=high,
        seeds=len(known),
        planned=len(planned),
        evidence=found,
        judging=judging,
        gap=("retracted: " + "; ".join(" ".join(reason.split()) for reason in wrong) if wrong else "")
        or unclear
        or _gap(study, labels, unknown, planned, completed)
        or _lacking(measures, values, weights, completed)
        or ("one seed has no interval" if len(known) == 1 else ""),
        metric=metric,
        parts=pd.DataFrame(parts, columns=_PARTS),
        labels=tuple(labels),
        shown=study.names.shown,
        lost=_lost(study, weights, known, values, len(planned) if judging.until is None else len(known)),
    )


def _lost(
    study: _Runs,
    weights: Collection[tuple[str, str]],
    known: Sequence[int],
    values: Mapping[str, Mapping[Place, float]],
    of: int,
) -> str:
    """Say in how many of so many seeds which runs diverged or failed, or have no value."""

    def fate(label: str, seed: int) -> str:
        found = [values[measure].get((label, seed)) for measure, name in weights if name == label]
        if any(value is not None and not math.isfinite(value) for value in found):
            return DIVERGED
        # Values are read only where both sides have completed.
        lacks = None in found and all(study.completed(each, seed) for _, each in weights)
        return LOST.get(study.runs[label, seed].state, "has no value" * lacks)

    named = []
    for label in dict.fromkeys(label for _, label in weights):
        if told := in_words([fate(label, seed) for seed in known], of):
            named.append(f"{study.names.shown[label]} {told}")
    return "; ".join(named[:_MOST_NAMED]) + " …" * (len(named) > _MOST_NAMED)


def _outcome(metric: Metric, value: float | None) -> float:
    """What a run counts as: NaN without a value, and the worst of its metric if it diverged."""
    if value is None:
        return math.nan
    return value if math.isfinite(value) else -math.inf * metric.sign


def _of_study(store: Snapshot, experiment: str, study: Study, judging: Judging) -> list[Judged]:
    claims = study.claims
    if not claims:
        return []
    judging = replace(judging, until=study.until)
    runs = store.select(_RUNS, experiment=experiment)
    runs = runs.sort_values(["position", "label", "seed"], ignore_index=True)
    runs["retracted"] = runs["fingerprint"].map(retractions(store.connection, experiment))
    asked = list(dict.fromkeys(measure for claim in claims for measure in claim.measures))
    declared = Metrics.of_spec(study.spec, runs["program"].unique())
    measures = Measures.load(store, experiment, asked, study.scope, declared)
    return [judge(claim, experiment, study.scale, runs, measures, study.spec, judging) for claim in claims]


def _within_budget(connection: Connection, experiment: str, judged: list[Judged]) -> list[Judged]:
    """Mark the claims for which the budget of the experiment has nothing left."""
    limits = [until.hours for each in judged if (until := each.judging.until) and until.hours is not None]
    if not limits:
        return judged
    hours = Hours.load(connection, experiment)
    left = min(limits) - hours.spent
    return [
        replace(each, spent=left < sum(hours.of_label(each.experiment, label) for label in each.labels))
        for each in judged
    ]


class _Run(NamedTuple):
    fingerprint: str
    state: str
    retracted: str | None = None


class _Runs:
    """The runs of a study by label and seed."""

    def __init__(self, rows: pd.DataFrame, spec: Mapping[str, Any]) -> None:
        self.names = names_in(spec, rows)
        self.runs: dict[Place, _Run] = {}
        self.seeds: dict[str, set[int]] = {}
        columns = [rows[name] for name in ("run", "label", "seed", "fingerprint", "state")]
        reasons = rows["retracted"] if "retracted" in rows else [None] * len(rows)
        for _, label, seed, fingerprint, state, reason in zip(*columns, reasons, strict=True):
            wrong = reason if isinstance(reason, str) else None
            self.runs[label, int(seed)] = _Run(str(fingerprint), str(state), wrong)
            self.seeds.setdefault(label, set()).add(int(seed))

    def completed(self, label: str, seed: int) -> bool:
        return self.runs[label, seed].state == "COMPLETED"

    def weights(self, claim: Claim) -> tuple[dict[tuple[str, str], float], list[str]]:
        """Compute the weight of each (measure, label) in the difference, and list unknown names of runs."""
        weights: dict[tuple[str, str], float] = {}
        unknown: list[str] = []
        for sign, side, measure in zip((1.0, -1.0), (claim.of, claim.other), claim.measures, strict=True):
            for sign_here, names in ((sign, side.of), (-sign, side.minus)):
                unknown += [name for name in names if not self.names.meant(name)]
                labels = self._labels(names)
                for label in labels:
                    place = measure, label
                    weights[place] = weights.get(place, 0.0) + sign_here / len(labels)
        return weights, unknown

    def side(self, side: Side, seed: int, values: Mapping[Place, float]) -> float:
        """Compute the value of a side for one seed; infinite or NaN if one of its runs has no finite one."""
        of, minus = (
            [values[label, seed] for label in self._labels(names)] for names in (side.of, side.minus)
        )
        if minus and not all(map(math.isfinite, (*of, *minus))):
            return math.nan  # the difference of a run that diverged is neither good nor bad
        return sum(of) / len(of) - (sum(minus) / len(minus) if minus else 0.0)

    def _labels(self, names: Iterable[str]) -> list[str]:
        """List the labels that names mean, each once."""
        return list(dict.fromkeys(label for name in names for label in self.names.meant(name)))


def _interval(by_seed: Sequence[float]) -> tuple[float, float, float]:
    """Compute the mean and both ends of its confidence interval."""
    if not by_seed:
        return math.nan, math.nan, math.nan
    mean, std = moments(by_seed)
    half = float(half_widths([std], [len(by_seed)])[0])
    return mean, mean - half, mean + half


def _meaning(claim: Claim, measures: Measures) -> tuple[Metric, str]:
    """What the difference of both sides of a claim means, and why that is unclear; empty if it is not."""
    of, other = (measures.metric(measure) for measure in claim.measures)
    alike = (of.goal, of.unit) == (other.goal, other.unit)
    metric = of if alike else Metric()
    if claim.comparison == "better_than" and metric.goal is None:
        names = list(dict.fromkeys(claim.measures))
        return metric, lacks_goal(names) if alike else f"{' and '.join(names)} have different goals or units"
    return metric, ""


def _ahead(ahead: Forecast | Needed | None, most: str) -> str:
    """Say how many seeds would decide an undecided claim, and how surely; empty if that is not known.

    Args:
        ahead: What is expected.
        most: " by N seeds", where a study goes on so far.
    """
    if ahead is None:
        return ""
    if isinstance(ahead, Needed):
        if ahead.even is None:
            return "100 seeds would decide it in less than half of all cases"
        likely = "" if ahead.likely is None else f", {ahead.likely} in four of five"
        return f"about {ahead.even} seeds would decide it in half of all cases{likely}"
    return f"the chance of a decision{most} is {ahead.decided:.0%}"


def _lacking(
    measures: Measures,
    values: Mapping[str, Mapping[Place, float]],
    weights: Iterable[tuple[str, str]],
    completed: Collection[int],
) -> str:
    """Say why a completed run has no value, in one clause."""
    for measure, label in weights:
        if any((label, seed) not in values[measure] for seed in completed):
            return measures.lacking(measure, label)
    return ""


def _gap(
    study: _Runs, labels: Iterable[str], unknown: Sequence[str], planned: set[int], completed: set[int]
) -> str:
    """Say which runs are missing, in one clause."""
    if unknown:
        return f"unknown run: {', '.join(unknown)}"
    if not planned:
        return "its runs share no seed"
    if completed == planned:
        return ""
    open_seeds = {label: [s for s in sorted(planned) if not study.completed(label, s)] for label in labels}
    listed = [
        f"{study.names.shown[label]} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
        for label, seeds in open_seeds.items()
        if seeds
    ]
    return f"not completed: {'; '.join(listed[:_MOST_NAMED])}{' …' if len(listed) > _MOST_NAMED else ''}"
