"""The answer of an experiment in a sentence, from the numbers of its table and in their words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..tables import show

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Answer:
    """What came out.

    Attributes:
        sentence: The answer with its numbers.
        caveat: What it does not account for; empty if there is nothing to add.
    """

    sentence: str
    caveat: str = ""


def answer(rows: pd.DataFrame, baseline: str, in_percent: bool) -> Answer:
    """Say what came out.

    The best competitor is compared with the baseline, seed by seed.

    Args:
        rows: Frame of the summary table.
        baseline: Label compared with.
        in_percent: Whether scores are shown in percent.
    """
    records: list[Mapping[str, Any]] = [
        {str(key): value for key, value in row.items()} for row in rows.to_dict("records")
    ]
    of_label = {str(row["label"]): row for row in records}
    own = of_label[baseline]
    scored = [row for row in records if not row["apart"] and not math.isnan(row["score_mean"])]
    rivals = [row for row in scored if row["label"] != baseline]
    say = _Words(in_percent)
    if not rivals:
        if math.isnan(own["score_mean"]):
            return Answer("Nothing with a score has completed yet.")
        return Answer(f"{baseline} scores {say.score(own)}; there is nothing to compare it with.")
    best = max(rivals, key=lambda row: float(row["score_mean"]))
    if math.isnan(own["score_mean"]) or best["delta_seeds"] == 0:
        why = "has no score yet" if math.isnan(own["score_mean"]) else "has no seed in common with it"
        return Answer(f"{best['label']} scores {say.score(best)}; {baseline}, the baseline, {why}.")
    return Answer(_compared(say, best, own, baseline, len(rivals)), _caveat(best, len(rivals)))


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


def _compared(
    say: _Words, best: Mapping[str, Any], own: Mapping[str, Any], baseline: str, rivals: int
) -> str:
    delta, seeds = float(best["delta_mean"]), int(best["delta_seeds"])
    low, high = float(best["delta_low"]), float(best["delta_high"])
    name = f"{best['label']}, the best of {rivals}," if rivals > 1 else f"{best['label']}"
    head = f"{name} scores {say.score(best)}"
    size = say.number(abs(delta))
    if math.isnan(low):
        if delta <= 0:
            return (
                f"No run scores above {baseline}, which ends at {say.score(own)}: {name} ends {size} "
                f"{say.unit} below it, by one seed."
            )
        return (
            f"{head}, {size} {say.unit} above {baseline}, by one seed: how much of that is chance, one seed "
            f"cannot tell. {_sooner(best, baseline)}"
        )
    spoken = f"95% CI {say.number(low)} to {say.number(high)}, {seeds} seeds"
    if low <= 0 <= high:
        return (
            f"No difference beyond the seeds’ noise: {head}, {say.number(delta, '+')} {say.unit} against "
            f"{baseline} ({spoken})."
        )
    if delta < 0:
        return (
            f"No run scores above {baseline}, which ends at {say.score(own)}: {name} ends {size} {say.unit} "
            f"below it ({spoken})."
        )
    return f"{head}, {size} {say.unit} above {baseline} ({spoken}). {_sooner(best, baseline)}"


def _sooner(best: Mapping[str, Any], baseline: str) -> str:
    """By what factors it gets there, as the table has them."""
    reached, compared = int(best["seeds_reached"]), int(best["seeds_compared"])
    in_seeds = f" in {reached} of {compared} seeds" if reached < compared else ""
    if math.isnan(best["fewer_examples"]):
        return f"It reaches {baseline}’s final score{in_seeds}: too few for a median." if reached else ""
    factors = []
    for key, what in (("fewer_examples", "examples"), ("fewer_flops", "FLOPs")):
        factor = float(best[key])
        if math.isnan(factor):
            continue
        times = "∞" if math.isinf(factor) else f"{factor:.1f}×"
        factors.append(f"{times} fewer {what}" if round(factor, 1) > 1 else f"no fewer {what} ({times})")
    return f"It reaches {baseline}’s final score with {' and '.join(factors)}{in_seeds}."


def _caveat(best: Mapping[str, Any], rivals: int) -> str:
    if rivals > 1 and int(best["delta_seeds"]) > 1:
        return f"The interval does not allow for {best['label']} having been picked as the best of {rivals}."
    return ""
