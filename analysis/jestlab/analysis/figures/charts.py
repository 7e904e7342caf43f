"""Interactive figures: the rows that a printed figure shows, as plain JSON for report/charts.js.

Every number comes with its rounded text, so that the page shows the same digits as the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pandas as pd

from .. import units
from ..colors import REFERENCE, LabelColor
from ..intervals import CI, INTERVAL
from .axes import WIDE
from .plot import Plot, axis_unit, near_references

SHOWN_AT_FIRST = 8
"""Number of series that are drawn when the page opens; more can't be distinguished."""

MOST_SERIES = 40
"""Number of competing labels in a figure, on the page and printed; the others are left out."""


def curves(plot: Plot) -> dict[str, Any]:
    """Convert learning curves: for each label its mean over seeds, with a band.

    Args:
        plot: From `learning_curves`.

    Returns:
        Axis titles and series as plain JSON. A series has x, y, the ends of the intervals (low and high), the
        text of each number, and x and y of the line of each seed, if there are few labels.
    """
    data, numbers = plot.data[plot.data["kind"] == "mean"].reset_index(drop=True), plot.texts.numbers
    divisor, title, amount = _effort(plot.texts.x, data["effort"])
    columns = _columns(data, {"x": "effort"}, amount, divisor) | _columns(data, {"y": "mean"}, numbers)
    band = _columns(data, {"low": "low", "high": "high"}, numbers)
    lines: dict[str, list[dict[str, list[float]]]] = {}
    for (label, _), seed in plot.data[plot.data["kind"] == "seed"].groupby(["label", "seed"], sort=False):
        lines.setdefault(str(label), []).append(_line(seed["effort"] / divisor, seed["mean"]))
    series = []
    for look, rows in _of_labels(data):
        own = columns | (band if look["seeds"] > 1 else dict.fromkeys(band, ()))
        one = {"seeds": int(look["seeds"]), "lines": lines.get(look["label"], [])}
        series.append(_identity(look) | one | {key: own[key][rows] for key in own})
    ends = data[(data["role"] == "baseline") & data["final"]]
    dotted = "".join(f" Dotted: final value of {text}." for text in ends["text"])
    about = " Thin lines: seeds." * bool(lines), dotted
    return _chart("curves", plot, title, data, series, about) | {"baseline_level": ends["mean"].tolist()}


def pareto(plot: Plot) -> dict[str, Any]:
    """Convert the Pareto plot: for each label its mean, its seeds, and whether it is on the front.

    Args:
        plot: From `pareto`.

    Returns:
        Axis titles, series, and the points of the front, as plain JSON. A series has x and y of the mean, the
        ends of their intervals, standing (front, ambiguous, or dominated; empty for references), x and y of
        the seeds, the text of each number, and the path over training, if the figure shows paths.
    """
    data, numbers = plot.data, plot.texts.numbers
    means, seeds = (data[data["kind"] == kind].reset_index(drop=True) for kind in ("mean", "seed"))
    divisor, title, amount = _effort(plot.texts.x, means.loc[means["role"] != "reference", "cost"])
    of_seeds = {"seed": seeds["seed"].astype(int).tolist()}
    of_seeds |= _columns(seeds, {"seed_x": "cost"}, amount, divisor)
    of_seeds |= _columns(seeds, {"seed_y": "score"}, numbers)
    places = {look["label"]: rows for look, rows in _of_labels(seeds)}
    points = _columns(means, {"x": "cost"}, amount, divisor) | _columns(means, {"y": "score"}, numbers)
    ends = _columns(means, {"low": "low", "high": "high"}, numbers)
    ends |= {end: _rounded(means[f"cost{end[1:]}"] / divisor) for end in ("x_low", "x_high")}
    ends |= {"standing": means["standing"].where(means["role"] != "reference", "").tolist()}
    paths = plot.data[plot.data["kind"] == "trajectory"].groupby("label", sort=False)
    lines = {label: _line(path["cost"] / divisor, path["score"]) for label, path in paths}
    series = []
    for place, mean in enumerate(means.to_dict("records")):
        rows = places[mean["label"]]
        one = {name: values[place] for name, values in ends.items()} | {"seeds": rows.stop - rows.start}
        one |= {name: [values[place]] for name, values in points.items()} | {"path": lines.get(mean["label"])}
        series.append(_identity(mean) | one | {name: values[rows] for name, values in of_seeds.items()})
    front = means[means["on_front"].eq(True)].sort_values("cost")
    about = " Dots: seeds.", " Steps: Pareto front." + " Faint lines: training." * bool(lines)
    chart = _chart("pareto", plot, title, means.assign(mean=means["score"]), series, about)
    own = means.loc[means["role"] != "reference", "cost"]
    chart["x_log"] = bool(own.max() > WIDE * own.min() > 0)
    return chart | {"front": {"x": (front["cost"] / divisor).tolist(), "y": front["score"].tolist()}}


