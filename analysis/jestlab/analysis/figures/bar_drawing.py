"""Drawing of stacked bars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..drawing import LABEL_SIZE, add_axes, canvas, widest
from ..plots import Texts
from ..style import COMPONENT_LOOKS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_WIDTH, _BAR = 3.6, 0.26  # of the room for bars; of a bar with its gap; inches
_LEFT, _BELOW, _RIGHT, _LEGEND = 0.16, 0.42, 0.55, 0.24
_KEY = 0.3  # of what stands before a name in the legend, with its gaps


def draw_stacked_bars(data: pd.DataFrame, texts: Texts) -> Figure:
    """A horizontal bar a label, the first on top, with its sum at the end; a dotted line at 1.

    Args:
        data: Rows of label, text, component, its name, relative and total.
        texts: The words; `y` is what is measured.
    """
    bars = data.drop_duplicates("label")
    shown = [name for name in COMPONENT_LOOKS if data.loc[data["component"] == name, "relative"].gt(0).any()]
    room = _LEFT + widest(bars["text"])
    height = _BAR * (len(bars) + 0.4)
    names = list(data[data["component"].isin(shown)].drop_duplicates("component")["name"])
    rows = math.ceil(sum(_KEY + widest([name]) for name in names) / (_WIDTH + _RIGHT))
    figure, below = canvas(texts, room + _WIDTH + _RIGHT, _BELOW + height + rows * _LEGEND)
    axes = add_axes(figure, room, below + _BELOW, _WIDTH, height)
    places = {label: len(bars) - 1 - place for place, label in enumerate(bars["label"])}
    starts = dict.fromkeys(places, 0.0)
    for name in shown:
        of_component = data[data["component"] == name]
        part = of_component.set_index("label")["relative"]
        colour, hatch = COMPONENT_LOOKS[name]
        axes.barh(
            [places[label] for label in part.index], part, 0.72, left=[starts[label] for label in part.index],
            color=colour, edgecolor="white", linewidth=0.5, hatch=hatch, label=of_component["name"].iloc[0],
        )  # fmt: skip
        for label, value in part.items():
            starts[str(label)] += float(value)
    for _, bar in bars.iterrows():
        axes.annotate(
            f"{bar['total']:.2f}", (bar["total"], places[bar["label"]]), xytext=(4, 0),
            textcoords="offset points", va="center_baseline", size=LABEL_SIZE, annotation_clip=False,
        )  # fmt: skip
    axes.axvline(1, color="black", linestyle=":", linewidth=0.9)
    axes.set_yticks(list(places.values()), list(bars["text"]), size=LABEL_SIZE)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.grid(False)
    axes.set_ylim(-0.7, len(bars) - 0.3)
    axes.set_xlabel(texts.y)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=math.ceil(len(shown) / rows), frameon=False,
        fontsize=LABEL_SIZE, handlelength=1.0, handleheight=0.9, columnspacing=1.2, borderaxespad=0.1,
        handletextpad=0.4,
    )  # fmt: skip
    return figure
