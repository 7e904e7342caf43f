"""The values that claims compare: scores, evaluations, training metrics, and loss spikes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..curves import score_curves
from ..efforts import Effort
from ..metrics import UNKNOWN, Metric, Metrics
from ..results import Snapshot
from .claim import AFTER, AT_FLOPS, AT_SECONDS, SCORE, SPIKES, is_score

if TYPE_CHECKING:
    import pandas as pd

    from ..costs import Scope
    from ..frames import Frames

Place = tuple[str, int]
"""A label and a seed."""

FAR = 6.0
"""A spike of the loss is this many robust standard deviations above the running median."""

FEWEST = 50
"""Minimum number of logged points to count spikes: fewer show too little of the spread."""

_AT: dict[str, Effort] = {AT_FLOPS: "flops", AT_SECONDS: "seconds"}
_LOSS = "loss"
_WINDOW_SHARE, _MIN_WINDOW = 25, 5  # the running median spans 1/25 of a run, so that no spike moves it


@dataclass(frozen=True)
class Measures:
    """The measurements of an experiment, read at one moment.

    Attributes:
        frames: The results; None if nothing has been evaluated.
        curves: Scores over training, from `curves.score_curves`; None if nothing has been evaluated.
        logged: The requested training metrics: label, seed, name, step, value.
        declared: The declarations of the metrics.
    """

    frames: Frames | None
    curves: pd.DataFrame | None
    logged: pd.DataFrame
    declared: Metrics = field(default_factory=Metrics)

    @classmethod
    def load(
        cls,
        store: Snapshot,
        experiment: str,
        measures: Sequence[str],
        scope: Scope,
        frames: Frames | None,
        declared: Metrics,
    ) -> Measures:
        """Read the measurements of an experiment.

        Args:
            store: The store.
            experiment: Name of the experiment.
            measures: Names of the measures to read.
            scope: Scope of FLOPs.
            frames: The results; None if nothing has been evaluated.
            declared: The declarations of the metrics, if nothing has been evaluated.
        """
        evaluated = [] if frames is None else frames.evaluated
        wanted = {_LOSS if name == SPIKES else name for name in measures if not is_score(name)} - {*evaluated}
        logged = store.metrics(experiment, sorted(wanted))
        curves = None if frames is None else score_curves(frames, scope)
        return cls(frames, curves, logged, declared if frames is None else frames.declared)

    def metric(self, measure: str) -> Metric:
        """Return the goal and unit of a measure."""
        if measure == SPIKES:
            return Metric("min")
        if is_score(measure):
            return UNKNOWN if self.frames is None or self.frames.no_score else self.frames.score
        return self.declared.of(measure)

    def values(self, measure: str, places: Collection[Place]) -> dict[Place, float]:
        """Compute a measure of completed runs.

        Args:
            measure: As in `Claim.measure`.
            places: The runs.

        Returns:
            The known values; NaN for a run that diverged. Nothing is extrapolated: a curve that starts above
            the FLOPs at which runs are compared has no value there.
        """
        ends, diverged = self._ends(measure)
        after = AFTER.fullmatch(measure)
        if measure in _AT or after:
            effort = _AT.get(measure, "examples_seen")
            curves = dict(self._curves(effort, places))
            last = {place: float(curve[effort].iloc[-1]) for place, curve in curves.items()}
            # A further seed doesn't change the scores of earlier ones, as tests after every seed require.
            least = {seed: min(end for (_, own), end in last.items() if own == seed) for _, seed in last}
            at = {place: float(after[1]) * last[place] if after else least[place[1]] for place in last}
            found = {place: _score_at(curve, effort, at[place]) for place, curve in curves.items()}
        elif measure == SPIKES:
            loss = self.logged[self.logged["name"] == _LOSS].dropna(subset=["value"])
            found = {place: spike_count(points["value"]) for place, points in _by_run(loss, places)}
        else:
            found = ends
        known = {place: value for place, value in found.items() if math.isfinite(value)}
        known |= dict.fromkeys(diverged, math.nan)
        return {place: known[place] for place in places if place in known}

    def missing(self, measure: str, name: str) -> str:
        """Explain in one clause why completed runs of a label with this display name have no value."""
        if is_score(measure) and self.frames is None:
            return "nothing has been evaluated"
        if is_score(measure) and self.frames is not None and self.frames.no_score:
            return self.frames.no_score
        if measure in _AT or AFTER.fullmatch(measure):
            return f"{name} has no evaluation early enough for {measure}"
        if measure == SPIKES:
            return f"{name} has fewer than {FEWEST} points of the loss"
        return f"{name} has no value of {measure}"

    def _ends(self, measure: str) -> tuple[dict[Place, float], set[Place]]:
        """Return the final values of a measure, and the runs that diverged: their last value isn't finite."""
        is_scored = is_score(measure)
        if is_scored or (self.frames is not None and measure in self.frames.evaluated):
            if self.curves is None:
                return {}, set()
            last = self.curves[self.curves["final"]]
            values = _by_place(last, SCORE if is_scored else measure)
            flags = _by_place(last, "diverged")
            lost = {place for place, v in values.items() if math.isinf(v) or (flags[place] and math.isnan(v))}
            return values, lost
        of_metric = self.logged[self.logged["name"] == (_LOSS if measure == SPIKES else measure)]
        values = _by_place(of_metric.groupby(["label", "seed"]).tail(1), "value")
        return values, {place for place, value in values.items() if not math.isfinite(value)}

    def _curves(self, effort: str, places: Collection[Place]) -> Iterator[tuple[Place, pd.DataFrame]]:
        """Yield the learning curves of completed runs over an effort."""
        if self.curves is not None:
            for place, curve in _by_run(self.curves.dropna(subset=[SCORE, effort]), places):
                if curve["final"].any():
                    yield place, curve.sort_values(effort)


