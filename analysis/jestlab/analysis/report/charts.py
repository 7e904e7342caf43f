"""Figures as data that a page can draw: the same rows that the printed figure is drawn from.

Every number comes with its text, rounded here, so that the page shows the digits that the tables show.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import units
from ..style import GREY

if TYPE_CHECKING:
    import pandas as pd

    from ..plots import Plot

SHOWN_AT_FIRST = 16
"""Series that are drawn when the page opens: more than these nobody tells apart."""

_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "<": "triangle-left",
    ">": "triangle-right",
    "p": "pentagon",
    "h": "hexagon",
}
"""matplotlib's markers in the words of Plotly."""


def curves(plot: Plot) -> dict[str, Any]:
    """Learning curves: for each label its mean over seeds, with a band.

    Args:
        plot: From `learning_curves`.

    Returns:
        Axis titles and series, plain JSON: x and y, the band's low and high, and the text of each number.
    """
    data = plot.data
    scale, title, number = _effort(plot.texts.x, data["effort"])
    percent = "%" in plot.texts.y
    series = []
    for label, of_label in data.groupby("label", sort=False):
        band = of_label["seeds"].iloc[0] > 1
        series.append(
            _look(of_label, str(label))
            | {
                "seeds": int(of_label["seeds"].iloc[0]),
                "x": (of_label["effort"] / scale).tolist(),
                "x_text": [number(x) for x in of_label["effort"]],
                "y": of_label["mean"].tolist(),
                "y_text": _scores(of_label["mean"], percent),
                "low": of_label["low"].tolist() if band else [],
                "high": of_label["high"].tolist() if band else [],
                "low_text": _scores(of_label["low"], percent) if band else [],
                "high_text": _scores(of_label["high"], percent) if band else [],
            }
        )
    return {"kind": "curves", "x_title": title, "y_title": plot.texts.y, "series": _limited(series)}


def pareto(plot: Plot) -> dict[str, Any]:
    """Final score against cost: for each label its mean, its seeds, and whether it is on the front.

    Args:
        plot: From `pareto`.

    Returns:
        Axis titles and series, plain JSON: x, y and spread of the mean, x and y of the seeds, the text of
        each number; the front as the steps that the printed figure has.
    """
    data = plot.data
    competing = data[data["role"] != "reference"]
    scale, title, number = _effort(plot.texts.x, competing["flops"])
    percent = "%" in plot.texts.y
    series = []
    seeds_of = {str(label): rows for label, rows in data[data["kind"] == "seed"].groupby("label", sort=False)}
    for _, mean in data[data["kind"] == "mean"].iterrows():
        label = str(mean["label"])
        seeds = seeds_of[label]
        spread = float(mean["spread"])
        series.append(
            _look(data[(data["label"] == label) & (data["kind"] == "mean")], label)
            | {
                "seeds": len(seeds),
                "on_front": bool(mean["on_front"]),
                "x": [mean["flops"] / scale],
                "x_text": [number(mean["flops"])],
                "y": [mean["score"]],
                "y_text": _scores([mean["score"]], percent),
                "spread": None if math.isnan(spread) else spread,
                "spread_text": "" if math.isnan(spread) else _scores([spread], percent)[0],
                "seed": [int(seed) for seed in seeds["seed"]],
                "seed_x": (seeds["flops"] / scale).tolist(),
                "seed_x_text": [number(x) for x in seeds["flops"]],
                "seed_y": seeds["score"].tolist(),
                "seed_y_text": _scores(seeds["score"], percent),
            }
        )
    front = data[(data["kind"] == "mean") & data["on_front"].eq(True)].sort_values("flops")
    return {
        "kind": "pareto",
        "x_title": title,
        "y_title": plot.texts.y,
        "series": _limited(series),
        "front": {"x": (front["flops"] / scale).tolist(), "y": front["score"].tolist()},
    }


def _look(rows: pd.DataFrame, label: str) -> dict[str, Any]:
    """What identifies a series, and how it is drawn."""
    first = rows.iloc[0]
    reference = first["role"] == "reference"
    return {
        "label": label,
        "text": str(first["text"]),
        "role": str(first["role"]),
        "colour": GREY if reference else str(first["colour"]),
        "symbol": "circle" if reference else _SYMBOLS[first["marker"]],
        "dash": "dash" if reference else _dash(first["line"]),
    }


def _dash(line: Any) -> str:
    """A line style of matplotlib as SVG's dash array, of lines two pixels wide."""
    return "solid" if line == "-" else ",".join(f"{2 * length:g}px" for length in line[1])


def _limited(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the series that are shown at first: all of a few; of many the baseline and the best."""
    best = sorted(series, key=lambda one: (one["role"] != "baseline", -one["y"][-1]))[:SHOWN_AT_FIRST]
    shown = {one["label"] for one in best}
    return [one | {"shown": one["label"] in shown} for one in series]


def _effort(title: str, values: pd.Series[float]) -> tuple[float, str, Any]:
    """What the horizontal axis is divided by, its title, and how a value reads."""
    if "FLOP" not in title:
        return 1.0, title, units.count
    scale, unit = units.flops_unit([values.max()])
    return scale, f"{title} ({unit})", lambda value: f"{units.significant(value / scale)} {unit}"


def _scores(values: Any, percent: bool) -> list[str]:
    form = "{:.1f}" if percent else "{:.4g}"
    return [form.format(value).replace("-", "−") for value in values]
