"""Draw what panels share: scales and ticks of axes, confidence intervals, dots of seeds, and levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from .. import units
from ..intervals import HUGE
from .style import DASHED, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_FROM = 8.0
"""Values that differ by this factor get a logarithmic axis, with ticks at 1, 2, 5, 10, …"""

WIDE = 2.0
"""Costs that differ by this factor get a logarithmic axis."""

_DECADES = 300.0  # a logarithmic axis that spans this factor has ticks at powers of 10 only
_TICK = 4.5  # room for a tick of the horizontal axis, relative to the font size


def count_axis(axes: Axes, values: Iterable[float] = (), *, log: bool = False) -> None:
    """Write the ticks of the horizontal axis as 5k and 2M.

    Args:
        axes: The panel.
        values: Numbers on the axis; a logarithmic one ends at them and their margin.
        log: Whether it is logarithmic, if all values are positive.
    """
    frame: Any = axes.get_window_extent()
    room = 72 * frame.width / axes.figure.dpi / (_TICK * size_of("label"))
    _scale(axes, "x", values, log, max(2, min(8, round(room))), lambda x: units.tick(x, axes.get_xlim()[1]))


def value_axis(axes: Axes, values: Iterable[float], *, log: bool = False, percent: bool = False) -> None:
    """Write the ticks of the vertical axis as plain numbers.

    Args:
        axes: The panel, drawn.
        values: Means on the axis, which stays linear unless all are positive.
        log: Whether the axis is logarithmic.
        percent: Whether to end the axis at 0 and 100, which intervals may exceed but scores can't.
    """
    known = [*filter(math.isfinite, values)]
    drawn = [y for line in cast(Any, axes).get_lines() for y in line.get_ydata() if 0 < y < math.inf]
    _scale(axes, "y", [*known, *drawn], log, "auto", units.tick)
    if percent:
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, min([0.0, *known])), min(top, max([100.0, *known])))


def _scale(
    axes: Any, which: str, values: Iterable[float], log: bool, most: Any, form: Callable[[float], str]
) -> None:
    """Scale an axis and write its ticks."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    axis, known = getattr(axes, f"{which}axis"), [*filter(math.isfinite, values)]
    ratio = max(known) / min(known) if log and known and min(known) > 0 else 1.0
    if ratio > 1.0:
        getattr(axes, f"set_{which}scale")("log")
        # Not of intervals, which may end near 0 or below: the axis cuts them off.
        room = min(ratio, HUGE) ** axes.margins()[which == "y"]
        getattr(axes, f"set_{which}lim")(min(known) / room, min(max(known) * room, HUGE))
        axis.set_minor_formatter(NullFormatter())
    linear = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])
    subs = (1, 2, 5) if ratio < _DECADES else (1,)
    axis.set_major_locator(linear if ratio < LOG_FROM else LogLocator(subs=subs))
    axis.set_major_formatter(lambda value, _: form(value))


def draw_intervals(
    axes: Axes, x: Any, y: Any, x_ends: tuple[Any, Any], y_ends: tuple[Any, Any], color: Any, **style: Any
) -> None:
    """Draw the confidence intervals of points, whose ends are equal for a single seed; numbers are [n]."""
    axes.hlines(y, *x_ends, colors=color, linewidth=0.9, zorder=3, **style)
    axes.vlines(x, *y_ends, colors=color, linewidth=0.9, zorder=3, **style)


def draw_band(axes: Axes, x: Any, low: Any, high: Any, color: str) -> None:
    """Shade the confidence interval around a line."""
    axes.fill_between(x, low, high, color=color, alpha=0.16, linewidth=0)


def draw_thin(axes: Axes, lines: Any, x: str, y: str) -> None:
    """Draw a thin line for each group of rows, such as the curve of a seed."""
    for _, line in lines:
        axes.plot(line[x], line[y], color=line["color"].iloc[0], alpha=0.35, linewidth=0.7, zorder=2)


def draw_seeds(axes: Axes, x: Any, y: Any, colors: Any, **style: Any) -> None:
    """Draw a small circle for each seed, above the confidence intervals."""
    axes.scatter(x, y, s=12, facecolors="white", edgecolors=colors, linewidths=0.8, zorder=4, **style)


def beside(axes: Axes, place: int, count: int) -> Any:
    """Return a transform that moves one of `count` lines sideways, so that equal positions don't overlap."""
    from matplotlib.transforms import ScaledTranslation

    points = min(4, 16 / count) * (place - (count - 1) / 2)  # of very many lines, the same width in total
    return axes.transData + ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)


def draw_levels(axes: Axes, levels: Iterable[tuple[float, str]]) -> None:
    """Draw the scores of references, from `near_references`, as dashed lines with their names."""
    for level, name in levels:
        axes.axhline(level, label=name, **DASHED)
