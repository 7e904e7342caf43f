"""Figures as the page draws them: the rows that `drawing` prints, as plain JSON for report/charts.js.

Every number comes with its text, rounded here, so that the page shows the digits that the tables show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import units
from .plot import Plot, Texts, axis_unit, near_references
from .style import GRAY

if TYPE_CHECKING:
    import pandas as pd

SHOWN_AT_FIRST = 16
"""Series drawn when the page opens; nobody can tell more of them apart."""

MOST_PRINTED = 40
"""Number of runs above which a printed figure shows only those that the page shows initially."""

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
"""matplotlib's marker → the page's symbol."""


def curves(plot: Plot) -> dict[str, Any]:
    """Convert learning curves: for each label its mean over seeds, with a band.

    Args:
        plot: From `learning_curves`.

    Returns:
        Axis titles and series, plain JSON: x and y, the band's low and high, and the text of each number.
    """
    data = plot.data
    scale, title, number = _effort(plot.texts.x, data["effort"])
    texts, sign = plot.texts, 1.0 if plot.texts.metric.goal is None else plot.texts.metric.sign
    columns = {
        "x": (data["effort"] / scale).tolist(),
        "x_text": [number(x) for x in data["effort"]],
        "y": data["mean"].tolist(),
        "y_text": _scores(data["mean"], texts),
    }
    band = {
        "low": data["low"].tolist(),
        "high": data["high"].tolist(),
        "low_text": _scores(data["low"], texts),
        "high_text": _scores(data["high"], texts),
    }
    series = []
    for look, rows in _of_labels(data):
        seeds = int(look["seeds"])
        one = _identity(look) | {"seeds": seeds}
        one |= {name: values[rows] for name, values in columns.items()}
        one |= {name: values[rows] if seeds > 1 else [] for name, values in band.items()}
        series.append(one)
    competing = data[data["role"] != "reference"]
    ends = competing[(competing["role"] == "baseline") & competing["final"]]
    return {
        "kind": "curves",
        "x_title": title,
        "y_title": plot.texts.y,
        "y_log": texts.metric.scale == "log" and bool(competing["mean"].min() > 0),
        "series": _marked(series, lambda one: -sign * one["y"][-1]),
        "baseline_level": ends["mean"].tolist(),
        "levels": _levels(data, [*competing["mean"]]),
    }


def pareto(plot: Plot) -> dict[str, Any]:
    """Convert the Pareto plot: for each label its mean, its seeds, and whether it is on the front.

    Args:
        plot: From `pareto`.

    Returns:
        Axis titles and series, plain JSON: x and y of the mean and their range over seeds, standing (front,
        ambiguous or dominated; empty for references), x and y of the seeds, the text of each number; the
        front, whose steps the page draws as the printed figure does.
    """
    data = plot.data
    competing = data[data["role"] != "reference"]
    scale, title, number = _effort(plot.texts.x, competing["cost"])
    texts, sign = plot.texts, 1.0 if plot.texts.metric.goal is None else plot.texts.metric.sign
    means, seeds = data[data["kind"] == "mean"], data[data["kind"] == "seed"]
    of_seeds = {
        "seed": [int(seed) for seed in seeds["seed"]],
        "seed_x": (seeds["cost"] / scale).tolist(),
        "seed_x_text": [number(x) for x in seeds["cost"]],
        "seed_y": seeds["score"].tolist(),
        "seed_y_text": _scores(seeds["score"], texts),
    }
    places = {look["label"]: rows for look, rows in _of_labels(seeds)}
    series = []
    for mean, _ in _of_labels(means):
        rows = places[mean["label"]]
        score, low, high, spread = _scores([mean[key] for key in ("score", "low", "high", "spread")], texts)
        one = _identity(mean) | {
            "seeds": rows.stop - rows.start,
            "standing": str(mean["standing"]) if mean["role"] != "reference" else "",
            "x": [mean["cost"] / scale],
            "x_text": [number(mean["cost"])],
            "y": [mean["score"]],
            "y_text": [score],
            "low": mean["low"],
            "high": mean["high"],
            "x_low": mean["cost_low"] / scale,
            "x_high": mean["cost_high"] / scale,
            "low_text": low,
            "high_text": high,
            "spread_text": "" if math.isnan(mean["spread"]) else spread,
        }
        series.append(one | {name: values[rows] for name, values in of_seeds.items()})
    front = means[means["on_front"].eq(True)].sort_values("cost")
    return {
        "kind": "pareto",
        "x_title": title,
        "y_title": plot.texts.y,
        "y_log": texts.metric.scale == "log" and bool(means["score"].min() > 0),
        "series": _marked(
            series,
            lambda one: (one["standing"] != "front", one["standing"] != "ambiguous", -sign * one["y"][0]),
        ),
        "levels": _levels(
            means.rename(columns={"score": "mean"}), competing.loc[competing["kind"] == "seed", "score"]
        ),
        "front": {"x": (front["cost"] / scale).tolist(), "y": front["score"].tolist()},
    }


def printable(plot: Plot, variant: dict[str, Any]) -> Plot:
    """Reduce a figure of very many runs to the baseline and the best for print; the caption then says so.

    Args:
        plot: The whole figure.
        variant: What the page draws of it, from `curves` or `pareto`.
    """
    competitors = sum(one["role"] != "reference" for one in variant["series"])
    if competitors <= MOST_PRINTED:
        return plot
    kept = {one["label"] for one in variant["series"] if one["shown"] or one["role"] == "reference"}
    few = f"{SHOWN_AT_FIRST} of {competitors:,} runs"
    caption = f"{plot.texts.caption} Drawn: the baseline and the best, {few}."
    return replace(
        plot, data=plot.data[plot.data["label"].isin(kept)], texts=replace(plot.texts, caption=caption)
    )


def _of_labels(data: pd.DataFrame) -> Iterator[tuple[Mapping[str, Any], slice]]:
    """Yield for each label its first row, and the places of its rows, which are adjacent."""
    firsts = (~data["label"].duplicated()).to_numpy().nonzero()[0].tolist()
    heads: list[dict[str, Any]] = data.iloc[firsts].to_dict("records")  # type: ignore[assignment]
    yield from zip(heads, map(slice, firsts, [*firsts[1:], len(data)]), strict=True)


def _identity(row: Mapping[str, Any]) -> dict[str, Any]:
    """Label, name and looks of a series."""
    reference = row["role"] == "reference"
    return {
        "label": str(row["label"]),
        "text": str(row["text"]),
        "role": str(row["role"]),
        "color": GRAY if reference else str(row["color"]),
        "symbol": "circle" if reference else _SYMBOLS[row["marker"]],
        "dash": "dash" if reference else _dash(row["line"]),
    }


def _dash(line: Any) -> str:
    """Convert matplotlib's line style to SVG's dash array, for lines two pixels wide."""
    return "solid" if line == "-" else ",".join(f"{2 * length:g}px" for length in line[1])


def _levels(data: pd.DataFrame, scores: Iterable[float]) -> list[dict[str, Any]]:
    """Levels of references, as the printed figure draws them."""
    return [{"y": level, "text": text} for level, text in near_references(data, scores)]


def _marked(series: list[dict[str, Any]], rank: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """Mark the series that are shown initially: of the competitors all if they are few, else the baseline and
    the best by rank."""
    competing = [one for one in series if one["role"] != "reference"]
    best = sorted(competing, key=lambda one: (one["role"] != "baseline", rank(one)))[:SHOWN_AT_FIRST]
    shown = {one["label"] for one in best}
    return [one | {"shown": one["label"] in shown} for one in series]


def _effort(title: str, values: pd.Series[float]) -> tuple[float, str, Any]:
    """What the horizontal axis is divided by, its title, and how to write a value."""
    scale, with_unit = axis_unit(title, values)
    if with_unit == title:
        return scale, title, units.hours if "hours" in title else units.count
    unit = with_unit.removeprefix(f"{title} (").removesuffix(")")
    return scale, with_unit, lambda value: f"{units.significant(value / scale)} {unit}"


def _scores(values: Any, texts: Texts) -> list[str]:
    return [texts.number(value) for value in values]
