"""Drawing of the Pareto plot, from data that is ready."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..drawing import (
    EDGE,
    LOG_FROM,
    axis_unit,
    figure_of,
    logarithmic,
    name_level,
    reference_levels,
    single_axes,
)
from ..labels import Box
from ..plots import Texts
from ..style import GREY
from .naming import name_points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_pareto(data: pd.DataFrame, texts: Texts) -> Figure:
    """Points with error bars, their front as steps, each named beside its marker.

    Args:
        data: As of `front.pareto`.
        texts: The words.
    """
    competing = data[data["role"] != "reference"]
    scale, x_label = axis_unit(texts.x, competing["flops"])
    costs = ["flops", "flops_low", "flops_high"]
    competing = competing.assign(**{cost: competing[cost] / scale for cost in costs})
    means, seeds, ways, attained = (
        competing[competing["kind"] == kind] for kind in ("mean", "seed", "trajectory", "attained")
    )
    seeds = seeds[seeds["label"].isin(means.loc[means["seeds"] > 1, "label"])]  # a single one is its mean
    axes = single_axes(texts, x_label, right=2 * EDGE)
    if means["flops"].max() > LOG_FROM * means["flops"].min():
        logarithmic(axes)
    for _, way in ways.groupby("label", sort=False):
        axes.plot(
            way["flops"], way["score"], color=way["colour"].iloc[0], alpha=0.35, linewidth=0.8, zorder=2
        )
    axes.scatter(seeds["flops"], seeds["score"], s=6, c=seeds["colour"], alpha=0.6, linewidths=0, zorder=3)
    for _, mean in means.iterrows():
        _draw_mean(axes, mean)
    axes.margins(x=0.14, y=0.1)
    references = data[(data["role"] == "reference") & (data["kind"] == "mean")]
    levels = reference_levels(
        axes, references.rename(columns={"score": "mean"}), [*means["low"], *means["high"]]
    )
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # what follows adapts to the frame, not the reverse
    obstacles = [box for level, text in levels for box in name_level(axes, level, text)]
    for _, surface in attained.groupby("at_least") if not attained.empty else ():
        obstacles += _draw_steps(axes, surface, linestyle=":", linewidth=0.9)
    obstacles += _draw_steps(axes, means[means["on_front"]], linewidth=1.0)
    name_points(
        axes,
        means.rename(columns={"flops": "x", "score": "y"}),
        seeds[["flops", "score"]].to_numpy(),
        obstacles,
    )
    return figure_of(axes)


_FILLS = {"front": "full", "ambiguous": "left", "dominated": "full"}  # dominated: with white


def _draw_mean(axes: Axes, mean: pd.Series[Any]) -> None:
    """A marker, filled by its standing, with bars from the lowest to the highest seed."""
    axes.errorbar(
        mean["flops"],
        mean["score"],
        yerr=_bars(mean["score"], mean["low"], mean["high"]),
        xerr=_bars(mean["flops"], mean["flops_low"], mean["flops_high"]),
        color=mean["colour"],
        elinewidth=0.9,
        capsize=2,
        zorder=4,
    )
    axes.plot(
        mean["flops"],
        mean["score"],
        color="none",
        marker=mean["marker"],
        markersize=7,
        fillstyle=_FILLS[mean["standing"]],
        markerfacecolor="white" if mean["standing"] == "dominated" else mean["colour"],
        markerfacecoloralt="white",
        markeredgecolor=mean["colour"],
        markeredgewidth=1.2,
        zorder=5,
    )


def _bars(middle: float, low: float, high: float) -> list[list[float]] | None:
    return [[middle - low], [high - middle]] if high > low else None


def _draw_steps(axes: Axes, steps: pd.DataFrame, **style: Any) -> list[Box]:
    """The border of what has been reached, as steps across the frame; returned as boxes to keep clear."""
    if steps.empty:
        return []
    steps = steps.sort_values("flops")
    (_, right), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    corners = [(steps["flops"].iloc[0], bottom)]
    for flops, score in zip(steps["flops"], steps["score"], strict=True):
        corners += [(flops, corners[-1][1]), (flops, score)]
    corners.append((right, corners[-1][1]))
    xs, ys = zip(*corners, strict=True)
    axes.plot(xs, ys, color=GREY, zorder=2, **style)
    pixels = axes.transData.transform(corners)
    return [
        Box(min(a[0], b[0]) - 3, min(a[1], b[1]) - 3, max(a[0], b[0]) + 3, max(a[1], b[1]) + 3)
        for a, b in pairwise(pixels)
    ]
