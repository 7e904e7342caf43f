"""The answer of an experiment in a sentence, with the numbers of its summary table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..costs import SCOPES, Scope
from ..efforts import WORDS, Effort
from ..frames import Frames
from ..intervals import CONFIDENCE, direction
from ..lost import UNEVALUATED
from ..metrics import Metric, lacks_goal
from ..tables import Finals, finals, summary
from ..tables.core import Record, records
from ..tables.show import spread

if TYPE_CHECKING:
    import pandas as pd


_MOST_NAMED = 3  # runs that a sentence lists


@dataclass(frozen=True)
class Answer:
    """The answer of an experiment.

    Attributes:
        sentence: The answer with its numbers.
        caveat: What it does not account for; empty if there is nothing to add.
    """

    sentence: str
    caveat: str = ""


def answer(rows: pd.DataFrame, found: Finals) -> Answer:
    """Answer what an experiment found.

    The competitor with the best mean is compared with the baseline, seed by seed. If the seeds do not
    distinguish the two, the answer names the competitors that they do distinguish from it.

    Args:
        rows: Frame of the summary table.
        found: Results that the table was made from.
    """
    frames, baseline = found.frames, found.against
    lines = [{**row, "name": frames.shown[row["label"]]} for row in records(rows)]
    own = next(row for row in lines if row["label"] == found.baseline)
    others = [row for row in lines if not row["apart"] and row["label"] != found.baseline]
    scored = [row for row in others if not math.isnan(row["score_mean"]) and not row["diverged"]]
    if frames.no_score:
        return Answer(f"{frames.no_score[0].upper()}{frames.no_score[1:]}.")
    say = _Words(frames.score)
    known = not math.isnan(own["score_mean"]) and not own["diverged"]
    gaps = _gaps([own, *others], baseline)
    if not scored and not known:
        return Answer("Nothing with a score has completed yet.", gaps)
    if not scored:
        lost = any(row["diverged"] for row in others)
        has = "has a finite score in all seeds" if lost else "has a score yet"
        why = f"no other run {has}" if others else "no other run competes with it"
        return Answer(f"{baseline} scores {say.score(own)}; {why}.", gaps)
    rivals = [row for row in scored if row["delta_seeds"] > 0] or scored
    if frames.score.goal is None:
        return Answer(
            f"{baseline} scores {say.score(own) if known else 'nothing yet'}.", lacks_goal(frames.averaged)
        )
    sign = frames.score.sign
    best = max(rivals, key=lambda row: sign * float(row["score_mean"]))
    if not known or best["delta_seeds"] == 0:
        missing = "has no score: a metric is missing" if own["seeds"] > 0 else "has no score yet"
        lacks = own["lost"] if own["diverged"] else missing
        why = "has no seed in common with it" if known else lacks
        return Answer(f"{best['name']} scores {say.score(best)}; {baseline}, the baseline, {why}.", gaps)
    side = _side(best) * sign
    clear = [row for row in rivals if row is not best and _side(row) != 0] if side == 0 else []
    sentence = _compared(say, best, own, len(rivals))
    if side > 0 or (math.isnan(best["delta_low"]) and sign * best["delta_mean"] > 0):
        sentence += _sooner(best, found)
    return Answer(
        sentence + _distinguished(say, clear, baseline),
        " ".join(filter(None, [_picked(best, rivals, clear), gaps])),
    )


class _Words:
    """Formats numbers as the table shows them."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.unit = metric.of_differences or "in score"
        self.better, self.worse = ("below", "above") if metric.goal == "min" else ("above", "below")
        self._suffix = f"{'' if metric.in_percent else ' '}{metric.suffix}" if metric.suffix else ""

    def number(self, value: float, sign: str = "") -> str:
        return self.metric.text(value, sign)

    def score(self, row: Record) -> str:
        return f"{spread(row['score_mean'], row['score_std'], self.metric)}{self._suffix}"

    def interval(self, row: Record) -> str:
        return f"{CONFIDENCE:.0%} CI {self.number(row['delta_low'])} to {self.number(row['delta_high'])}"


def _side(row: Record) -> int:
    """Return on which side of the baseline a run is; 0 if the seeds don't distinguish the two."""
    return direction(row["delta_low"], row["delta_high"])


