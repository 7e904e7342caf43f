"""The answer to a study's question in one sentence, with the numbers of its summary table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..costs import SCOPES, Scope
from ..efforts import WORDS, Effort
from ..intervals import CI, direction
from ..metrics import Metric, lacks_goal
from ..tables import Finals, finals, summary
from ..tables.core import Record, records
from ..tables.show import spread

if TYPE_CHECKING:
    import pandas as pd

_MAX_NAMED = 3  # maximum number of runs that a sentence lists

_FLOPS: dict[Scope, tuple[str, list[str]]] = {
    "reference_training": (
        "FLOPs with a share in the training of needed runs", ["reference_training_share_flops"]
    ),
    "reference_scoring": ("FLOPs with the reference’s scoring", ["reference_scoring_flops"]),
    "scoring": ("FLOPs with scoring", ["scoring_flops", "selection_flops"]),
    "learner": ("training FLOPs", []),
}  # fmt: skip
"""Scope → its FLOPs in words, and the columns of `Frames.costs` that it adds, from the widest scope down."""


@dataclass(frozen=True)
class Answer:
    """The answer of an experiment.

    Attributes:
        sentence: The answer with its numbers.
        caveat: The limits of the answer; empty without any.
    """

    sentence: str
    caveat: str = ""


def answer(rows: pd.DataFrame, results: Finals) -> Answer:
    """Answer the question of an experiment.

    The competitor with the best mean is compared with the baseline, seed by seed. If the interval of their
    difference includes 0, the answer names the competitors whose intervals don't. Verdicts of claims come
    from other tests, with the error rate of their family.

    Args:
        rows: Frame of the summary table.
        results: The results behind the table.
    """
    frames, baseline, metric = results.frames, results.against, results.frames.score
    if frames.no_score:
        return Answer(f"{frames.no_score[0].upper()}{frames.no_score[1:]}.")
    lines = [{**row, "name": frames.shown[row["label"]]} for row in records(rows)]
    own = next(row for row in lines if row["label"] == results.baseline)
    others = [row for row in lines if not row["apart"] and row is not own]
    scored = [row for row in others if not math.isnan(row["score_mean"]) and not row["diverged"]]
    has_baseline = not math.isnan(own["score_mean"]) and not own["diverged"]
    gaps = _gaps(own, others)
    if not scored:
        alone = f"{baseline} scores {_score(own, metric)}; no other run has a finite score to compare."
        return Answer(alone if has_baseline else "No run has completed with a finite score yet.", gaps)
    if metric.goal is None:
        score = _score(own, metric) if has_baseline else "nothing yet"
        return Answer(f"{baseline} scores {score}.", lacks_goal(frames.averaged))
    rivals = [row for row in scored if row["delta_seeds"] > 0] or scored
    best = max(rivals, key=lambda row: metric.sign * float(row["score_mean"]))
    name = f"{best['name']}, the best of {len(rivals)}," if len(rivals) > 1 else best["name"]
    sentence = f"{name} scores {_score(best, metric)}"
    if not has_baseline or best["delta_seeds"] == 0:
        return Answer(f"{sentence}; it is not compared with {baseline}, the baseline.", gaps)
    has_one_seed = math.isnan(best["delta_low"])
    evidence = ", by one seed, which has no interval" if has_one_seed else f" ({_evidence(best, metric)})"
    side = direction(best["delta_low"], best["delta_high"]) * metric.sign
    delta = float(best["delta_mean"])
    if side == 0 and not has_one_seed:
        against = f"{_delta(delta, metric, '+')} against {baseline}; the interval includes 0"
    else:
        against = f"{_delta(abs(delta), metric)} {'above' if delta > 0 else 'below'} {baseline}"
    sentence += f", {against}{evidence}."
    if side > 0 or (has_one_seed and metric.sign * delta > 0):
        sentence += _sooner(best, results)
    if side == 0:
        clear = [row for row in rivals if row is not best and direction(row["delta_low"], row["delta_high"])]
        clear.sort(key=lambda row: -metric.sign * float(row["delta_mean"]))
        named = [
            f"{row['name']} ({_delta(row['delta_mean'], metric, '+')}, {_evidence(row, metric)})"
            for row in clear
        ]
        sentence += f" Against {baseline}, intervals without 0: {_list(named)}." if named else ""
    if len(rivals) > 1 and best["delta_seeds"] > 1:
        gaps = f"The intervals do not account for {len(rivals)} runs having been compared. {gaps}".rstrip()
    return Answer(sentence, gaps)


def _score(row: Record, metric: Metric) -> str:
    """Write a score with its unit, as the summary table shows it."""
    space = " " if metric.suffix and not metric.in_percent else ""
    return f"{spread(row['score_mean'], row['score_std'], metric)}{space}{metric.suffix}"


def _delta(value: float, metric: Metric, sign: str = "") -> str:
    return f"{metric.text(value, sign)} {metric.of_differences or 'in score'}"


def _evidence(row: Record, metric: Metric) -> str:
    low, high = (metric.text(row[end]) for end in ("delta_low", "delta_high"))
    return f"{CI} {low} to {high}, {row['delta_seeds']:.0f} seeds"


def _gaps(own: Record, others: Sequence[Record]) -> str:
    """Name the runs that are not judged, or not by all their seeds; notes of the table tell why."""
    missing, fewer = [], []
    for row in (own, *others):
        seeds, planned, lost = row["score_seeds"], row["seeds_planned"], str(row["lost"])
        is_compared = row is own or not own["score_seeds"] or row["delta_seeds"]
        if row["diverged"] or not seeds or not is_compared:
            missing.append(row["name"] + (f" ({lost})" if lost else ""))
        elif seeds < planned:
            fewer.append(f"{row['name']} ({seeds:.0f} of {planned:.0f}{', ' * bool(lost)}{lost})")
    gaps = {"Not judged": missing, "Judged by fewer seeds than planned": fewer}
    return " ".join(f"{gap}: {_list(names)}." for gap, names in gaps.items() if names)


def _list(names: Sequence[str]) -> str:
    """Join the first few names, and count the others."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MAX_NAMED])} and {more:,} more"


