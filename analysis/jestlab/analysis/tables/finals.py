"""Final results of completed runs, each by itself and the runs of a label together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from ..costs import Scope
from ..curves import Crossing, score_curves, speedups
from ..frames import Frames
from ..intervals import half_widths

if TYPE_CHECKING:
    import pandas as pd

Mean = Literal["all", "shared"]
"""Over which metrics a score is taken: all, so that a run which lacks one has no score; or those that every
completed run has."""

MEANS: tuple[Mean, ...] = get_args(Mean)


@dataclass(frozen=True)
class Finals:
    """The final results of an experiment, compared with a baseline.

    Attributes:
        frames: The experiment.
        baseline: Label that others are compared with.
        scope: What counts as FLOPs.
        averaged: The metrics whose mean the score is.
        runs: One row a completed run that was evaluated, in the order of the study: fingerprint, label, seed,
            the metrics, score, delta (score minus that of the baseline with the same seed; NaN for the
            baseline, for references that stand apart, and without such a seed), examples_seen, flops, and
            the columns of `curves.speedups`, NaN where a run is not compared.
    """

    frames: Frames
    baseline: str
    scope: Scope
    averaged: tuple[str, ...]
    runs: pd.DataFrame

    @cached_property
    def by_label(self) -> pd.DataFrame:
        """One row a label, in the order of the study: index label; run, apart (bool), seeds, seeds_planned;
        for each metric, score and delta `_mean`, `_std` and `_seeds`; delta_low, delta_high (95% confidence
        interval of the mean); examples_seen, flops (means)."""
        import pandas as pd

        of_label = self.frames.runs.groupby("label", sort=False)
        rows = pd.DataFrame({"run": of_label["run"].first(), "apart": False})
        rows.loc[self.frames.apart_from(self.baseline), "apart"] = True
        ended = self.runs.groupby("label")
        rows["seeds"] = ended.size()
        rows["seeds_planned"] = of_label.size()
        for name in [*self.frames.metrics, "score", "delta"]:
            # The standard deviation is the sample's: n − 1.
            spread = ended[name].agg(["mean", "std", "count"])
            rows[[f"{name}_mean", f"{name}_std", f"{name}_seeds"]] = spread
        counts = [name for name in rows.columns if name == "seeds" or str(name).endswith("_seeds")]
        rows[counts] = rows[counts].fillna(0).astype(int)
        half = half_widths(rows["delta_std"], rows["delta_seeds"])
        rows["delta_low"], rows["delta_high"] = rows["delta_mean"] - half, rows["delta_mean"] + half
        rows[["examples_seen", "flops"]] = ended[["examples_seen", "flops"]].mean()
        return rows


def finals(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    mean: Mean = "all",
    crossing: Crossing = "first",
) -> Finals:
    """Compute the final results of an experiment.

    Args:
        frames: The experiment.
        baseline: Label or run to compare with; by default the study's first run that is no reference.
        scope: What counts as FLOPs.
        mean: Over which metrics the score is taken.
        crossing: Which crossing of the baseline's final score counts.

    Raises:
        ValueError: No run has completed yet, no metric is shared where the mean is over such, or there is no
            such baseline.
    """
    compared = frames.baseline(baseline)
    averaged = frames.metrics if mean == "all" else frames.shared_metrics
    if not averaged:
        raise ValueError(f"runs of experiment {frames.experiment!r} share no metric: leave out --mean shared")
    curves = score_curves(frames, scope, averaged)
    ended = curves[curves["final"]].drop(columns=["step", "final"])
    if ended.empty:
        raise ValueError(f"no run of experiment {frames.experiment!r} has completed yet: {frames.progress()}")
    competes = ~ended["label"].isin([compared, *frames.apart_from(compared)])
    of_baseline = ended[ended["label"] == compared].set_index("seed")["score"]
    ended["delta"] = (ended["score"] - ended["seed"].map(of_baseline)).where(competes)
    sooner = speedups(curves, compared, crossing)
    sooner = sooner[~sooner["label"].isin(frames.apart_from(compared))]
    runs = ended.merge(sooner, on=["fingerprint", "label", "seed"], how="left")
    return Finals(frames, compared, scope, tuple(averaged), runs)
