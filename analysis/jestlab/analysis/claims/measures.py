"""What claims compare: scores, scores at equal FLOPs, single evaluations, training metrics, loss spikes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..curves import score_curves
from ..efforts import WORDS, Effort
from ..frames import NotYet
from ..metrics import NONE_DECLARED, UNKNOWN, Metric, Metrics
from ..results import Snapshot
from ..units import near
from .claim import AFTER, AT_FLOPS, AT_SECONDS, SCORE, SPIKES, is_score

if TYPE_CHECKING:
    import pandas as pd

    from ..costs import Scope
    from ..frames import Frames

_AT: dict[str, Effort] = {AT_FLOPS: "flops", AT_SECONDS: "seconds"}
_LOSS = "loss"

FAR = 6.0
"""Robust standard deviations above the running median of the loss that make a spike."""

_WINDOW = 25  # a running median spans one part in so many of a run, so that no spike moves it
_LEAST_WINDOW = 5  # points
FEWEST = 50  # logged points of a run in which spikes are sought: of fewer the spread says too little

Place = tuple[str, int]
"""A label and a seed."""

_NAMES = "SELECT DISTINCT name FROM v_metrics WHERE experiment = :experiment"


@dataclass(frozen=True)
class Measures:
    """Measurements of the runs of one experiment, read at one moment.

    Attributes:
        frames: Its results; None where nothing has been evaluated.
        curves: Scores over training, as of `curves.score_curves`; None where nothing has been evaluated.
        logged: Training metrics that were asked for: label, seed, name, step, value.
        names: Of all training metrics; read only where one that was asked for is not there.
        declared: What the metrics mean.
    """

    frames: Frames | None
    curves: pd.DataFrame | None
    logged: pd.DataFrame
    names: tuple[str, ...] = ()
    declared: Metrics = NONE_DECLARED

    @classmethod
    def load(
        cls,
        store: Snapshot,
        experiment: str,
        measures: Sequence[str],
        scope: Scope = "scoring",
        declared: Metrics | None = None,
    ) -> Measures:
        """Read the measurements of an experiment.

        Args:
            store: The store.
            experiment: Its name.
            measures: Those that will be asked for.
            scope: What counts as FLOPs.
            declared: What its metrics mean, where nothing has been evaluated.
        """
        frames: Frames | None = None
        if experiment in store.experiments:
            with contextlib.suppress(NotYet):  # training metrics are there all the same
                frames = store.frames(experiment)
        evaluated = set() if frames is None else set(frames.evaluated)
        asked = {_LOSS if name == SPIKES else name for name in measures if not is_score(name)} - evaluated
        logged = store.metrics(experiment, sorted(asked)).astype({"value": float})
        names: tuple[str, ...] = ()
        if asked - set(logged["name"]):
            names = tuple(sorted(map(str, store.select(_NAMES, experiment=experiment)["name"])))
        curves = None if frames is None else score_curves(frames, scope)
        meant = (declared or NONE_DECLARED) if frames is None else frames.declared
        return cls(frames, curves, logged, names, meant)

    def metric(self, measure: str) -> Metric:
        """What a measure means: whether more or less of it is better, and how it is written."""
        if measure == SPIKES:
            return Metric("min")
        frames = self.frames
        if is_score(measure):
            return UNKNOWN if frames is None or frames.no_score else frames.score
        return self.declared.of(measure)

    def values(self, measure: str, places: Collection[Place]) -> dict[Place, float]:
        """Compute a measure of completed runs.

        Args:
            measure: "score": the mean of the headline metrics at the end, what tables call score;
                "score_at_flops": the same, interpolated where the cheapest of these runs of a seed ends;
                "score_at_seconds": where the fastest of them ends;
                "score_after_0.5": the same where a run has seen that share of its examples; the name of an
                evaluation: its final value; "loss_spikes": how many the loss has; else the name of a training
                metric: its last value.
            places: Completed runs, by label and seed.

        Returns:
            Those that have a value: NaN for a run that diverged, else finite. Nothing is extrapolated: a
            curve that begins above the FLOPs at which runs are compared has none there.
        """
        if measure in _AT:
            found = self._at_least(_AT[measure], places)
        elif (after := AFTER.fullmatch(measure)) is not None:
            found = self._after(float(after[1]))
        elif measure == SCORE or (self.frames is not None and measure in self.frames.evaluated):
            found = self._final(measure)
        else:
            found = self._of_training(measure)
        found = {place: value for place, value in found.items() if math.isfinite(value)}
        found |= dict.fromkeys(self._diverged(measure), math.nan)
        return {place: found[place] for place in places if place in found}

    def _diverged(self, measure: str) -> set[Place]:
        """Runs of which the last value that was recorded isn't finite."""
        if is_score(measure) or (self.frames is not None and measure in self.frames.evaluated):
            ends, flags = self._final(SCORE if is_score(measure) else measure), self._final("diverged")
            return {place for place, v in ends.items() if math.isinf(v) or (flags[place] and math.isnan(v))}
        last = self._last(_LOSS if measure == SPIKES else measure)
        return {place for place, value in last.items() if not math.isfinite(value)}

    def lacking(self, measure: str, label: str) -> str:
        """Say why completed runs of a label have no value."""
        scored = is_score(measure)
        if self.frames is None and scored:
            return "nothing has been evaluated"
        if scored and self.frames is not None and self.frames.no_score:
            return self.frames.no_score
        if scored and self.frames is not None and label not in set(self.frames.scores["label"]):
            return f"{self.frames.shown[label]} has no evaluation"
        if measure in _AT:
            return f"the learning curves have no {WORDS[_AT[measure]].amount} in common"
        if AFTER.fullmatch(measure):
            return f"a learning curve begins later than {measure} asks for, or lacks an evaluation"
        if scored:
            return "an evaluation is missing"
        wanted = _LOSS if measure == SPIKES else measure
        if measure == SPIKES and wanted in set(self.logged["name"]):
            return f"too few points of the loss are logged to tell spikes: {FEWEST} are needed"
        if wanted in set(self.logged["name"]) or (self.frames and measure in self.frames.evaluated):
            return f"{measure} is not known of both sides"
        known = [*self.names, *(self.frames.evaluated if self.frames else [])]
        if measure != SPIKES:  # which lacks the loss itself
            known += [SCORE, AT_FLOPS, AT_SECONDS, "score_after_0.5", *([SPIKES] if _LOSS in known else [])]
        return ": ".join(filter(None, (f"no run has {wanted!r}", near(wanted, known))))

    def _final(self, name: str) -> dict[Place, float]:
        """Values of a column of the curves at the end of each run."""
        if self.curves is None:
            return {}
        return _by_place(self.curves[self.curves["final"]], name)

    def _at_least(self, effort: Effort, places: Collection[Place]) -> dict[Place, float]:
        """Scores at the least effort that these runs end at, seed by seed.

        A further seed doesn't change the scores of earlier ones, as tests after every seed require.
        """
        runs = {place: points for place, points in self._completed(effort) if place in places}
        least: dict[int, float] = {}
        for (_, seed), points in runs.items():
            least[seed] = min(float(points[effort].iloc[-1]), least.get(seed, math.inf))
        return {place: _score_at(points, effort, least[place[1]]) for place, points in runs.items()}

    def _after(self, share: float) -> dict[Place, float]:
        """Scores when that share of a run's examples have been seen."""
        return {
            place: _score_at(points, "examples_seen", share * float(points["examples_seen"].iloc[-1]))
            for place, points in self._completed("examples_seen")
        }

    def _completed(self, effort: str) -> Iterator[tuple[Place, pd.DataFrame]]:
        """The learning curve of each completed run over FLOPs or examples seen, in that order."""
        if self.curves is None:
            return
        for place, points in _runs(self.curves.dropna(subset=["score", effort])):
            if points["final"].any():
                yield place, points.sort_values(effort)

    def _of_training(self, measure: str) -> dict[Place, float]:
        """Values of a training metric, or the number of its spikes."""
        if measure != SPIKES:
            return self._last(measure)
        loss = self.logged[self.logged["name"] == _LOSS].dropna(subset=["value"])
        return {place: spike_count(points["value"]) for place, points in _runs(loss)}

    def _last(self, name: str) -> dict[Place, float]:
        """The last value of a training metric of each run."""
        return _by_place(self.logged[self.logged["name"] == name].groupby(["label", "seed"]).tail(1), "value")


