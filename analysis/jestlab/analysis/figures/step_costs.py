"""Costs of a training step of each run relative to the baseline's, by component (paper, Figure 4, left)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import units
from ..configs import Configs
from ..costs import CONVENTIONS, EXECUTED, Convention, Step
from ..errors import NotYet, RequestError
from ..frames import Frames
from .bars import draw_stacked_bars
from .plot import Plot, Texts, title
from .style import PARTS

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
"""Component → its name in the legend, in the order in which bars show them."""

_OF_RUNS = ("learner", "scoring", "selection", "reference_scoring")
"""Components of runs, in the columns of `Frames.costs`. The learner's FLOPs include its towers and loss."""

_MOST = 20  # labels: more are taller than a page of a paper


def step_costs(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot the planned FLOPs per example seen, by component, relative to those of the baseline.

    Steps of equal batch size cost in proportion to their examples. A cached reference costs nothing here.

    Args:
        frames: Results of an experiment.
        baseline: Label or run whose bar has length 1; by default the first that is not a reference.

    Returns:
        The plot. Its data has one row per label and component: label, text, component, name, flops (of one
        example), relative, total (of the label, relative), color, and hatch.

    Raises:
        ValueError: The baseline is unknown, or its program does not count FLOPs.
    """
    compared = frames.baseline(baseline)
    shown = frames.shown[compared]
    flops = _of_an_example(frames)
    if compared not in flops.index:
        raise NotYet(
            f"baseline {compared!r} of {frames.experiment!r} has no price, since its program counts no FLOPs"
        )
    apart = frames.apart_from(compared)
    labels = [label for label in frames.labels if label in flops.index and label not in apart]
    kept = [label for label in labels if label in labels[:_MOST] or label == compared]
    data = flops.loc[kept].melt(var_name="component", value_name="flops", ignore_index=False)
    data = data.rename_axis("label").reset_index()
    data["relative"] = data["flops"] / flops.loc[compared].sum()
    data["text"] = data["label"].map(frames.shown)
    caption = (
        f"Planned FLOPs per example that the learner sees, relative to {shown}. Cached references score at "
        "no cost; their training is not included."
    )
    if len(labels) > _MOST:
        caption += f" Shown: the first {_MOST} of {len(labels)}."
    words = Texts(title(frames), caption, "", f"cost of an example, {shown} = 1")
    return Plot("step_costs", _styled(data), words, draw_stacked_bars)


def method_costs(step: Step, convention: Convention = "paper") -> Plot:
    """Plot the costs of a step of each method, without an experiment: IID, JEST (cached or not), Flexi-JEST.

    Args:
        step: A step of Flexi-JEST, or of JEST if it has no approximate pass.
        convention: How FLOPs are counted: "paper" or "counted".

    Returns:
        The plot, named "method_costs_" and the convention, with the data of `step_costs`.

    Raises:
        ValueError: The step selects nothing, or the convention is unknown.
    """
    import pandas as pd

    if convention not in CONVENTIONS:
        raise RequestError(f"unknown convention {convention!r}: choose one of {', '.join(CONVENTIONS)}")
    if step.super_batch_size == step.batch_size:
        raise RequestError("the step trains on its whole super-batch: expected one that selects from it")
    whole = step.iid.cost(convention).total()
    costs = {method: each.cost(convention) for method, each in step.methods.items()}
    bars = [(method, name, float(getattr(cost, name))) for method, cost in costs.items() for name in EXECUTED]
    data = pd.DataFrame(bars, columns=["label", "component", "flops"])
    data["relative"], data["flops"] = data["flops"] / whole, data["flops"] * step.batch_size
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
    words = Texts("Cost of a step", f"{caption}.", "", "cost of a step, IID = 1")
    data = _styled(data.assign(text=data["label"]))
    return Plot(f"method_costs_{convention}", data, words, draw_stacked_bars)


def _of_an_example(frames: Frames) -> pd.DataFrame:
    """Return FLOPs per example, by label and component, of labels with a price and a known length."""
    import pandas as pd

    configs = Configs(frames)
    columns = {f"{name}_flops": name for name in _OF_RUNS if f"{name}_flops" in frames.costs}
    planned = frames.costs.groupby("label", sort=False)[list(columns)].mean().rename(columns=columns)
    planned = planned.fillna(0.0)
    ends = frames.scores[frames.scores["final"]].groupby("label")["examples_seen"].mean()
    seen = {label: configs.get(label, "schedule.examples_seen") or ends.get(label) for label in planned.index}
    found: pd.DataFrame = planned[planned.sum(axis=1) > 0].div(pd.Series(seen, dtype=float), axis=0).dropna()
    return found


def _styled(data: pd.DataFrame) -> pd.DataFrame:
    """Add the sum of each label, and the name and look of each component."""
    looks = data["component"].map(dict(zip(_COMPONENTS, PARTS, strict=False)))
    return data.assign(
        total=data.groupby("label")["relative"].transform("sum"),
        name=data["component"].map(_COMPONENTS),
        color=looks.str[0],
        hatch=looks.str[1],
    )
