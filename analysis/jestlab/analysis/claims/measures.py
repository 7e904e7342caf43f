"""The values that claims compare: scores, evaluations, training metrics, and loss spikes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ..curves import score_curves
from ..efforts import Effort
from ..errors import NotYet
from ..frames import Frames
from ..metrics import UNKNOWN, Metric, Metrics
from ..results import Snapshot
from .claim import AFTER, AT_FLOPS, AT_SECONDS, LOSS, SCORE, SPIKES, Study, is_score

Place = tuple[str, int]
"""A label and a seed."""

Term = tuple[str, str]
"""A measure and a label."""

Value = tuple[str, str, int]
"""A measure, a label, and a seed."""

FAR = 6.0
"""A spike of the loss is more than this many robust standard deviations above the running median."""

FEWEST = 50
"""Minimum number of logged points for counting spikes: fewer points don't show the usual spread."""

_AT: dict[str, Effort] = {AT_FLOPS: "flops", AT_SECONDS: "seconds"}
_WINDOW_SHARE, _MIN_WINDOW = 25, 5  # the running median spans 1/25 of a run, so that no spike moves it


@dataclass(frozen=True)
class Measures:
    """The measurements of an experiment, read at one moment.

    Attributes:
        frames: The results; None if nothing has been evaluated.
        curves: Scores over training, from `curves.score_curves`; None if nothing has been evaluated.
        logged: The training metrics of claims: label, seed, name, step, value.
        declared: Goals and units of all metrics.
    """

    frames: Frames | None
    curves: pd.DataFrame | None
    logged: pd.DataFrame
    declared: Metrics = field(default_factory=Metrics)

    @classmethod
    def load(cls, store: Snapshot, experiment: str, study: Study, runs: pd.DataFrame) -> Measures:
        """Read the measures of a study's claims; `runs` has the program of each run."""
        frames = None
        if len(runs):
            with suppress(NotYet):  # training metrics may exist before the first evaluation
                frames = store.frames(experiment)
        names = {name for claim in study.claims for name in claim.metrics if not is_score(name)}
        logged = {LOSS if name == SPIKES else name for name in names}
        logged -= {*frames.evaluated} if frames else set()
        metrics = store.metrics(experiment, sorted(logged))
        if frames is None:
            return cls(None, None, metrics, Metrics.of_spec(study.spec, runs["program"].unique()))
        return cls(frames, score_curves(frames, study.scope), metrics, frames.declared)

    def metric(self, measure: str) -> Metric:
        """Return the goal and unit of a measure."""
        if measure == SPIKES:
            return Metric("min")
        if is_score(measure):
            return self.frames.score if self.frames and not self.frames.no_score else UNKNOWN
        return self.declared.of(measure)

    def values(self, wanted: Collection[Value]) -> dict[Value, float]:
        """Compute measures of completed runs.

        Args:
            wanted: Measure, label, and seed. Runs whose score is wanted are compared at equal efforts.

        Returns:
            The known values. A diverged run has the worst value of its metric, or NaN if the metric has no
            goal. Nothing is extrapolated: a run whose first evaluation is after the effort at which runs are
            compared has no value.
        """
        values: dict[Value, float] = {}
        for measure in dict.fromkeys(name for name, _, _ in wanted):
            places = {(label, seed) for name, label, seed in wanted if name == measure}
            ends = measured = self._ends(measure)
            if measure == SPIKES:
                loss = self.logged[self.logged["name"] == LOSS].dropna(subset=["value"])
                measured = {place: spike_count(points["value"]) for place, points in _by_run(loss, places)}
            elif is_score(measure) and measure != SCORE:
                measured = self._interpolated(measure, places)
            worst = -math.inf * self.metric(measure).sign
            known = {place: value for place, value in measured.items() if math.isfinite(value)}
            known |= {place: worst for place, value in ends.items() if math.isnan(value)}
            values |= {(measure, *place): known[place] for place in places & known.keys()}
        return values

    def missing(self, measure: str, name: str) -> str:
        """Explain in one clause why completed runs with this display name have no value."""
        undefined = self.frames.no_score if self.frames else "nothing has been evaluated"
        if is_score(measure) and undefined:
            return undefined
        if measure == SPIKES:
            return f"{name} has fewer than {FEWEST} points of the loss"
        is_early = is_score(measure) and measure != SCORE
        return f"{name} has no {'evaluation early enough for' if is_early else 'value of'} {measure}"

    def _ends(self, measure: str) -> dict[Place, float]:
        """Return the final values of a measure; NaN for runs that diverged, whose value isn't finite."""
        name = SCORE if is_score(measure) else LOSS if measure == SPIKES else measure
        if self.curves is not None and self.frames and name in (SCORE, *self.frames.evaluated):
            ends = self.curves[self.curves["final"]]
            ends = ends[ends[name].notna() | ends["diverged"]].rename(columns={name: "value"})
        else:
            ends = self.logged[self.logged["name"] == name].groupby(["label", "seed"]).tail(1)
        values = ends["value"].where(np.isfinite(ends["value"]))
        return dict(zip(zip(ends["label"], ends["seed"], strict=True), values, strict=True))

    def _interpolated(self, measure: str, places: Collection[Place]) -> dict[Place, float]:
        """Return the scores of completed runs at equal efforts, or after a share of the examples."""
        if self.curves is None:
            return {}
        effort = _AT.get(measure, "examples_seen")
        curves = {
            place: curve.sort_values(effort)
            for place, curve in _by_run(self.curves.dropna(subset=[SCORE, effort]), places)
            if curve["final"].any()
        }
        ends = {place: curve[effort].iloc[-1] for place, curve in curves.items()}
        if share := AFTER.fullmatch(measure):
            at = {place: float(share[1]) * end for place, end in ends.items()}
        else:
            # An effort for each seed, so that new seeds don't change the scores of earlier ones.
            least: dict[int, float] = {}
            for (_, seed), end in ends.items():
                least[seed] = min(end, least.get(seed, math.inf))
            at = {place: least[place[1]] for place in ends}
        return {
            place: float(np.interp(at[place], curve[effort], curve[SCORE], left=math.nan))
            for place, curve in curves.items()
        }


def _by_run(rows: pd.DataFrame, places: Collection[Place]) -> Iterator[tuple[Place, pd.DataFrame]]:
    """Yield the rows of each run in `places`; others are left out before grouping, which is slow."""
    rows = rows[rows["label"].isin({label for label, _ in places})]
    for _, run in rows.groupby(["label", "seed"], sort=False):
        place = str(run["label"].iloc[0]), int(run["seed"].iloc[0])
        if place in places:
            yield place, run


# ---- spikes of the loss


def spike_count(values: pd.Series[float]) -> float:
    """Count the spikes of a training metric. Adjacent points belong to one spike.

    Args:
        values: Values of the metric in the order of the steps, without missing ones.

    Returns:
        Number of spikes; NaN with fewer than `FEWEST` values.
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
    return values.rolling(window, center=True, min_periods=1).median()