def _score_at(curve: pd.DataFrame, effort: str, value: float) -> float:
    """Interpolate the score of a learning curve; NaN before its first evaluation."""
    import numpy as np

    if curve[effort].iloc[0] > value:
        return math.nan
    return float(np.interp(value, curve[effort], curve[SCORE]))


def _by_run(rows: pd.DataFrame, places: Collection[Place]) -> Iterator[tuple[Place, pd.DataFrame]]:
    """Yield the rows of each of these runs. pandas takes a millisecond for each, so others are left out."""
    rows = rows[rows["label"].isin({label for label, _ in places})]
    for _, of_run in rows.groupby(["label", "seed"], sort=False):
        place = str(of_run["label"].iloc[0]), int(of_run["seed"].iloc[0])
        if place in places:
            yield place, of_run


def _by_place(rows: pd.DataFrame, column: str) -> dict[Place, float]:
    values = zip(rows["label"], rows["seed"], rows[column], strict=True)
    return {(str(label), int(seed)): float(value) for label, seed, value in values}


# ---- spikes of the loss


def spike_count(values: pd.Series[float]) -> float:
    """Count the spikes of a training metric. Adjacent points belong to one spike.

    Args:
        values: In the order of the steps, without missing values.

    Returns:
        NaN with fewer than `FEWEST` values.
    """
    if len(values) < FEWEST:
        return math.nan
    deviations = values - running_median(values)
    # Spikes don't move the median absolute deviation.
    spread = 1.4826 * float((deviations - deviations.median()).abs().median())
    is_spike = deviations > (FAR * spread if spread > 0 else math.inf)
    return float((is_spike & ~is_spike.shift(fill_value=False)).sum())


def running_median(values: pd.Series[float]) -> pd.Series[float]:
    """Compute the median around each point, over a window that no spike fills."""
    window = max(_MIN_WINDOW, len(values) // _WINDOW_SHARE)
    found: pd.Series[float] = values.rolling(window, center=True, min_periods=1).median()
    return found
