"""Curves of anything that runs record: an evaluation, or a training metric such as the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..costs import Scope
from ..curves import score_curves
from ..efforts import EFFORTS
from ..errors import NotYet
from ..frames import Frames
from ..metrics import Metric
from ..results import Snapshot, opens_store
from ..units import nearest
from .plot import value_label

if TYPE_CHECKING:
    import pandas as pd

NAMES = {"loss": "training loss", "grad_norm": "gradient norm"}
"""Training metric → name in figures."""

_RECORDED = "SELECT DISTINCT name FROM v_metrics WHERE experiment = :experiment"


@dataclass(frozen=True)
class Recorded:
    """One recorded metric over training.

    Attributes:
        name: Recorded name.
        metric: Goal, unit, and format.
        curves: With the columns of `curves.score_curves`, the metric as score.
        axis: The label of its axis: "PPL, less is better".
    """

    name: str
    metric: Metric
    curves: pd.DataFrame
    axis: str


@opens_store
def recorded(
    store: Snapshot, frames: Frames, names: Sequence[str], scope: Scope = "scoring"
) -> list[Recorded]:
    """Read metrics that runs have recorded.

    Args:
        names: Of evaluations (`shapes/zero_shot`) and of training metrics (`loss`).
        scope: What counts as FLOPs.

    Raises:
        ValueError: One has not been recorded; the message names the nearest that has.
    """
    of_training = [name for name in names if name not in frames.evaluated]
    logged = store.metrics(frames.experiment, [*of_training, "examples_seen"] if of_training else [])
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
        is_logged = name in of_training
        curves = (
            _of_training(frames, logged, name, scope) if is_logged else score_curves(frames, scope, [name])
        )
        axis = value_label(metric, metric.name or NAMES.get(name, name))
        found.append(Recorded(name, metric, curves, axis))
    return found


def _of_training(frames: Frames, logged: pd.DataFrame, name: str, scope: Scope) -> pd.DataFrame:
    """Curves of a training metric, with the efforts spent by each step.

    Examples are as logged at the same step. Other efforts, which only evaluations state, are interpolated
    linearly between evaluations, from 0 at the start.
    """
    import numpy as np

    run = ["label", "seed"]
    values = logged.pivot_table("value", [*run, "step"], "name", dropna=False).dropna(subset=[name])
    runs = frames.runs.drop_duplicates(run)[[*run, "state"]]
    rows = runs.merge(values.reset_index(), on=run).rename(columns={name: "score"})
    seen = rows.get("examples_seen", rows["step"] * math.nan)
    rows[list(EFFORTS)] = math.nan
    evaluated = dict(list(score_curves(frames, scope).groupby(run)))
    for place, points in rows.groupby(run):
        for effort in EFFORTS:
            if place in evaluated and len(known := evaluated[place].dropna(subset=[effort])):
                steps, spent = [0.0, *known["step"]], [0.0, *known[effort]]
                rows.loc[points.index, effort] = np.interp(points["step"], steps, spent, right=math.nan)
    rows["examples_seen"] = seen.fillna(rows["examples_seen"])
    last = rows["step"] == rows.groupby(run)["step"].transform("max")
    return rows.assign(final=last & (rows["state"] == "COMPLETED"))
