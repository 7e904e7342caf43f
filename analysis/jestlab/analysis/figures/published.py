"""Scores of published methods, and of an experiment's runs, against FLOPs (paper, Figure 1, right)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from ..curves import score_curves
from ..errors import NotYet, RequestError
from ..frames import Frames
from ..published.cell import TOTAL, is_score
from ..sheet import Sheet
from .axes import WIDE, count_axis
from .panels import finish, panels
from .plot import Plot, Texts, styled
from .style import OTHERS, OURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TABLE = "comparison"


def published_scores(
    cells: pd.DataFrame,
    frames: Frames | None = None,
    baseline: str | None = None,
    source: str | None = None,
) -> Plot:
    """Plot the mean score of published methods against their FLOPs: the source's own in color, others gray.

    Published FLOPs are relative to the baseline of a group, so the figure shows one group: the first with
    FLOPs of one source. The score is the mean over the metrics that all rows of the group have. Runs of an
    experiment that were evaluated on all of these metrics are added, relative to the experiment's baseline.

    Args:
        cells: Published cells, from `published.read` or `published.frame`.
        frames: Results of an experiment; None for published methods only.
        baseline: Label or run of the experiment whose FLOPs are 100%.
        source: Source of the table; by default the source with the most rows with both FLOPs and the scores.

    Returns:
        The plot. Its data: rows of kind "published", "ours" (the source's own), and "run" (an experiment's):
        text, x (FLOPs, in percent of the baseline's), y (score, %), color, marker.

    Raises:
        ValueError: The table or source is missing, or no row of it has FLOPs and the scores.
    """
    table = cells[cells["table"] == _TABLE]
    if table.empty:
        raise NotYet(f"no published table {_TABLE!r} in the store: run jestlab published import")
    rows, values, shared = _chosen(table, source)
    methods = rows.drop_duplicates("position").set_index("position").loc[values.index]
    look = [OURS if ours else OTHERS for ours in methods["ours"]]
    data = pd.DataFrame(
        {
            "kind": methods["ours"].astype(bool).map({True: "ours", False: "published"}),
            "text": methods["method"],
            "x": 100 * values[TOTAL],
            "y": 100 * values[shared].mean(axis=1),
            "color": [each.color for each in look],
            "marker": [each.marker for each in look],
        }
    ).dropna(subset=["x", "y"])
    shown = rows["source"].iloc[0]
    others = [name for name in table["source"].unique() if name != shown]
    sentences = [
        f"As published ({shown}), mean of {', '.join(shared)}; green: that paper's own methods; gray: others."
    ]
    if others:
        sentences.append(f"Not shown (FLOPs relative to other baselines): {', '.join(others)}.")
    if frames is not None:
        if missing := [name for name in shared if name not in frames.evaluated]:
            sentences.append(f"No run of this experiment has been evaluated on {', '.join(missing)}.")
        else:
            data = pd.concat([data, _runs(frames, frames.baseline(baseline), shared)])
            sentences.append("Other colors: runs, with FLOPs relative to the experiment's baseline.")
    heading = f"Published methods, group {rows['group'].iloc[0]}"
    x, y = "training FLOPs relative to the baseline", "mean score (%)"
    return Plot("published", data.reset_index(drop=True), Texts(heading, " ".join(sentences), x, y), _draw)


def _chosen(table: pd.DataFrame, source: str | None) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return the cells of the source's first group with FLOPs, their values as [position, quantity], and
    the names of the scores that all rows have."""
    sources = list(table["source"].unique())
    if source is not None and source not in sources:
        raise RequestError(
            f"no source {source!r} of the published table {_TABLE!r}: choose {' or '.join(sources)}"
        )
    candidates = []
    for name in sources if source is None else [source]:
        cells = table[table["source"] == name]
        groups = cells.loc[cells["quantity"] == TOTAL, "group"]
        rows = cells[cells["group"].isin(groups[:1])]
        values = rows.pivot(index="position", columns="quantity", values="value")
        if shared := [name for name in values.columns if is_score(name) and values[name].notna().all()]:
            candidates.append((rows, values, shared))
    if not candidates:
        raise NotYet(f"no group of the published table {_TABLE!r} has both FLOPs and a shared score")
    return max(candidates, key=lambda candidate: int(candidate[1][TOTAL].count()))


def _runs(frames: Frames, baseline: str, shared: list[str]) -> pd.DataFrame:
    """Return the mean over seeds of each competing label; no rows if the baseline has not completed."""
    curves = score_curves(frames, metrics=shared)
    means = curves[curves["final"]].groupby("label")[["flops", "score"]].mean()
    means = means.assign(
        x=100 * means["flops"] / means["flops"].get(baseline, math.nan), y=100 * means["score"]
    )
    data = styled(frames, means.dropna().reset_index(), baseline)
    return data.loc[data["role"] != "reference", ["text", "x", "y", "color", "marker"]].assign(kind="run")


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw published methods, with those of the source and of the experiment larger than the others."""
    figure, [axes] = panels(sheet, height=3.2)
    axes.margins(x=0.16, y=0.12)
    count_axis(axes, data["x"], log=data["x"].max() > WIDE * data["x"].min())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}%")
    axes.set(xlabel=texts.x, ylabel=texts.y)
    for point in data.to_dict("records"):
        axes.plot(
            point["x"], point["y"], color=point["color"], marker=point["marker"], linestyle="none",
            markersize=4 if point["kind"] == "published" else 5.5, label=point["text"],
        )  # fmt: skip
    return finish(figure, texts, sheet)
