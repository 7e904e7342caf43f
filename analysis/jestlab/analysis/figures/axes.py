"""What panels have in common: scales and ticks of axes, confidence intervals, seeds, and steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .. import units
from .style import DASHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_FROM = 8.0
"""Costs that differ by this factor get a logarithmic axis; from it on, ticks are at 1, 2, 5, 10, …"""

_DECADES = 300.0  # a logarithmic axis that spans this factor has ticks at powers of 10 only


def scale_axis(
    axes: Axes, which: Literal["x", "y"], values: Iterable[float], *, log: bool, form: Callable[[float], str]
) -> None:
    """Scale an axis and write its ticks.

    Args:
        axes: The panel.
        which: The axis.
        values: Numbers on the axis; it stays linear unless all are positive.
        log: Whether it is logarithmic.
        form: Writes a tick.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    known = [*filter(math.isfinite, values)]
    if log and known and min(known) > 0:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        ratio = max(known) / min(known)
        subs = (1, 2, 5) if ratio < _DECADES else (1,)
        narrow = MaxNLocator(5, steps=[1, 2, 5, 10])
        axis.set_major_locator(narrow if ratio < LOG_FROM else LogLocator(subs=subs))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(lambda value, _: form(value))


def count_axis(axes: Axes, values: Iterable[float] = (), *, log: bool = False) -> None:
    """Write the ticks of the horizontal axis as 5k and 2M; make it logarithmic if `log`."""
    scale_axis(axes, "x", values, log=log, form=lambda x: units.tick(x, axes.get_xlim()[1]))


def value_axis(axes: Axes, values: Iterable[float], *, log: bool = False) -> None:
    """Write the ticks of the vertical axis as plain numbers; make it logarithmic if `log`."""
    scale_axis(axes, "y", values, log=log, form=lambda y: f"{y:g}")


def limit_percent(axes: Axes, values: Iterable[float]) -> None:
    """End a vertical axis of percentages at 0 and 100, which intervals exceed but scores do not.

    Args:
        axes: The panel, drawn.
        values: Means on the axis; those that are below 0 or above 100 are shown.
    """
    known = [0.0, 100.0, *filter(math.isfinite, values)]
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, min(known)), min(top, max(known)))


def draw_interval(
    axes: Axes, x: Any, y: Any, low: Any, high: Any, color: Any, *, across: bool = False
) -> None:
    """Draw the confidence intervals of points as vertical bars, or as horizontal ones if `across`.

    The ends of an interval, `low` and `high`, are equal for a single seed. All numbers are [n].
    """
    lines = axes.hlines if across else axes.vlines
    lines(y if across else x, low, high, colors=color, linewidth=0.9, zorder=3)


def draw_band(axes: Axes, x: Any, low: Any, high: Any, color: str) -> None:
    """Shade the confidence interval around a line; arguments are those of `draw_interval`."""
    axes.fill_between(x, low, high, color=color, alpha=0.16, linewidth=0)


def draw_seeds(axes: Axes, x: Any, y: Any, colors: Any) -> None:
    """Draw a small circle for each seed, above the confidence intervals."""
    axes.scatter(x, y, s=12, facecolors="white", edgecolors=colors, linewidths=0.8, zorder=4)


def draw_levels(axes: Axes, levels: Iterable[tuple[float, str]]) -> None:
    """Draw the scores of references, from `near_references`, as dashed lines with their names."""
    for level, name in levels:
        axes.axhline(level, label=name, **DASHED)


def draw_steps(axes: Axes, x: Any, y: Any, *, down: bool, **style: Any) -> None:
    """Draw the best values for each cost, as steps across a panel whose limits are final.

    Args:
        axes: The panel.
        x: Costs, [m], in any order.
        y: Best value from each cost on, [m].
        down: Whether less of y is better, so that steps go down.
        style: Of the line.
    """
    order = np.argsort(x)
    xs, ys = np.asarray(x, float)[order], np.asarray(y, float)[order]
    start, end = axes.get_ylim()[down], axes.get_xlim()[1]
    axes.step([xs[0], *xs, end], [start, *ys, ys[-1]], where="post", **style)
