"""How many runs a reference has to serve until it has paid for itself, by what runs have reached."""

from __future__ import annotations

import math
from statistics import median_high

from .costs import break_even_runs
from .curves import score_curves, speedups
from .frames import Frames


def break_even(frames: Frames, baseline: str | None = None) -> dict[str, float]:
    """The fewest runs that together, making their reference included, cost less than as many baselines.

    Of each seed: the FLOPs of making all that a run needs, over what the run saves until it first reaches the
    baseline's final score, its own scoring and its reference's counted (`costs.break_even_runs`).

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
    compared = frames.baseline(baseline)
    reached = speedups(score_curves(frames, "reference_scoring"), compared)
    of_runs = frames.costs.set_index(["label", "seed"])["reference_training_flops"].to_dict()
    of_baseline = reached[reached["label"] == compared].set_index("seed")["flops_to_match"].to_dict()
    apart = {compared, *frames.apart_from(compared)}
    found: dict[str, list[float]] = {}
    for run in reached[~reached["label"].isin(apart)].to_dict("records"):
        making = float(of_runs.get((run["label"], run["seed"]), 0.0))
        whole, spent = float(of_baseline[run["seed"]]), float(run["flops_spent"])
        if not making > 0 or math.isnan(whole) or math.isnan(spent):
            continue
        runs = break_even_runs(making, run["flops_to_match"], whole) if run["reached"] else None
        found.setdefault(run["label"], []).append(math.inf if runs is None else runs)
    return {label: median_high(of_seeds) for label, of_seeds in found.items()}
