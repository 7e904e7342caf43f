"""How many runs a reference has to serve until it has paid for itself, by what runs have reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median_high
from typing import TYPE_CHECKING

from .costs import break_even_runs
from .curves import Crossing, score_curves, speedups
from .frames import Frames

if TYPE_CHECKING:
    import pandas as pd


def break_even(frames: Frames, baseline: str | None = None) -> dict[str, float]:
    """The fewest runs that together, making their reference included, cost less than as many baselines.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run to match; by default the study's first run that is no reference.

    Returns:
        Label → median over its completed seeds, of two middle ones the greater; infinite where no number of
        runs pays, since such a seed does not get there, or not for less. Labels that need nothing, or whose
        FLOPs are not known, are left out.

    Raises:
        ValueError: There is no such baseline.
    """
    return over_seeds(of_runs(frames, frames.baseline(baseline)))


def of_runs(
    frames: Frames, baseline: str, metrics: Sequence[str] | None = None, crossing: Crossing = "first"
) -> pd.DataFrame:
    """The same, of each seed.

    The FLOPs of making all that a run needs, over what the run saves until it reaches the baseline's final
    score, its own scoring and its reference's counted (`costs.break_even_runs`).

    Args:
        frames: Results of an experiment.
        baseline: Label to match.
        metrics: Names whose mean the score is; by default the headline metrics.
        crossing: Which crossing of the baseline's final score counts.

    Returns:
        One row a completed run that is compared and whose FLOPs are known: label, seed, scored_flops (until
        it gets there, references' scoring counted; NaN where it does not), making_flops (all that it needs)
        and break_even, NaN for a run that needs nothing, or of which that is not known.
    """
    reached = speedups(score_curves(frames, "reference_scoring", metrics), baseline, crossing)
    making = frames.costs.set_index(["label", "seed"])["reference_training_flops"].to_dict()
    of_baseline = reached[reached["label"] == baseline].set_index("seed")["flops_to_match"].to_dict()
    rows = reached[~reached["label"].isin(frames.apart_from(baseline))]
    rows = rows.dropna(subset="flops_spent").rename(columns={"flops_to_match": "scored_flops"})
    keys = list(zip(rows["label"], rows["seed"], strict=True))
    rows["making_flops"] = [0.0 if key[0] == baseline else making.get(key, 0.0) for key in keys]
    needed, scored = rows["making_flops"], rows["scored_flops"]
    whole = rows["seed"].map(of_baseline)
    rows["break_even"] = [_runs(*each) for each in zip(needed, scored, whole, rows["reached"], strict=True)]
    return rows[["label", "seed", "scored_flops", "making_flops", "break_even"]]


def _runs(making: float, scored: float, whole: float, reached: bool) -> float:
    """Of one seed; NaN where nothing is needed, or it is not known what was spent by then."""
    if not making > 0 or math.isnan(whole) or (reached and math.isnan(scored)):
        return math.nan
    runs = break_even_runs(making, scored, whole) if reached else None
    return math.inf if runs is None else runs


def over_seeds(runs: pd.DataFrame) -> dict[str, float]:
    """Label → median of its runs, of two middle ones the greater; those that need nothing are left out."""
    known = runs.dropna(subset="break_even")
    return {str(label): median_high(rows) for label, rows in known.groupby("label", sort=False)["break_even"]}