def _compared(say: _Words, best: Record, own: Record, rivals: int) -> str:
    """The competitor with the best mean beside the baseline."""
    delta, seeds, baseline = float(best["delta_mean"]), int(best["delta_seeds"]), str(own["name"])
    name = f"{best['name']}, the best of {rivals}," if rivals > 1 else f"{best['name']}"
    head = f"{name} scores {say.score(best)}"
    size = f"{say.number(abs(delta))} {say.unit}"
    end = f"{name} ends {size} {say.worse} it"
    lost = f"No run scores {say.better} {baseline}, which ends at {say.score(own)}: {end}"
    if math.isnan(best["delta_low"]):
        if say.metric.sign * delta <= 0:
            return f"{lost}, by one seed."
        chance = "one seed cannot tell how much of that is chance"
        return f"{head}, {size} {say.better} {baseline}, by one seed; {chance}."
    if _side(best) == 0:
        return (
            f"{head}, {say.number(delta, '+')} {say.unit} against {baseline}: this is within seed "
            f"noise ({say.interval(best)} includes 0, {seeds} seeds)."
        )
    evidence = f"({say.interval(best)}, {seeds} seeds)"
    is_worse = say.metric.sign * delta < 0
    return f"{lost} {evidence}." if is_worse else f"{head}, {size} {say.better} {baseline} {evidence}."


def _distinguished(say: _Words, rows: Sequence[Record], baseline: str) -> str:
    """Name the other competitors that the seeds distinguish from the baseline, the farthest first."""
    sentences = []
    sides = ((1, "above"), (-1, "below"))
    for side, where in sides if say.metric.goal == "max" else sides[::-1]:
        there = sorted((row for row in rows if _side(row) == side), key=lambda row: -abs(row["delta_mean"]))
        if there:
            named = _listed(
                [
                    f"{row['name']} ({say.number(row['delta_mean'], '+')} {say.unit}, {say.interval(row)}, "
                    f"{int(row['delta_seeds'])} seeds)"
                    for row in there
                ]
            )
            sentences.append(f" Beyond seed noise {where} {baseline}: {named}.")
    return "".join(sentences)


def _picked(best: Record, rivals: Sequence[Record], clear: Sequence[Record]) -> str:
    """Warn that the best of many looks better than it is."""
    if clear:
        return f"The intervals do not account for {len(rivals)} runs having been compared."
    if len(rivals) > 1 and int(best["delta_seeds"]) > 1:
        return (
            f"The interval does not account for {best['name']} having been picked as the best of "
            f"{len(rivals)}."
        )
    return ""


def _gaps(rows: Sequence[Record], baseline: str) -> str:
    """Name the runs that are not judged, or not by all seeds; the baseline is the first of the rows."""
    compares = rows[0]["score_seeds"] > 0
    reasons: dict[str, list[str]] = {}
    fewer = []
    for row in rows:
        name, seeds, planned = str(row["name"]), int(row["score_seeds"]), int(row["seeds_planned"])
        if row["diverged"]:
            reasons.setdefault(str(row["lost"]), []).append(name)
        elif not seeds:
            none = row["lost"] if UNEVALUATED in row["lost"] else "no seed has completed"
            why = "a metric is missing" if row["seeds"] > 0 else none
            reasons.setdefault(why, []).append(name)
        elif compares and name != baseline and not row["delta_seeds"]:
            reasons.setdefault(f"no seed in common with {baseline}", []).append(name)
        elif seeds < planned:
            fewer.append(f"{name} ({seeds} of {planned}{', ' * bool(row['lost'])}{row['lost']})")
    sentences = []
    if reasons:
        sentences.append(
            f"Not judged: {'; '.join(f'{_listed(who)}, {why}' for why, who in reasons.items())}."
        )
    if fewer:
        sentences.append(f"Judged by fewer seeds than planned: {_listed(fewer)}.")
    return " ".join(sentences)


def _listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MOST_NAMED])} and {more:,} more"


_OF: dict[Scope, str] = {
    "learner": "FLOPs of training alone",
    "scoring": "FLOPs without the reference’s scoring",
    "reference_scoring": "FLOPs with the reference’s scoring",
    "reference_training": "FLOPs with the reference’s scoring and a share in its training",
}
"""Scope → which FLOPs it counts, where a reference scores."""