def _score_at(points: pd.DataFrame, effort: str, value: float) -> float:
    """Interpolate the score of a learning curve at some effort; NaN before its first evaluation."""
    import numpy as np

    if points[effort].iloc[0] > value:
        return math.nan
    return float(np.interp(value, points[effort], points["score"]))


def _runs(rows: pd.DataFrame) -> Iterator[tuple[Place, pd.DataFrame]]:
    """The rows of each run."""
    for _, points in rows.groupby(["label", "seed"], sort=False):
        yield (str(points["label"].iloc[0]), int(points["seed"].iloc[0])), points


def _by_place(rows: pd.DataFrame, column: str) -> dict[Place, float]:
    values = zip(rows["label"], rows["seed"], rows[column], strict=True)
    return {(str(label), int(seed)): float(value) for label, seed, value in values}


# ---- spikes: stretches of a training metric that stick out of the noise of their run


def spike_count(values: pd.Series[float]) -> float:
    """Count the spikes of a run; neighbouring points are one spike.

    Args:
        values: Of the metric, in the order of the steps, none missing.

    Returns:
        NaN where too little was logged to tell.
    """
    if len(values) < FEWEST:
        return math.nan
    is_spike = _is_spike(values - running_median(values))
    return float((is_spike & ~is_spike.shift(fill_value=False)).sum())


def running_median(values: pd.Series[float]) -> pd.Series[float]:
    """Compute the median around each point, over a window that no spike fills."""
    window = max(_LEAST_WINDOW, len(values) // _WINDOW)
    found: pd.Series[float] = values.rolling(window, center=True, min_periods=1).median()
    return found


def _is_spike(deviations: pd.Series[float]) -> pd.Series[bool]:
    """Mark points by the median absolute deviation, which spikes themselves do not move."""
    spread = 1.4826 * float((deviations - deviations.median()).abs().median())
    found: pd.Series[bool] = deviations > FAR * spread if spread > 0 else deviations > math.inf
    return found
