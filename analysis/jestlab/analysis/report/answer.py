"""The answer of an experiment in a sentence, from the numbers of its table and in their words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..tables import show
from .savings import sooner

if TYPE_CHECKING:
    import pandas as pd

    from ..costs import Scope
    from ..frames import Frames

_MOST_NAMED = 3  # of runs in one breath


@dataclass(frozen=True)
class Answer:
    """What came out.

    Attributes:
        sentence: The answer with its numbers.
        caveat: What it does not account for; empty if there is nothing to add.
    """

    sentence: str
    caveat: str = ""


def answer(rows: pd.DataFrame, frames: Frames, baseline: str, scope: Scope) -> Answer:
    """Say what came out.

    The competitor with the highest mean is compared with the baseline, seed by seed. Where the seeds do not
    tell the two apart, those competitors are named that they do tell from it.

    Args:
        rows: Frame of the summary table.
        frames: What that was made from.
        baseline: Label compared with.
        scope: What counts as FLOPs there.
    """
    records: list[Mapping[str, Any]] = [
        {str(key): value for key, value in row.items()} for row in rows.to_dict("records")
    ]
    own = next(row for row in records if row["label"] == baseline)
    others = [row for row in records if not row["apart"] and row["label"] != baseline]
    scored = [row for row in others if not math.isnan(row["score_mean"])]
    say = _Words(frames.scores_are_shares)
    known = not math.isnan(own["score_mean"])
    gaps = _gaps([own, *others], baseline)
    if not scored and not known:
        return Answer("Nothing with a score has completed yet.", gaps)
    if not scored:
        why = "no other run has a score yet" if others else "there is nothing to compare it with"
        return Answer(f"{baseline} scores {say.score(own)}; {why}.", gaps)
    rivals = [row for row in scored if row["delta_seeds"] > 0] or scored
    best = max(rivals, key=lambda row: float(row["score_mean"]))
    if not known or best["delta_seeds"] == 0:
        lacks = "has no score: a metric is missing" if own["seeds"] > 0 else "has no score yet"
        why = "has no seed in common with it" if known else lacks
        return Answer(f"{best['label']} scores {say.score(best)}; {baseline}, the baseline, {why}.", gaps)
    told = [row for row in rivals if row is not best and _side(row) != 0] if _side(best) == 0 else []
    sentence = _compared(say, best, own, len(rivals))
    if _side(best) > 0 or (math.isnan(best["delta_low"]) and best["delta_mean"] > 0):
        sentence += sooner(frames, best, baseline, scope)
    return Answer(
        sentence + _told(say, told, baseline), " ".join(filter(None, [_picked(best, rivals, told), gaps]))
    )


class _Words:
    """Numbers as the table shows them."""

    def __init__(self, in_percent: bool) -> None:
        self._in_percent = in_percent
        self.unit = "points" if in_percent else "in score"

    def number(self, value: float, sign: str = "") -> str:
        return show.score(value, self._in_percent, sign)

    def score(self, row: Mapping[str, Any]) -> str:
        spread = "" if math.isnan(row["score_std"]) else f" ± {self.number(row['score_std'])}"
        return f"{self.number(row['score_mean'])}{spread}{'%' if self._in_percent else ''}"

    def interval(self, row: Mapping[str, Any]) -> str:
        return f"95% CI {self.number(row['delta_low'])} to {self.number(row['delta_high'])}"


def _side(row: Mapping[str, Any]) -> int:
    """Where the interval of the difference from the baseline lies: above 0 (1), below (−1); else 0."""
    return int(row["delta_low"] > 0) - int(row["delta_high"] < 0)  # NaN, of one seed, is neither


def _compared(say: _Words, best: Mapping[str, Any], own: Mapping[str, Any], rivals: int) -> str:
    """The competitor with the highest mean beside the baseline."""
    delta, seeds, baseline = float(best["delta_mean"]), int(best["delta_seeds"]), str(own["label"])
    name = f"{best['label']}, the best of {rivals}," if rivals > 1 else f"{best['label']}"
    head = f"{name} scores {say.score(best)}"
    size = f"{say.number(abs(delta))} {say.unit}"
    lost = f"No run scores above {baseline}, which ends at {say.score(own)}: {name} ends {size} below it"
    if math.isnan(best["delta_low"]):
        if delta <= 0:
            return f"{lost}, by one seed."
        return (
            f"{head}, {size} above {baseline}, by one seed: how much of that is chance, one seed cannot tell."
        )
    if _side(best) == 0:
        return (
            f"{head}, {say.number(delta, '+')} {say.unit} against {baseline}: this cannot be told from the "
            f"seeds’ noise ({say.interval(best)} includes 0, {seeds} seeds)."
        )
    evidence = f"({say.interval(best)}, {seeds} seeds)"
    return f"{lost} {evidence}." if delta < 0 else f"{head}, {size} above {baseline} {evidence}."


def _told(say: _Words, rows: Sequence[Mapping[str, Any]], baseline: str) -> str:
    """The other competitors that the seeds do tell from the baseline, the farthest from it first."""
    sentences = []
    for side, where in ((1, "above"), (-1, "below")):
        there = sorted((row for row in rows if _side(row) == side), key=lambda row: -abs(row["delta_mean"]))
        if there:
            named = _listed(
                [
                    f"{row['label']} ({say.number(row['delta_mean'], '+')} {say.unit}, {say.interval(row)}, "
                    f"{int(row['delta_seeds'])} seeds)"
                    for row in there
                ]
            )
            sentences.append(f" Beyond the noise {where} {baseline}: {named}.")
    return "".join(sentences)


def _picked(
    best: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]], told: Sequence[Mapping[str, Any]]
) -> str:
    """That choosing among many flatters what is chosen."""
    if told:
        return f"The intervals do not allow for {len(rivals)} runs having been compared."
    if len(rivals) > 1 and int(best["delta_seeds"]) > 1:
        return (
            f"The interval does not allow for {best['label']} having been picked as the best of "
            f"{len(rivals)}."
        )
    return ""


def _gaps(rows: Sequence[Mapping[str, Any]], baseline: str) -> str:
    """Who is not judged, and who not by all seeds; the baseline is the first of the rows."""
    compares = rows[0]["score_seeds"] > 0
    reasons: dict[str, list[str]] = {}
    fewer = []
    for row in rows:
        name, seeds, planned = str(row["label"]), int(row["score_seeds"]), int(row["seeds_planned"])
        if not seeds:
            why = "a metric is missing" if row["seeds"] > 0 else "no seed has completed"
            reasons.setdefault(why, []).append(name)
        elif compares and name != baseline and not row["delta_seeds"]:
            reasons.setdefault(f"no seed in common with {baseline}", []).append(name)
        elif seeds < planned:
            fewer.append(f"{name} ({seeds} of {planned})")
    sentences = []
    if reasons:
        sentences.append(
            f"Not judged: {'; '.join(f'{_listed(who)}, {why}' for why, who in reasons.items())}."
        )
    if fewer:
        sentences.append(f"By fewer seeds than planned: {_listed(fewer)}.")
    return " ".join(sentences)


def _listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MOST_NAMED])} and {more:,} more"