def _sooner(row: Record, results: Finals) -> str:
    """Write the factors by which a run reaches the baseline's final score sooner; empty if it doesn't.

    The sentence starts with a space, and names the FLOPs that its factor counts. If the run has further costs
    (scoring, a reference's scoring, a share in its training), the factor with all of them follows.

    Args:
        row: Row of the summary table: a run that ends above the baseline.
        results: The results behind the table.
    """
    reached, compared = int(row["seeds_reached"]), int(row["seeds_compared"])
    efforts = [effort for effort in results.efforts if not math.isnan(row[f"fewer_{WORDS[effort].name}"])]
    if 2 * reached <= compared or not efforts:  # too few seeds for a median
        return ""
    by = [effort for effort in ("examples_seen", "flops") if effort in efforts] or efforts[:1]
    costs = results.frames.costs[results.frames.costs["label"].isin([row["label"], results.baseline])]
    spent = [scope for scope, (_, added) in _FLOPS.items() if not added or (costs[added] > 0).any(axis=None)]
    counted = next(scope for scope in spent if SCOPES.index(scope) <= SCOPES.index(results.scope))
    words = {effort: WORDS[effort].amount for effort in by} | {"flops": _FLOPS[counted][0]}
    some = f" in {reached} of {compared} seeds" if reached < compared else ""
    factors = " and ".join(f"{_factor(row, effort)} {words[effort]}" for effort in by)
    if "flops" in by and counted != spent[0]:
        frames = results.frames.only([row["label"], results.baseline])
        lines = records(summary(finals(frames, results.baseline, spent[0])).frame)
        wider = next(line for line in lines if line["label"] == row["label"])
        if not math.isnan(wider["fewer_flops"]):
            factors += f"; {_factor(wider, 'flops')} {_FLOPS[spent[0]][0].removeprefix('FLOPs ')}"
    return f" It reaches {results.against}’s final score{some} with {factors}."


def _factor(row: Record, effort: Effort) -> str:
    """Write a factor in words: "1.3× fewer", "1.2× more", "as many"; and whether it is only a bound."""
    words = WORDS[effort]
    factor, is_bound = float(row[f"fewer_{words.name}"]), row[f"fewer_{words.name}_at_least"] is True
    fewer, as_many = ("less", "as much") if words.fewer.startswith("less") else ("fewer", "as many")
    if math.isinf(factor):
        return f"∞ {fewer}"
    if round(factor, 1) > 1:
        return f"{'at least ' if is_bound else ''}{factor:.1f}× {fewer}"
    more = f"{1 / factor:.1f}" if factor > 0 else "∞"
    return f"{'at most ' if is_bound else ''}{as_many if more == '1.0' else f'{more}× more'}"
