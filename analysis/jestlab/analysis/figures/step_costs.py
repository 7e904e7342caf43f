"""Costs of a training step of each run relative to the baseline's, by component (paper, Figure 4, left)."""

import pandas as pd

from ..configs import Configs
from ..costs import EXECUTED, Convention, Step
from ..errors import NotYet, RequestError
from ..frames import Frames
from .bars import draw_stacked_bars, stacked
from .plot import Plot, Texts, title
from .style import PARTS

_COMPONENTS = {
    "learner": ("training the learner", *PARTS[0]),
    "image_tower": ("image tower", *PARTS[0]),
    "text_tower": ("text tower", *PARTS[4]),
    "loss": ("loss", *PARTS[6]),
    "scoring": ("learner scores", *PARTS[1]),
    "selection": ("selection", *PARTS[2]),
    "reference_scoring": ("reference scores", *PARTS[3]),
}
"""Component → name, color, and hatch, in the order in which bars show them."""

_OF_RUNS = ("learner", "scoring", "selection", "reference_scoring")
"""Components of runs, in the columns of `Frames.costs`. The learner's FLOPs include its towers and loss."""

_MOST = 20  # maximum number of labels: more would not fit on a page of a paper


def step_costs(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot the planned FLOPs per example seen, by component, relative to those of the baseline.

    If batch sizes are equal, the costs of steps have the same ratios. A cached reference costs nothing here.

    Args:
        baseline: Label or run whose bar has length 1; by default the study's baseline.

    Returns:
        The plot, with the data of `bars.stacked`.

    Raises:
        ValueError: The baseline is unknown, or its program does not count FLOPs.
    """
    compared = frames.baseline(baseline)
    flops, shown = _flops_per_example(frames), frames.shown[compared]
    if compared not in flops.index:
        raise NotYet(
            f"baseline {compared!r} of {frames.experiment!r} has no price, since its program counts no FLOPs"
        )
    apart = frames.apart_from(compared)
    labels = [label for label in frames.labels if label in flops.index and label not in apart]
    kept = [label for label in labels if label in labels[:_MOST] or label == compared]
    caption = (
        f"Planned FLOPs per example that the learner sees, relative to {shown}. Cached references score at "
        "no cost; their training is not included."
    )
    if len(kept) < len(labels):
        caption += f" Shown: {len(kept)} of {len(labels)} runs."
    words = Texts(title(frames), caption, "", f"cost of an example, {shown} = 1")
    data = stacked(flops.loc[kept] / flops.loc[compared].sum(), _COMPONENTS, frames.shown.__getitem__)
    return Plot("step_costs", data, words, draw_stacked_bars)


def method_costs(step: Step, convention: Convention = "paper") -> Plot:
    """Plot the costs of a step of each method, without an experiment: IID, JEST (cached or not), Flexi-JEST.

    Args:
        step: A step of Flexi-JEST, or of JEST if it has no approximate pass.
        convention: How FLOPs are counted: "paper" or "counted".

    Returns:
        The plot, named "method_costs_" and the convention, with the data of `bars.stacked`.

    Raises:
        ValueError: The step selects nothing, or the convention is unknown.
    """
    if step.super_batch_size == step.batch_size:
        raise RequestError("the step trains on its whole super-batch: expected one that selects from it")
    costs = {method: step.cost(convention) for method, step in step.methods.items()}
    parts = {method: [getattr(cost, name) for name in EXECUTED] for method, cost in costs.items()}
    lengths = pd.DataFrame.from_dict(parts, "index", columns=EXECUTED, dtype=float)
    caption = (
        f"FLOPs of a step relative to uniform sampling (IID), by the convention {convention!r}, when "
        f"{step.batch_size:,} of {step.super_batch_size:,} examples are chosen."
    )
    if step.approximate is not None:
        share = step.approximate.total / step.full.total
        caption += f" An approximate forward pass costs {share:.2f} of a full one."
    words = Texts("Cost of a step", caption, "", "cost of a step, IID = 1")
    data = stacked(lengths / step.iid.cost(convention).total(), _COMPONENTS)
    return Plot(f"method_costs_{convention}", data, words, draw_stacked_bars)


def _flops_per_example(frames: Frames) -> pd.DataFrame:
    """Return FLOPs per example, [label, component], of labels with a price and a known number of examples."""
    configs = Configs(frames)
    columns = {f"{name}_flops": name for name in _OF_RUNS}
    planned = frames.costs.groupby("label", sort=False)[list(columns)].mean().rename(columns=columns)
    planned = planned.fillna(0.0)
    ends = frames.scores[frames.scores["final"]].groupby("label")["examples_seen"].mean()
    seen = {label: configs.get(label, "schedule.examples_seen") or ends.get(label) for label in planned.index}
    return planned[planned.sum(axis=1) > 0].div(pd.Series(seen, dtype=float), axis=0).dropna()