def _chart(
    kind: str,
    plot: Plot,
    title: str,
    data: pd.DataFrame,
    series: list[dict[str, Any]],
    about: tuple[str, str],
) -> dict[str, Any]:
    """Return the entries that both kinds share. The baseline and the best series are shown initially.

    `about` describes the seeds, and whatever else is drawn; the caption has the details.
    """
    sign = -1.0 if plot.texts.metric.goal == "min" else 1.0  # without a goal, the highest are shown
    scores = data.loc[data["role"] != "reference", "mean"]

    def rank(one: dict[str, Any]) -> Any:
        standings = [one.get("standing") != standing for standing in ("front", "ambiguous")]
        return one["role"] != "baseline", standings, -sign * one["y"][-1]

    best = sorted((one for one in series if one["role"] != "reference"), key=rank)[:SHOWN_AT_FIRST]
    shown = {one["label"] for one in best}
    several = f"Mean over seeds and its {INTERVAL}."
    return {
        "kind": kind,
        "x_title": title,
        "y_title": plot.texts.y,
        "interval": CI,
        "about": f"{several + about[0] if data['seeds'].max() > 1 else ''}{about[1]}".strip(),
        "y_log": plot.texts.metric.scale == "log" and bool(scores.min() > 0),
        "series": [one | {"shown": one["label"] in shown} for one in series],
        "levels": [{"y": y, "text": text} for y, text in near_references(data, scores)],
    }


def limited(plot: Plot) -> Plot:
    """Reduce a Pareto plot of very many labels to the baseline, the front, and the best scores."""
    means = plot.data[(plot.data["kind"] == "mean") & (plot.data["role"] != "reference")]
    places = means["standing"].map({"front": 1, "ambiguous": 2}).fillna(3)
    loss = -plot.texts.metric.sign * means["score"]
    means = means.assign(place=places.where(means["role"] != "baseline", 0), loss=loss)
    hidden = means.sort_values(["place", "loss"])["label"][MOST_SERIES:]
    return replace(plot, data=plot.data[~plot.data["label"].isin(hidden)])


def _of_labels(data: pd.DataFrame) -> Iterator[tuple[Mapping[Any, Any], slice]]:
    """Yield the first row of each label, and the slice of its rows, which are adjacent."""
    firsts = (~data["label"].duplicated()).to_numpy().nonzero()[0].tolist()
    heads = data.iloc[firsts].to_dict("records")
    yield from zip(heads, map(slice, firsts, [*firsts[1:], len(data)]), strict=True)


def _identity(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return label, name, and look of a series; color and dash are those of `LabelColor`."""
    look = {"color": REFERENCE.css, "dash": REFERENCE.dash}
    if row["role"] != "reference":
        line, color = row["line"], LabelColor(row["color"], row["dark"])
        dash = "" if line == "-" else ",".join(f"{2 * length:g}" for length in line[1])
        look = {"color": color.css, "dash": dash}
    return {"label": str(row["label"]), "text": str(row["text"]), "role": str(row["role"])} | look


def _effort(title: str, values: pd.Series[float]) -> tuple[float, str, Callable[..., list[str]]]:
    """Return divisor and title of the horizontal axis, and a function that writes a column of values."""
    divisor, with_unit = axis_unit(title, values)
    unit = with_unit.removeprefix(f"{title} (").removesuffix(")")
    text: Callable[[float], str] = units.hours if "hours" in title else units.count
    if with_unit != title:
        text = cache(lambda value: f"{units.significant(value / divisor)} {unit}")
    return divisor, with_unit, lambda values: list(map(text, values.tolist()))


def _line(x: pd.Series[float], y: pd.Series[float]) -> dict[str, list[float]]:
    return {"x": _rounded(x), "y": _rounded(y)}


def _rounded(values: pd.Series[float]) -> list[float]:
    """Return values with the digits that a drawing needs."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def _columns(
    data: pd.DataFrame, columns: Mapping[str, str], texts: Callable[..., list[str]], divisor: float = 1.0
) -> dict[str, list[Any]]:
    """Return numbers and texts of columns: name → values, and name with "_text" → their texts."""
    lists: dict[str, list[Any]] = {}
    for name, column in columns.items():
        lists |= {name: _rounded(data[column] / divisor), f"{name}_text": texts(data[column])}
    return lists
