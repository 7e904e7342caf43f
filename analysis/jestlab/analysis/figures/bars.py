"""Draw horizontal bars for `step_costs`, `composition`, and `speedup`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..sheet import Sheet
from .panels import finish, panels, wrapped
from .plot import Texts
from .style import DOTTED, size_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def stacked(
    lengths: pd.DataFrame, looks: Mapping[str, tuple[str, str, str]], shown: Callable[[str], str] = str
) -> pd.DataFrame:
    """Return the data of stacked bars.

    Args:
        lengths: Lengths of the parts, [label, component], in the order of the bars and of their parts.
        looks: Component → its name, color, and hatch.
        shown: Returns the name of a label.

    Returns:
        A row for each label and component: label, text (name of the label), component, name, relative (length
        of the component), total (length of the bar), color, and hatch.
    """
    data = lengths.rename_axis("label").melt(var_name="component", value_name="relative", ignore_index=False)
    data = data.reset_index()
    data[["name", "color", "hatch"]] = [looks[component] for component in data["component"]]
    totals = data.groupby("label")["relative"].transform("sum")
    return data.assign(text=data["label"].map(shown), total=totals)


def draw_stacked_bars(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw a horizontal bar for each label, the first at the top, with its sum unless all sums are equal.

    Args:
        data: From `stacked`.
        texts: The words; `y` is the label of the axis.
        sheet: Size, font, and legend.
    """
    bars = data.drop_duplicates("label")
    figure, [axes] = bar_panels(sheet, bars["text"])
    starts = data.groupby("label")["relative"].cumsum() - data["relative"]
    data = data.assign(place=data["label"].factorize()[0], start=starts)
    for name, part in data[data["relative"] > 0].groupby("name", sort=False):
        axes.barh(
            part["place"], part["relative"], 0.72, left=part["start"], color=part["color"].iloc[0],
            hatch=part["hatch"].iloc[0], edgecolor="white", linewidth=0.5, label=str(name),
        )  # fmt: skip
    if bars["total"].max() > 1.001 * bars["total"].min():
        axes.axvline(1, color="black", **DOTTED)
        for place, total in enumerate(bars["total"]):
            write_at_end(axes, f"{total:.2f}", total, place)
    axes.set_xlabel(texts.y)
    return finish(figure, texts, sheet)


def bar_panels(
    sheet: Sheet, names: Iterable[str], count: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """Create panels for horizontal bars at 0, 1, …, the first at the top, with their names at the left."""
    size = size_of("name")
    texts = [wrapped(name, 0.4 * sheet.inches / columns, size) for name in names]
    lines = max(1 + text.count("\n") for text in texts)
    height = (len(texts) + 0.2) * max(0.22, 0.016 * size * lines + 0.04) + 0.5
    figure, all_axes = panels(sheet, count, columns=columns, height=height, sharey=True)
    for axes in all_axes:
        axes.set_yticks(range(len(texts)), texts, size=size, linespacing=0.95)
        axes.tick_params(axis="y", length=0)
        axes.yaxis.grid(False)
        axes.set_ylim(len(texts) - 0.4, -0.6)
    return figure, all_axes


def write_at_end(axes: Axes, text: str, x: float, y: float, **style: Any) -> None:
    """Write a text right of the end of a horizontal bar."""
    axes.annotate(
        text, (x, y), xytext=(3, 0), textcoords="offset points", va="center_baseline", size=size_of("name"),
        annotation_clip=False, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5}, **style,
    )  # fmt: skip
