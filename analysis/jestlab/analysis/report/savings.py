"""By what factors a run reaches the baseline's final score sooner, and of which FLOPs that holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..costs import SCOPES, Scope

if TYPE_CHECKING:
    from ..frames import Frames

_OF: dict[Scope, str] = {
    "learner": "FLOPs of training alone",
    "scoring": "FLOPs without the reference’s scoring",
    "reference_scoring": "FLOPs with the reference’s scoring",
    "reference_training": "FLOPs with the reference’s scoring and a share in its training",
}
"""What FLOPs of a scope are of, where a reference scores."""

_WITH: dict[tuple[Scope, Scope], str] = {
    ("learner", "scoring"): "with scoring",
    ("learner", "reference_scoring"): "with all scoring",
    ("learner", "reference_training"): "with all scoring and a share in the reference’s training",
    ("scoring", "reference_scoring"): "with it",
    ("scoring", "reference_training"): "with it and a share in the reference’s training",
    ("reference_scoring", "reference_training"): "with a share in its training, too",
}
"""Scope of the answer, widest one that is known → what the wider one adds."""


def sooner(frames: Frames, row: Mapping[str, Any], baseline: str, scope: Scope) -> str:
    """A sentence, with a space before it; empty where the run does not get there.

    The factor in FLOPs says what it counts. Where the store knows of more that was spent on the run's account
    (scoring, a reference's scoring, a share in its training), the factor with all of that follows.

    Args:
        frames: The experiment.
        row: Of the summary table: a run that ends above the baseline.
        baseline: Label compared with.
        scope: What counts as FLOPs in that table.
    """
    reached, compared = int(row["seeds_reached"]), int(row["seeds_compared"])
    in_seeds = f" in {reached} of {compared} seeds" if reached < compared else ""
    if math.isnan(row["fewer_examples"]):
        return f" It reaches {baseline}’s final score{in_seeds}: too few for a median." if reached else ""
    said = f" It reaches {baseline}’s final score{in_seeds} with {_factor(row, 'examples')} examples"
    if math.isnan(row["fewer_flops"]):
        return f"{said}."
    widest = _widest(frames, [str(row["label"]), baseline])
    said += f" and {_factor(row, 'flops')} {_named(scope, widest)}"
    if SCOPES.index(widest) <= SCOPES.index(scope):
        return f"{said}."
    wider = _in_scope(frames, str(row["label"]), baseline, widest)
    if math.isnan(wider["fewer_flops"]):
        return f"{said}."
    return f"{said}; {_factor(wider, 'flops')} {_WITH[scope, widest]}."


def _factor(row: Mapping[str, Any], effort: str) -> str:
    """A factor in words: "1.3× fewer", "1.2× more", "as many"; and whether it is only a bound."""
    factor, bound = float(row[f"fewer_{effort}"]), row[f"fewer_{effort}_at_least"] is True
    if math.isinf(factor):
        return "∞ fewer"
    if round(factor, 1) > 1:
        return f"{'at least ' if bound else ''}{factor:.1f}× fewer"
    more = f"{1 / factor:.1f}"
    return f"{'at most ' if bound else ''}{'as many' if more == '1.0' else f'{more}× more'}"


def _named(scope: Scope, widest: Scope) -> str:
    """FLOPs of a scope, in words; no more is said to be counted than there is."""
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
"""What each scope adds, in the columns of `Frames.costs`; the widest first."""


def _widest(frames: Frames, labels: Sequence[str]) -> Scope:
    """The narrowest scope in which all counts that is known to have been spent on the labels' account."""
    costs = frames.costs[frames.costs["label"].isin(labels)]
    spent = (scope for scope, columns in _SPENT.items() if (costs[list(columns)] > 0).any(axis=None))
    return next(spent, "learner")


def _in_scope(frames: Frames, label: str, baseline: str, scope: Scope) -> Mapping[str, Any]:
    """The summary's row of a label in another scope."""
    from ..tables import summary

    kept = {label, baseline}
    alone = replace(
        frames,
        runs=frames.runs[frames.runs["label"].isin(kept)],
        scores=frames.scores[frames.scores["label"].isin(kept)],
        costs=frames.costs[frames.costs["label"].isin(kept)],
    )
    rows = summary(alone, baseline, scope).frame
    return {str(key): value for key, value in rows[rows["label"] == label].to_dict("records")[0].items()}
