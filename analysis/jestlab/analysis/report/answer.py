"""The answer to a study's question in one sentence, with the numbers of its summary table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..costs import SCOPES, Scope
from ..efforts import WORDS, Effort
from ..frames import UNEVALUATED, Frames
from ..intervals import CONFIDENCE, direction
from ..metrics import Metric, lacks_goal
from ..tables import Finals, finals, summary
from ..tables.core import Record, records
from ..tables.show import spread

if TYPE_CHECKING:
    import pandas as pd

_MAX_NAMED = 3  # runs that a sentence lists

_FLOPS: dict[Scope, str] = {
    "learner": "training FLOPs",
    "scoring": "FLOPs with scoring",
    "reference_scoring": "FLOPs with the reference’s scoring",
    "reference_training": "FLOPs with a share in the training of needed runs",
}
"""Scope → its FLOPs in words."""

_ADDED: dict[Scope, list[str]] = {
    "reference_training": ["reference_training_share_flops"],
    "reference_scoring": ["reference_scoring_flops"],
    "scoring": ["scoring_flops", "selection_flops"],
}
"""Scope → the columns of `Frames.costs` that it adds; the widest scope first."""


@dataclass(frozen=True)
class Answer:
    """The answer of an experiment.

    Attributes:
        sentence: The answer with its numbers.
        caveat: The limits of the answer; empty without any.
    """

    sentence: str
    caveat: str = ""


def answer(rows: pd.DataFrame, found: Finals) -> Answer:
    """Answer the question of an experiment.

    The competitor with the best mean is compared with the baseline, seed by seed. If the interval of their
    difference includes 0, the answer names the competitors whose intervals don't.

    Args:
        rows: Frame of the summary table.
        found: The results behind the table.
    """
    frames, baseline = found.frames, found.against
    if frames.no_score:
        return Answer(f"{frames.no_score[0].upper()}{frames.no_score[1:]}.")
    lines = [{**row, "name": frames.shown[row["label"]]} for row in records(rows)]
    own = next(row for row in lines if row["label"] == found.baseline)
    others = [row for row in lines if not row["apart"] and row is not own]
    scored = [row for row in others if not math.isnan(row["score_mean"]) and not row["diverged"]]
    has_baseline = not math.isnan(own["score_mean"]) and not own["diverged"]
    say, gaps = _Words(frames.score), _gaps([own, *others], baseline)
    if not scored:
        why = f"{baseline} scores {say.score(own)}; no other run has a finite score to compare."
        return Answer(why if has_baseline else "Nothing with a score has completed yet.", gaps)
    if frames.score.goal is None:
        score = say.score(own) if has_baseline else "nothing yet"
        return Answer(f"{baseline} scores {score}.", lacks_goal(frames.averaged))
    sign = frames.score.sign
    rivals = [row for row in scored if row["delta_seeds"] > 0] or scored
    best = max(rivals, key=lambda row: sign * float(row["score_mean"]))
    if not has_baseline or best["delta_seeds"] == 0:
        why = f"{best['name']} scores {say.score(best)}; it is not compared with {baseline}, the baseline."
        return Answer(why, gaps)
    side = _side(best) * sign
    clear = [row for row in rivals if row is not best and _side(row) != 0] if side == 0 else []
    sentence = _compare(say, best, own, len(rivals))
    if side > 0 or (math.isnan(best["delta_low"]) and sign * best["delta_mean"] > 0):
        sentence += _sooner(best, found)
    caveat = f"The intervals do not account for {len(rivals)} runs having been compared."
    caveat *= len(rivals) > 1 and best["delta_seeds"] > 1
    return Answer(sentence + _significant(say, clear, baseline), " ".join(filter(None, (caveat, gaps))))


class _Words:
    """Formats numbers as the summary table shows them."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.unit = metric.of_differences or "in score"
        self.better, self.worse = ("below", "above") if metric.goal == "min" else ("above", "below")
        self._suffix = f"{'' if metric.in_percent else ' '}{metric.suffix}" if metric.suffix else ""

    def score(self, row: Record) -> str:
        return f"{spread(row['score_mean'], row['score_std'], self.metric)}{self._suffix}"

    def delta(self, value: float, sign: str = "") -> str:
        return f"{self.metric.text(value, sign)} {self.unit}"

    def evidence(self, row: Record) -> str:
        low, high = (self.metric.text(row[end]) for end in ("delta_low", "delta_high"))
        return f"{CONFIDENCE:.0%} CI {low} to {high}, {row['delta_seeds']:.0f} seeds"


def _side(row: Record) -> int:
    """Return the side of the baseline on which a run's 95% interval is; 0 if the interval includes 0.

    The intervals say nothing about verdicts: claims have tests of their own, with the error of their family.
    """
    return direction(row["delta_low"], row["delta_high"])


