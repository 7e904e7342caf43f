"""Curves of anything that runs record: an evaluation, or a training metric such as the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..costs import Scope
from ..curves import score_curves
from ..efforts import EFFORTS
from ..errors import NotYet
from ..frames import Frames
from ..metrics import Metric, Scale
from ..results import Snapshot, opens_store
from ..units import nearest

if TYPE_CHECKING:
    import pandas as pd

NAMES = {"loss": "training loss", "grad_norm": "gradient norm"}
"""Training metric → name in figures."""

_LOGGED_EFFORTS = {"examples_seen": "examples_seen", "flops_total": "flops"}
_RECORDED = "SELECT DISTINCT name FROM v_metrics WHERE experiment = :experiment"


@dataclass(frozen=True)
class Recorded:
    """One recorded metric over training.

    Attributes:
        name: Recorded name.
        metric: Goal, unit, and format.
        curves: With the columns of `curves.score_curves`, the metric as score.
    """

    name: str
    metric: Metric
    curves: pd.DataFrame

    @property
    def axis(self) -> str:
        """The label of its axis: "PPL, less is better"."""
        name = self.metric.name or NAMES.get(self.name, self.name)
        unit = f" ({self.metric.suffix})" if self.metric.suffix else ""
        return f"{name}{unit}{', less is better' if self.metric.goal == 'min' else ''}"


@opens_store
def recorded(
    store: Snapshot,
    frames: Frames,
    names: Sequence[str],
    scope: Scope = "scoring",
    scale: Scale | None = None,
) -> list[Recorded]:
    """Read metrics that runs have recorded.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        frames: Results of the experiment.
        names: Of evaluations (`shapes/zero_shot`) and of training metrics (`loss`).
        scope: What counts as FLOPs.
        scale: Of the vertical axes; None for the scales that the metrics declare.

    Raises:
        ValueError: One has not been recorded; the message names the nearest that has.
    """
    of_training = [name for name in names if name not in frames.evaluated]
    logged = store.metrics(frames.experiment, [*of_training, *_LOGGED_EFFORTS] if of_training else [])
    missing = [name for name in of_training if name not in set(logged["name"])]
    if missing:
        there = sorted(map(str, store.select(_RECORDED, experiment=frames.experiment)["name"]))
        raise NotYet(
            f"no run of {frames.experiment!r} has recorded {missing[0]!r}: "
            f"{nearest(missing[0], [*frames.evaluated, *there])}"
        )
    found = []
    for name in names:
        metric = frames.declared.of(name)
        if scale is not None:
            metric = replace(metric, scale=scale)
        if name in of_training:
            curves = _of_training(frames, logged, name, scope)
        else:
            curves = score_curves(frames, scope, [name])
        found.append(Recorded(name, metric, curves))
    return found


def _of_training(frames: Frames, logged: pd.DataFrame, name: str, scope: Scope) -> pd.DataFrame:
    """Curves of a training metric, with the efforts spent by each step.

    Examples are as logged at the same step. Efforts that only evaluations state (FLOPs of a scope, seconds)
    are interpolated linearly between evaluations, from 0 at the start.
    """
    import numpy as np
    import pandas as pd

    evaluated = dict(list(score_curves(frames, scope).groupby(["label", "seed"])))
    values = logged.pivot_table(index=["label", "seed", "step"], columns="name", values="value", dropna=False)
    values = values.dropna(subset=[name]).reset_index()
    runs = frames.runs.drop_duplicates(["label", "seed"]).set_index(["label", "seed"])
    parts = []
    for place, points in values.groupby(["label", "seed"], sort=False):
        if place not in runs.index:
            continue
        run = runs.loc[place]  # type: ignore[index]
        rows = points[["label", "seed", "step"]].assign(score=points[name], fingerprint=run["fingerprint"])
        known = evaluated.get(place)
        for effort in EFFORTS:
            rows[effort] = math.nan
            there = None if known is None else known.dropna(subset=[effort])
            if there is not None and len(there):
                steps, spent = [0.0, *there["step"]], [0.0, *there[effort]]
                rows[effort] = np.interp(points["step"], steps, spent, right=math.nan)
        for column, logged_effort in _LOGGED_EFFORTS.items():
            if column in points and (column == "examples_seen" or scope == "scoring"):
                rows[logged_effort] = points[column].where(points[column] > 0).fillna(rows[logged_effort])
        ended = run["state"] == "COMPLETED"
        rows["final"] = ended & (rows["step"] == rows["step"].max())
        parts.append(rows)
    order = {label: place for place, label in enumerate(frames.labels)}
    curves = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*values, "score"])
    return curves.sort_values("label", key=lambda labels: labels.map(order), kind="stable", ignore_index=True)