_WITH: dict[tuple[Scope, Scope], str] = {
    ("learner", "scoring"): "with scoring",
    ("learner", "reference_scoring"): "with all scoring",
    ("learner", "reference_training"): "with all scoring and a share in the reference’s training",
    ("scoring", "reference_scoring"): "with it",
    ("scoring", "reference_training"): "with it and a share in the reference’s training",
    ("reference_scoring", "reference_training"): "with a share in its training",
}
"""Scope of the answer, widest known scope → what the wider one adds."""


def _sooner(row: Record, found: Finals) -> str:
    """Say by what factors a run reaches the baseline's final score sooner; empty if it does not reach it.

    The sentence has a leading space. It says which FLOPs its factor counts. If the store knows of more that
    was spent for the run (scoring, a reference's scoring, a share in its training), the factor with all of
    that follows.

    Args:
        row: Row of the summary table: a run that ends above the baseline.
        found: Results that the table was made from.
    """
    frames, baseline, scope = found.frames, found.against, found.scope
    reached, compared = int(row["seeds_reached"]), int(row["seeds_compared"])
    in_seeds = f" in {reached} of {compared} seeds" if reached < compared else ""
    if 2 * reached <= compared:
        return f" It reaches {baseline}’s final score{in_seeds}: too few for a median." if reached else ""
    efforts = [effort for effort in found.efforts if not math.isnan(row[f"fewer_{WORDS[effort].name}"])]
    if not efforts:
        return ""
    widest = _widest(frames, [str(row["label"]), found.baseline])
    by = [effort for effort in ("examples_seen", "flops") if effort in efforts] or efforts[:1]
    shown = [
        f"{_factor(row, effort)} {_named(scope, widest) if effort == 'flops' else WORDS[effort].amount}"
        for effort in by
    ]
    said = f" It reaches {baseline}’s final score{in_seeds} with {' and '.join(shown)}"
    if "flops" not in by or SCOPES.index(widest) <= SCOPES.index(scope):
        return f"{said}."
    wider = _in_scope(frames, str(row["label"]), found.baseline, widest)
    if math.isnan(wider["fewer_flops"]):
        return f"{said}."
    return f"{said}; {_factor(wider, 'flops')} {_WITH[scope, widest]}."


def _factor(row: Record, effort: Effort) -> str:
    """Write a factor in words: "1.3× fewer", "1.2× more", "as many"; and whether it is only a bound."""
    words = WORDS[effort]
    factor, bound = float(row[f"fewer_{words.name}"]), row[f"fewer_{words.name}_at_least"] is True
    fewer, as_many = ("less", "as much") if words.less else ("fewer", "as many")
    if math.isinf(factor):
        return f"∞ {fewer}"
    if round(factor, 1) > 1:
        return f"{'at least ' if bound else ''}{factor:.1f}× {fewer}"
    more = f"{1 / factor:.1f}" if factor > 0 else "∞"
    return f"{'at most ' if bound else ''}{as_many if more == '1.0' else f'{more}× more'}"


def _named(scope: Scope, widest: Scope) -> str:
    """Name the FLOPs of a scope, claiming no more than was counted."""
    if widest == "learner":
        return "training FLOPs"
    if scope == "learner":
        return _OF["learner"]
    if widest == "scoring":
        return "FLOPs, scoring included"
    narrower = min(scope, widest, key=SCOPES.index)
    return _OF[narrower]


_SPENT: dict[Scope, tuple[str, ...]] = {
    "reference_training": ("reference_training_share_flops",),
    "reference_scoring": ("reference_scoring_flops",),
    "scoring": ("scoring_flops", "selection_flops"),
}
"""Scope → what it adds, in columns of `Frames.costs`; the widest first."""


def _widest(frames: Frames, labels: Sequence[str]) -> Scope:
    """The narrowest scope that counts everything known to have been spent for the labels."""
    costs = frames.costs[frames.costs["label"].isin(labels)]
    spent = (scope for scope, columns in _SPENT.items() if (costs[list(columns)] > 0).any(axis=None))
    return next(spent, "learner")


def _in_scope(frames: Frames, label: str, baseline: str, scope: Scope) -> Record:
    """The row of a label in the summary table of another scope."""
    rows = summary(finals(frames.only([label, baseline]), baseline, scope)).frame
    return next(row for row in records(rows) if row["label"] == label)
