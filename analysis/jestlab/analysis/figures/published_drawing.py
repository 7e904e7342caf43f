"""Drawing of published methods: points with their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..drawing import add_axes, canvas
from ..plots import Texts
from .naming import name_points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _BELOW, _WIDTH, _HEIGHT, _GAP = 0.62, 0.45, 4.6, 2.9, 0.2  # inches
_LOG_FROM = 4.0


def draw_published(data: pd.DataFrame, texts: Texts) -> Figure:
    """As a figure of its own.

    Args:
        data: As of `published_scores.published_scores`.
        texts: The words.
    """
    figure, below = canvas(texts, _LEFT + _WIDTH + _GAP, _BELOW + _HEIGHT)
    draw_published_panel(add_axes(figure, _LEFT, below + _BELOW, _WIDTH, _HEIGHT), data)
    return figure


def draw_published_panel(axes: Axes, data: pd.DataFrame) -> None:
    """As a panel of another one: the source's own and one's own larger than the others."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if data["x"].max() > _LOG_FROM * data["x"].min():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}%")
    axes.set(xlabel="training FLOPs, of the baseline's", ylabel="mean score (%)")
    for _, point in data.iterrows():
        size = 18 if point["kind"] == "published" else 30
        axes.scatter(point["x"], point["y"], s=size, marker=point["marker"], color=point["colour"], zorder=3)
    axes.margins(x=0.16, y=0.12)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    name_points(axes, data.assign(low=data["y"], high=data["y"]), np.empty((0, 2)), [])
