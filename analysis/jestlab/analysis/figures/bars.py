"""Horizontal bars: costs of steps, contents of batches, and costs to match the baseline."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..sheet import Sheet
from .panels import finish, panels, wrapped
from .plot import Texts
from .style import DOTTED, size_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_stacked_bars(data: pd.DataFrame, texts: Texts, sheet: Sheet, *, totals: bool = True) -> Figure:
    """Draw a horizontal bar for each label, the first at the top.

    Args:
        data: A row for each label and component, with the columns label, text, component, name (of the
            component), relative, total (of the label), color, and hatch (of the component). Components are in
            the order in which they first occur.
        texts: The words; `y` is the label of the axis.
        sheet: Size, font, and legend.
        totals: Whether sums are written at the ends, and a dotted line is at 1.
    """
    bars = data.drop_duplicates("label")
    width = sheet.inches
    names = wrapped_names(bars["text"], 0.38 * width)
    figure, [axes] = panels(sheet, height=height_of(names))
    places = {label: place for place, label in enumerate(bars["label"])}
    starts = dict.fromkeys(places, 0.0)
    for _, part in data.groupby("component", sort=False):
        look = part.iloc[0]
        if not part["relative"].gt(0).any():
            continue
        axes.barh(
            part["label"].map(places), part["relative"], 0.72, left=part["label"].map(starts),
            color=look["color"], hatch=look["hatch"], edgecolor="white", linewidth=0.5, label=look["name"],
        )  # fmt: skip
        for label, value in zip(part["label"], part["relative"], strict=True):
            starts[label] += float(value)
    if totals:
        axes.axvline(1, color="black", **DOTTED)
        for label, total in zip(bars["label"], bars["total"], strict=True):
            write_at_end(axes, f"{total:.2f}", total, places[label])
    name_bars(axes, names)
    axes.set_xlabel(texts.y)
    return finish(figure, texts, sheet)


draw_shares = functools.partial(draw_stacked_bars, totals=False)
"""Draw bars that all sum to 1."""


def wrapped_names(names: Iterable[str], width: float) -> list[str]:
    """Break names of bars into lines of a width in inches."""
    return [wrapped(name, width, size_of("name")) for name in names]


def height_of(names: Sequence[str]) -> float:
    """Return the height of a panel of horizontal bars with names from `wrapped_names`, inches."""
    lines = max(1 + name.count("\n") for name in names)
    return (len(names) + 0.2) * max(0.22, 0.016 * size_of("name") * lines + 0.04) + 0.5


def name_bars(axes: Axes, names: Sequence[str]) -> None:
    """Write names left of horizontal bars at 0, 1, …, the first at the top."""
    axes.set_yticks(range(len(names)), names, size=size_of("name"), linespacing=0.95)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.grid(False)
    axes.set_ylim(len(names) - 0.4, -0.6)


def write_at_end(axes: Axes, text: str, x: float, y: float, **style: Any) -> None:
    """Write a text right of the end of a horizontal bar."""
    axes.annotate(
        text, (x, y), xytext=(3, 0), textcoords="offset points", va="center_baseline", size=size_of("name"),
        annotation_clip=False, **style,
    )  # fmt: skip
