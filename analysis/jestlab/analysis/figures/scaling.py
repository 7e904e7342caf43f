"""Scaling laws: final scores over sizes, with power laws that are fitted to them and extrapolated."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ..errors import NotYet, RequestError
from ..frames import Frames
from ..metrics import Metric
from ..scaling import BAND, PowerLaw
from ..tables import show
from ..tables.core import Column, Record, Table
from ..units import tick
from .against import Axis, against, final_scores, placed
from .plot import Plot

_CAPTION = f"Curves: c + a · x^(−b), dashed where extrapolated; shaded: {BAND:.0%} confidence interval."
_HOW = f"y = c + a · x^(−b) by least squares to the means over seeds [{BAND:.0%} profile interval]"
_POINTS = 40  # of a curve, within its sizes and beyond them
_ENDS = ("", "_low", "_high")
_NUMBERS = [f"{key}{end}" for key in ("exponent", "offset", "predicted") for end in _ENDS]


def scaling(
    frames: Frames, x: str, by: Sequence[str] = (), to: float = 10.0, baseline: str | None = None
) -> Plot:
    """Plot the final score over sizes, of references as well, with the power law of each line.

    Args:
        x: Config key of the size, or an effort.
        by: Keys whose values are lines; empty for a line for each run.
        to: Laws are extrapolated to this many times the largest size.
        baseline: Label or run; by default the study's baseline.

    Returns:
        The plot of `against` with a table of the laws. Its data also has rows of kind "law": line, x, y, low,
        high, and dash, which is "--" beyond the sizes.

    Raises:
        ValueError: An x isn't a number above 0, or no law can be fitted.
    """
    axis, compared = Axis(x, tuple(by)), frames.baseline(baseline)
    frames = replace(frames, runs=frames.runs.assign(needed=0))
    plot, places = against(frames, axis, compared, "scaling"), placed(frames, axis, compared)
    if not (places["x"] > 0).all():
        raise RequestError(f"{x} isn't a number above 0 in all runs, as a power law needs: choose `runs`")
    looks = plot.data[plot.data["kind"] == "mean"].drop_duplicates("line")
    points = places[places["line"].isin(looks["line"])].merge(final_scores(frames), on="label")
    end, factor = to * points["x"].max(), frames.score.factor
    curves, rows, used, notes = [], [], [], []
    for line, own in points.groupby("line", sort=False):
        wide = own.pivot(index="seed", columns="x", values="y")
        values, numbers = wide.dropna(), [math.nan] * len(_NUMBERS)
        about = [f"without seed {seed}, which lacks a size" for seed in wide.index.difference(values.index)]
        try:
            law = PowerLaw(wide.columns, values)
            about += [law.note] if law.note else []
            first, last = own["x"].min(), own["x"].max()
            for start, stop, dash in ((first, last, "-"), (last, end, "--")):
                sizes = np.geomspace(start, stop, _POINTS)
                y, low, high = law.at(sizes)
                curve = {"x": sizes, "y": y, "low": low, "high": high, "line": line, "dash": dash}
                curves.append(pd.DataFrame(curve))
            scores = [*law.offset, *law.at([end])[:, 0]]
            numbers = [*law.exponent, *(score / factor for score in scores)]
        except NotYet as error:
            about.append(str(error))
        if about:
            notes.append(f"{line}: {'; '.join(about)}")
        rows.append([line, False, line, *numbers, len(wide.columns), len(values)])
        used.append(own[own["seed"].isin(values.index)])
    if not curves:
        raise NotYet(f"no power law over {x}: {notes[0]}")
    same = ["line", "panel", "title", "x_label", "y_label", "color"]
    laws = pd.concat(curves).merge(looks[same], on="line")
    laws["text"] = laws["line"].where(laws["dash"] == "--", "")  # the name, at the end of the curve
    has_law = (plot.data["kind"] == "mean") & plot.data["line"].isin(laws["line"])
    plot.data.loc[has_law, ["dash", "text"]] = ["none", ""]
    caption = " ".join([plot.texts.caption, _CAPTION, *(f"{note}." for note in notes)])
    return replace(
        plot,
        data=pd.concat([plot.data, laws.assign(kind="law")], ignore_index=True),
        texts=replace(plot.texts, caption=caption),
        table=_table(frames, x, end, rows, pd.concat(used), notes),
    )


def _table(
    frames: Frames, x: str, end: float, rows: list[list[Any]], used: pd.DataFrame, notes: Sequence[str]
) -> Table:
    """Make the table of the laws from rows of numbers, and from the results that the laws are fitted to."""
    metric = frames.score
    parts = used.merge(frames.runs[["label", "seed", "fingerprint"]], on=["label", "seed"])
    parts = parts.assign(row=parts["line"], experiment=frames.experiment, score=parts["y"] / metric.factor)
    return Table(
        name="scaling",
        caption=f"{frames.experiment}: power laws of the score over {x}.",
        frame=pd.DataFrame(rows, columns=["row", "apart", "run", *_NUMBERS, "sizes", "seeds"]),
        columns=(
            Column("run", "run", lambda row: str(row["run"]), align="left", importance=100),
            _column("exponent", "exponent b", Metric(digits=2)),
            _column("offset", show.heading("offset c", metric), metric),
            _column("predicted", show.heading(f"at {tick(float(f'{end:.3g}'))}", metric), metric),
            Column("sizes", "sizes", lambda row: str(row["sizes"]), importance=30),
            Column("seeds", "seeds", lambda row: str(row["seeds"]), importance=30),
        ),
        own_notes=(_HOW, *notes),
        parts=parts[["row", "experiment", "label", "seed", "fingerprint", "score"]],
    )


def _column(key: str, header: str, metric: Metric) -> Column:
    def text(row: Record) -> str:
        value, low, high = (row[f"{key}{end}"] for end in _ENDS)
        return show.interval(value, low, high, metric).replace("inf", "∞")

    return Column(key, header, text, formula=f"{header} of {_HOW}", inputs=("score",), importance=80)
