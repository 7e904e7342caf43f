"""What a step of each run costs beside the baseline's, by component (paper, Figure 4, left)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import units
from ..configs import Configs
from ..costs import CONVENTIONS, EXECUTED, Convention, Step
from ..frames import Frames
from .drawing_bars import draw_stacked_bars
from .plot import Plot, Texts, title
from .style import COMPONENT_LOOKS

if TYPE_CHECKING:
    import pandas as pd

_COMPONENTS = {
    "learner": "training the learner",
    "image_tower": "image tower",
    "text_tower": "text tower",
    "loss": "loss",
    "scoring": "learner scores",
    "selection": "selection",
    "reference_scoring": "reference scores",
}
"""Component → its name in the legend, from the left of a bar to its right."""

_OF_RUNS = ("learner", "scoring", "selection", "reference_scoring")
"""Components of runs, columns of `Frames.costs`; the learner's FLOPs include its towers and loss."""

_MOST = 40  # labels
_EXAMPLES = "schedule.examples_seen"


def step_costs(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot the planned FLOPs per example seen, by component, relative to what the baseline spends on one.

    Steps of equal batch size cost in proportion to their examples. A cached reference costs nothing here.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run whose bar has length 1; by default the study's first non-reference run.

    Returns:
        The plot, named "step_costs". Its data: a row a label and component: label, component, flops (of one
        example), relative, total (of the label, relative), text.

    Raises:
        ValueError: If the baseline has no price, or there is no such baseline.
    """
    compared = frames.baseline(baseline)
    called = frames.shown[compared]
    spent = _of_an_example(frames)
    totals = spent.sum(axis=1)
    if compared not in totals.index:
        raise ValueError(
            f"baseline {compared!r} of {frames.experiment!r} has no price, since its program counts no FLOPs"
        )
    whole = float(totals.to_dict()[compared])
    data = spent.melt(var_name="component", value_name="flops", ignore_index=False).reset_index()
    data = data[~data["label"].isin(frames.apart_from(compared))]
    priced = set(data["label"])
    labels = [label for label in frames.labels if label in priced]
    data = data[data["label"].isin([compared, *labels[:_MOST]])].copy()
    data["relative"] = data["flops"] / whole
    data["total"] = data.groupby("label")["relative"].transform("sum")
    data = _looks(data)
    data["text"] = data["label"].map(frames.shown)
    order = {label: place for place, label in enumerate(frames.labels)}
    data["place"] = data["label"].map(order)
    data = data.sort_values("place", kind="stable", ignore_index=True)
    caption = (
        f"Planned FLOPs per example that the learner sees, relative to {called}. Cached references score "
        "at no cost; their training is not included."
    )
    if len(labels) > _MOST:
        caption += f" Shown: the first {_MOST} of {len(labels)}."
    return Plot(
        "step_costs",
        data,
        Texts(title(frames), caption, "", f"cost of an example, {called} = 1"),
        draw_stacked_bars,
    )


def method_costs(step: Step, convention: Convention = "paper") -> Plot:
    """Plot what a step of each method costs, without any experiment: IID, JEST (cached or not), Flexi-JEST.

    Args:
        step: Of Flexi-JEST, or of JEST where there is no approximate pass.
        convention: How FLOPs are counted: "paper" or "counted".

    Returns:
        The plot, named "method_costs_" and the convention, with the data of `step_costs`.

    Raises:
        ValueError: If the step chooses nothing, or there is no such convention.
    """
    import pandas as pd

    if convention not in CONVENTIONS:
        raise ValueError(f"unknown convention {convention!r}: choose one of {', '.join(CONVENTIONS)}")
    if step.super_batch_size == step.batch_size:
        raise ValueError("the step trains on its whole super-batch: expected one that selects from it")
    whole = step.iid.cost(convention).total()
    bars = []
    for method, its_step in step.methods.items():
        cost = its_step.cost(convention)
        for component in EXECUTED:
            flops = float(getattr(cost, component))
            bars.append((method, component, flops * step.batch_size, flops / whole))
    data = pd.DataFrame(bars, columns=["label", "component", "flops", "relative"])
    data["total"] = data.groupby("label")["relative"].transform("sum")
    data = _looks(data).assign(text=data["label"])
    caption = (
        f"FLOPs of a step relative to uniform sampling (IID), by the convention {convention!r}, when "
        f"{step.batch_size:,} of {step.super_batch_size:,} examples are chosen. A forward pass of one "
        f"example is {units.flops(step.full.total)}"
    )
    if step.approximate is not None:
        caption += (
            f", an approximate one {step.approximate.total / step.full.total:.2f} of it; Flexi-JEST trains "
            f"on {step.approximate_share:.0%} of a batch with it, and scores with it"
        )
    caption += "."
    words = Texts("What a step costs", caption, "", "cost of a step, IID = 1")
    return Plot(f"method_costs_{convention}", data.reset_index(drop=True), words, draw_stacked_bars)


def _of_an_example(frames: Frames) -> pd.DataFrame:
    """FLOPs per example by label and component; without labels of no price or unknown length."""
    configs = Configs(frames)
    columns = {f"{name}_flops": name for name in _OF_RUNS if f"{name}_flops" in frames.costs}
    planned = (
        frames.costs.groupby("label", sort=False)[list(columns)].mean().rename(columns=columns).fillna(0.0)
    )
    ends = frames.scores[frames.scores["final"]].groupby("label")["examples_seen"].mean()
    examples = {label: configs.get(label, _EXAMPLES) or ends.get(label) for label in frames.labels}
    planned = planned[planned.sum(axis=1) > 0]
    length = planned.index.map(examples).to_numpy(float)
    found: pd.DataFrame = planned.div(length, axis=0).dropna()
    return found


def _looks(data: pd.DataFrame) -> pd.DataFrame:
    """Name the components of costs, and color them."""
    looks = data["component"].map(COMPONENT_LOOKS)
    return data.assign(
        name=data["component"].map(_COMPONENTS),
        color=looks.map(lambda look: look[0]),
        hatch=looks.map(lambda look: look[1]),
    )