def _compare(say: _Words, best: Record, own: Record, rivals: int) -> str:
    """Compare the competitor with the best mean with the baseline."""
    delta, baseline = float(best["delta_mean"]), own["name"]
    name = f"{best['name']}, the best of {rivals}," if rivals > 1 else best["name"]
    head = f"{name} scores {say.score(best)}"
    has_one_seed = math.isnan(best["delta_low"])
    evidence = ", by one seed, which has no interval" if has_one_seed else f" ({say.evidence(best)})"
    if not has_one_seed and _side(best) == 0:
        return f"{head}, {say.delta(delta, '+')} against {baseline}; the interval includes 0{evidence}."
    if say.metric.sign * delta > 0:
        return f"{head}, {say.delta(abs(delta))} {say.better} {baseline}{evidence}."
    return (
        f"No run scores {say.better} {baseline}, which ends at {say.score(own)}: {name} ends "
        f"{say.delta(abs(delta))} {say.worse} it{evidence}."
    )


def _significant(say: _Words, rows: Sequence[Record], baseline: str) -> str:
    """Name other competitors whose interval doesn't include 0, the best first."""
    best_first = sorted(rows, key=lambda row: -say.metric.sign * float(row["delta_mean"]))
    named = [
        f"{row['name']} ({say.delta(row['delta_mean'], '+')}, {say.evidence(row)})" for row in best_first
    ]
    return f" Against {baseline}, intervals without 0: {_list(named)}." if named else ""


def _gaps(rows: Sequence[Record], baseline: str) -> str:
    """Name the runs that are not judged, or not by all seeds; the first row is the baseline's."""
    reasons: dict[str, list[str]] = defaultdict(list)
    fewer = []
    for row in rows:
        name, seeds, planned, lost = row["name"], row["score_seeds"], row["seeds_planned"], str(row["lost"])
        if row["diverged"]:
            reasons[lost].append(name)
        elif not seeds and row["seeds"] > 0:
            reasons["a metric is missing"].append(name)
        elif not seeds:
            reasons[lost if UNEVALUATED in lost else "no seed has completed"].append(name)
        elif rows[0]["score_seeds"] > 0 and row is not rows[0] and not row["delta_seeds"]:
            reasons[f"no seed in common with {baseline}"].append(name)
        elif seeds < planned:
            fewer.append(f"{name} ({seeds:.0f} of {planned:.0f}{', ' * bool(lost)}{lost})")
    missing = "; ".join(f"{_list(names)}, {why}" for why, names in reasons.items())
    sentences = [
        f"Not judged: {missing}." if missing else "",
        f"Judged by fewer seeds than planned: {_list(fewer)}." if fewer else "",
    ]
    return " ".join(filter(None, sentences))


def _list(names: Sequence[str]) -> str:
    """Join the first few names, and count the others."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MAX_NAMED])} and {more:,} more"


def _sooner(row: Record, found: Finals) -> str:
    """Write the factors by which a run reaches the baseline's final score sooner; empty if it doesn't.

    The sentence starts with a space, and names the FLOPs that its factor counts. If the run has further costs
    (scoring, a reference's scoring, a share in its training), the factor with all of them follows.

    Args:
        row: Row of the summary table: a run that ends above the baseline.
        found: The results behind the table.
    """
    reached, compared = int(row["seeds_reached"]), int(row["seeds_compared"])
    start = f" It reaches {found.against}’s final score"
    start += f" in {reached} of {compared} seeds" if reached < compared else ""
    if 2 * reached <= compared:
        return f"{start}: too few for a median." if reached else ""
    efforts = [effort for effort in found.efforts if not math.isnan(row[f"fewer_{WORDS[effort].name}"])]
    if not efforts:
        return ""
    by = [effort for effort in ("examples_seen", "flops") if effort in efforts] or efforts[:1]
    costs = found.frames.costs[found.frames.costs["label"].isin([row["label"], found.baseline])]
    # The scopes that add costs, the widest first.
    spent: list[Scope] = [scope for scope in _ADDED if (costs[_ADDED[scope]] > 0).any(axis=None)]
    spent.append("learner")
    counted = next(scope for scope in spent if SCOPES.index(scope) <= SCOPES.index(found.scope))
    words = {effort: WORDS[effort].amount for effort in by} | {"flops": _FLOPS[counted]}
    sentence = f"{start} with {' and '.join(f'{_factor(row, effort)} {words[effort]}' for effort in by)}"
    if "flops" in by and counted != spent[0]:
        wider = _in_scope(found.frames, row["label"], found.baseline, spent[0])
        if not math.isnan(wider["fewer_flops"]):
            sentence += f"; {_factor(wider, 'flops')} {_FLOPS[spent[0]].removeprefix('FLOPs ')}"
    return f"{sentence}."


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


def _in_scope(frames: Frames, label: str, baseline: str, scope: Scope) -> Record:
    """Return the row of a label in the summary table of another scope."""
    rows = summary(finals(frames.only([label, baseline]), baseline, scope)).frame
    return next(row for row in records(rows) if row["label"] == label)
