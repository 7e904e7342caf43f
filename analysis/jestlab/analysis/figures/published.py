"""Published methods beside one's own, in score against FLOPs (paper, Figure 1, right)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..curves import score_curves
from ..frames import Frames, NotYet
from ..published.cell import EXAMPLES, TOTAL, is_score
from ..sheet import Sheet
from .axes import LOG_FROM, scale_axis
from .panels import finish, panels
from .plot import Plot, Texts, texts
from .style import OTHERS, OURS, looks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TABLE = "comparison"


def published_scores(
    cells: pd.DataFrame,
    frames: Frames | None = None,
    baseline: str | None = None,
    group: str | None = None,
    source: str | None = None,
) -> Plot:
    """Plot the mean score of published methods against their FLOPs: the source's own colored, others gray.

    One source is shown: published FLOPs are relative to the baseline of their own table, so points of two
    sources have no common axis. The score is the mean over the metrics that all rows of the group have. Runs
    of an experiment are added, relative to their own baseline, if evaluated on all of these metrics.

    Args:
        cells: Published cells, from `published.read` or `published.frame`.
        frames: Results of an experiment; None for the published alone.
        baseline: Of the experiment: label or run whose FLOPs are 100%.
        group: Rows that are compared with one baseline; by default the table's first that has FLOPs.
        source: Where it is published; by default the one with most rows that have both
            FLOPs and the scores, of several the first.

    Returns:
        The plot, named "published". Its data: rows of kind "published" and "ours" (the source's own) and
        "run" (an experiment's): text, x (FLOPs, in percent of the baseline's), y (score, %), examples_seen.

    Raises:
        ValueError: If there is no such table, source or group, or no row of it has FLOPs and the scores.
    """
    import pandas as pd

    of_table = cells[cells["table"] == _TABLE]
    if of_table.empty:
        raise NotYet(f"no published table {_TABLE!r} in the store: run jestlab published import")
    rows, values, shared = _chosen(of_table, group, source)
    whose = rows.drop_duplicates("position").set_index("position")
    found: list[dict[str, Any]] = []
    for place, row in values.iterrows():
        method = whose.loc[place]  # type: ignore[call-overload]
        point = {"kind": "ours" if method["ours"] else "published", "text": method["method"]}
        point |= {"x": 100 * row[TOTAL], "y": 100 * row[shared].mean(), "examples_seen": row.get(EXAMPLES)}
        look = OURS if method["ours"] else OTHERS
        found.append(point | {"color": look.color, "marker": look.marker})
    data = pd.DataFrame(found).dropna(subset=["x", "y"])
    missing = [name for name in shared if frames is not None and name not in frames.evaluated]
    if frames is not None and not missing:
        data = pd.concat([data, _runs(frames, frames.baseline(baseline), shared)], ignore_index=True)
    shown, chosen = rows["source"].iloc[0], rows["group"].iloc[0]
    sentences = [
        f"As published ({shown}), mean of {', '.join(shared)}; green: that paper's own methods; gray: others."
    ]
    others = [name for name in dict.fromkeys(of_table["source"]) if name != shown]
    if others:
        sentences.append(f"Not shown (FLOPs relative to other baselines): {', '.join(others)}.")
    if frames is not None and missing:
        sentences.append(f"No run of this experiment has been evaluated on {', '.join(missing)}.")
    elif frames is not None:
        sentences.append("Other colors: runs of this experiment, FLOPs relative to its own baseline.")
    caption = " ".join(sentences)
    words = Texts(
        f"Published methods, group {chosen}",
        caption,
        "training FLOPs (% of the baseline's)",
        "mean score (%)",
    )
    return Plot("published", data, words, _draw)


class _Rows(NamedTuple):
    """The part of a published table that is shown."""

    cells: pd.DataFrame  # of one source and group
    values: pd.DataFrame  # [position, quantity]
    shared: list[str]  # scores that every row has


def _chosen(of_table: pd.DataFrame, group: str | None, source: str | None) -> _Rows:
    """Choose what is shown: as named, or else the source with most points, and its first group."""
    sources = list(dict.fromkeys(of_table["source"]))
    if source is not None and source not in sources:
        raise ValueError(
            f"no source {source!r} of the published table {_TABLE!r}: choose {' or '.join(sources)}"
        )
    candidates = []
    for name in sources if source is None else [source]:
        of_source = of_table[of_table["source"] == name]
        priced = of_source[of_source["quantity"] == TOTAL]
        rows = of_source[of_source["group"] == (next(iter(priced["group"]), "") if group is None else group)]
        values = rows.pivot(index="position", columns="quantity", values="value")
        shared = [name for name in values.columns if is_score(name) and values[name].notna().all()]
        if shared and TOTAL in values:
            candidates.append(_Rows(rows, values, shared))
    if candidates:  # a user's table of one row does not hide the paper's
        return max(candidates, key=lambda candidate: int(candidate.values[TOTAL].count()))
    of = "no group" if group is None else f"group {group!r}"
    lacks = "has both FLOPs and a score in common" if group is None else "has no FLOPs, or no score in common"
    raise NotYet(f"{of} of the published table {_TABLE!r} {lacks}")


def _runs(frames: Frames, baseline: str, shared: list[str]) -> pd.DataFrame:
    """Means over the seeds of each label that competes."""
    import pandas as pd

    curves = score_curves(frames, metrics=shared)
    finals = curves[curves["final"] & ~curves["label"].isin(frames.apart_from(baseline))]
    means = finals.groupby("label", sort=False)[["flops", "score", "examples_seen"]].mean()
    if baseline not in means.index:
        return pd.DataFrame()
    whole = float(means.loc[baseline, "flops"])  # type: ignore[arg-type]
    chosen = looks(list(means.index), baseline)
    named = means.index.map(texts(frames))
    points = pd.DataFrame({"kind": "run", "text": named, "x": (100 * means["flops"] / whole).array})
    points["y"], points["examples_seen"] = (100 * means["score"]).array, means["examples_seen"].array
    points["color"] = [chosen[label].color for label in means.index]
    points["marker"] = [chosen[label].marker for label in means.index]
    return points.dropna(subset=["x", "y"])


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    figure, [axes] = panels(sheet)
    draw_methods(axes, data)
    return finish(figure, texts, sheet)


def draw_methods(axes: Axes, data: pd.DataFrame) -> None:
    """Draw published methods as points; the source's own and the experiment's are larger than the others."""
    log = data["x"].max() > 0.5 * LOG_FROM * data["x"].min()
    scale_axis(axes, "x", data["x"], log=log, form=lambda x: f"{x:g}%")
    axes.set(xlabel="training FLOPs relative to the baseline", ylabel="mean score (%)")
    for _, point in data.iterrows():
        axes.plot(
            point["x"], point["y"], linestyle="none", marker=point["marker"], color=point["color"],
            markersize=4 if point["kind"] == "published" else 5.5, markeredgewidth=0, label=point["text"],
        )  # fmt: skip
    axes.margins(x=0.16, y=0.12)
