"""Learning curves with bands over seeds, and how much sooner runs reach the baseline's final score."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..costs import Scope
from ..curves import Smoothing, mean_curves, score_curves
from ..efforts import WORDS, Effort, Over, cost_of, known
from ..frames import Frames, NotYet
from ..metrics import Metric
from ..tables import finals, speedup_table
from ..tables.speedups import BREAK_EVEN, with_range
from .drawing import draw_speedup
from .drawing_curves import MOST_ALONE, MOST_TOGETHER, draw_curves
from .plot import (
    Plot,
    Texts,
    about_lost,
    about_references,
    require_competitors,
    scale,
    score_axis,
    styled,
    title,
    what_score_is,
)
from .published import published_scores
from .recorded import Recorded

if TYPE_CHECKING:
    import pandas as pd

_POINTS = 500  # of a curve that are drawn


def learning_curves(
    frames: Frames,
    baseline: str | None = None,
    effort: Over | None = None,
    scope: Scope = "scoring",
    *,
    shown: Sequence[Recorded] = (),
    smooth: Smoothing | None = None,
    highlight: Sequence[str] = (),
    together: bool = False,
) -> Plot:
    """Plot the mean score, or metrics, over training: a curve a label, with a band over its seeds.

    The baseline's final score is a dotted line; that of a reference, which does not compete, a gray one. More
    than seven curves have a panel each, unless some are highlighted.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run; by default the study's first non-reference run.
        effort: What the horizontal axis measures; None for examples seen, or what is known instead.
        scope: What counts as FLOPs.
        shown: Metrics in place of the score, from `recorded`; several make a panel each.
        smooth: A running mean over every seed's curve.
        highlight: Labels or runs that are colored beside the baseline; the others are thin and gray.
        together: Whether even many curves are drawn in one panel.

    Returns:
        The plot, named "curves", of metrics "curves_" and their names. Its data: for each panel, label and
        point the effort, mean, low and high; panel, y_label and log (whether the axis is) say what is drawn;
        alone says whether the curve has a panel of its own.

    Raises:
        ValueError: If nothing can be drawn yet, or there is no such baseline or label, or no score
            (`Frames.score`) and no metrics.
    """
    import pandas as pd

    compared = frames.baseline(baseline)
    measured = list(shown) or [Recorded("", frames.score, score_curves(frames, scope))]
    if effort is None:
        effort = _usual(measured[0].curves)
    column: Effort | Literal["step"] = "step" if effort == "steps" else effort
    parts, lost = [], []
    for each in measured:
        judged = frames.scored_by([each.name]) if each.name in frames.evaluated else frames
        lost += about_lost(judged, frames.labels)
        curves = mean_curves(smooth(each.curves) if smooth else each.curves, column)
        if curves.empty:
            what = each.name or "score"
            missing = f"no {what} to draw over {effort} yet"
            raise NotYet(f"experiment {frames.experiment!r} has {missing}: {frames.progress()}")
        ends = ["mean", "low", "high"]
        part = styled(judged, curves, compared, []).rename(columns={column: "effort"})
        part[ends] *= each.metric.factor
        part["panel"], part["y_label"] = each.name, each.axis if shown else score_axis(frames)
        part["log"] = each.metric.scale == "log"
        parts.append(_thinned(part))
    data = pd.concat(parts, ignore_index=True)
    if highlight:
        data = _highlighted(frames, data, highlight, compared)
    require_competitors(frames, data)
    metric = measured[0].metric
    sentences = [_what_is_shown(measured)] if shown else [what_score_is(frames)]
    if data["seeds"].max() > 1:
        sentences.append("Lines: mean over seeds; bands: from the lowest to the highest seed.")
    if smooth:
        sentences.append(f"Smoothed: running mean over {smooth} of each seed.")
    if (data["final"] & (data["role"] == "baseline")).any():
        what = "value" if shown else "score"
        sentences.append(f"Dotted: final {what} of {frames.shown[compared]}.")
    sentences += dict.fromkeys(lost)
    competing = data.loc[data["role"] != "reference"].drop_duplicates("label")
    if (data["role"] == "other").any():
        others = int((competing["role"] == "other").sum())
        sentences.append(f"Gray: {others} other run{'' if others == 1 else 's'}.")
    data["alone"] = False
    if len(competing) > MOST_TOGETHER and not (together or highlight or len(measured) > 1):
        alone = _alone(data, metric)
        data["alone"] = data["label"].isin(alone)
        which = f" ({len(alone)} of {len(competing) - 1})" if len(alone) < len(competing) - 1 else ""
        sentences.append(
            f"Blue: one run a panel{which}; black: {frames.shown[compared]}; gray: the other runs."
        )
    if len(measured) == 1:
        sentences += about_references(frames, data, metric)
    if effort == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    axis = "steps" if effort == "steps" else WORDS[effort].axis
    y_label = str(data["y_label"].iloc[0])
    words = Texts(title(frames), " ".join(sentences), axis, y_label, metric)
    named = "_".join(["curves", *(re.sub(r"\W+", "_", each.name) for each in shown)])
    return Plot(named, data, words, draw_curves)


def _usual(curves: pd.DataFrame) -> Over:
    """What curves are drawn over where nobody says: examples seen; else seconds, else steps."""
    there = known(curves)
    return "examples_seen" if "examples_seen" in there else "seconds" if "seconds" in there else "steps"


def _thinned(data: pd.DataFrame) -> pd.DataFrame:
    """Keep every n-th point of long curves, and their ends."""
    place = data.groupby("label", sort=False).cumcount()
    length = data.groupby("label", sort=False)["label"].transform("size")
    kept = (place % (-(-length // _POINTS)) == 0) | (place == length - 1)
    return data[kept].reset_index(drop=True)


def _highlighted(frames: Frames, data: pd.DataFrame, names: Sequence[str], baseline: str) -> pd.DataFrame:
    """Set the role of those that compete and are not named to "other";"""
    chosen = frames.only(names).labels
    roles = data["role"].where(data["label"].isin(chosen) | (data["role"] != "competitor"), "other")
    return data.assign(role=roles)


def _alone(data: pd.DataFrame, metric: Metric) -> list[str]:
    """Labels that get a panel each: all competitors, or the best of very many."""
    ends = data[data["role"] == "competitor"].groupby("label", sort=False)["mean"].last()
    if len(ends) <= MOST_ALONE:
        return list(ends.index)
    best = ends.sort_values(ascending=metric.goal == "min", kind="stable").head(MOST_ALONE).index
    return [label for label in ends.index if label in best]


def _what_is_shown(measured: Sequence[Recorded]) -> str:
    """Name the metrics in a sentence, and say of each whether less is better."""
    said = [f"{each.name}{', less is better' if each.metric.goal == 'min' else ''}" for each in measured]
    return f"Shown: {'; '.join(said)}."


_MOST = 30  # labels beside the baseline


def speedup(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    published: pd.DataFrame | None = None,
    source: str | None = None,
) -> Plot:
    """Plot learning curves with the factor by which each is sooner, FLOPs to match, and published methods.

    The numbers are those of `tables.speedup_table`: paired by seed, medians, censored where not reached.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run to match; by default the study's first non-reference run.
        scope: What counts as FLOPs.
        published: Published cells, from `published.read`, for a third panel; None for two. There are also
            two if no published table can be compared by FLOPs.
        source: Where it is published; by default the one with most points.

    Returns:
        The plot, named "speedup". Its data: panel "curves" with rows of kind "curve" (points within one run:
        label, x examples, y, low, high) and "match" (where the label reaches the baseline's final score: x,
        y, factor); panel "costs" with rows of kind "bar" (label, cost, x to match, NaN where they are not
        enough, their ends low and high, spent, factor, reached, seeds); panel "published" as of
        `published_scores`.

    Raises:
        ValueError: If no run has completed with a score, or there is no such baseline, or no score is better
            than another (`Frames.ranked`).
    """
    import pandas as pd

    compared = frames.baseline(baseline)
    found = finals(frames, baseline, scope)
    table = speedup_table(found).frame
    if not found.efforts:
        raise NotYet(f"nothing is known of what the runs of {frames.experiment!r} have spent")
    over, cost = found.efforts[0], cost_of(found.runs)
    compared_with = len(table) - 1
    table = _soonest(table, compared, over)
    curves = mean_curves(score_curves(frames, scope), over)
    curves = curves[curves["label"].isin(table["label"])].rename(columns={"mean": "y", over: "x"})
    level = curves.loc[curves["label"] == compared, "y"].iloc[-1]
    data = pd.concat(
        [
            curves.assign(panel="curves", kind="curve"),
            _matches(table[table["label"] != compared], float(level), over),
            _bars(table, cost),
        ],
        ignore_index=True,
    )
    data = styled(frames, data, compared, [])
    data.loc[data["panel"] == "curves", ["y", "low", "high"]] *= scale(frames)
    sentences = [
        what_score_is(frames),
        f"Left: mean over seeds; dotted: final score of {frames.shown[compared]}.",
        f"Factors: the baseline's {WORDS[over].amount} divided by the {WORDS[over].amount} needed to match "
        "its final score, with the same seed, median over seeds. Bars: the same in "
        f"{WORDS[cost].amount}; lines on them: lowest to highest seed; open: spent without reaching it.",
    ]
    if len(table) - 1 < compared_with:
        sentences.append(f"Shown: the {len(table) - 1} soonest of {compared_with}.")
    if cost == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    sentences += about_lost(frames, frames.labels)
    sentences += _about_break_even(frames, table)
    beside = _beside(published, frames, compared, source)
    if beside is not None:
        data = pd.concat([data, beside.data.assign(panel="published")], ignore_index=True)
        sentences.append(f"Right: published methods. {beside.texts.caption}")
    words = Texts(title(frames), " ".join(sentences), WORDS[over].axis, score_axis(frames), frames.score)
    return Plot("speedup", data, words, draw_speedup)


def _beside(published: pd.DataFrame | None, frames: Frames, baseline: str, source: str | None) -> Plot | None:
    """Published methods, if some have FLOPs; a source that is named has to exist."""
    if published is None:
        return None
    try:
        return published_scores(published, frames, baseline, source=source)
    except ValueError:
        if source is not None:
            raise
        return None  # cells of other tables alone, or without FLOPs: the figure is of the experiment


def _about_break_even(frames: Frames, rows: pd.DataFrame) -> list[str]:
    """Say for runs that need a reference how many of them pay for it."""
    if "break_even" not in rows:
        return []
    runs = rows.dropna(subset="break_even").assign(name=rows["label"].map(frames.shown))
    counts_of = zip(runs["name"], *(runs[key] for key in BREAK_EVEN), strict=True)
    told = [(name, median, with_range(median, low, high)) for name, median, low, high in counts_of]
    paid = [f"{name} {text}" for name, median, text in told if math.isfinite(median)]
    never = [str(name) for name, median, _ in told if math.isinf(median)]
    counts = [", ".join(paid)] if paid else []
    counts += [f"never: {', '.join(never)}"] if never else []
    what = "Runs after which a reference has paid for itself, its scoring included, median [range] over seeds"
    return [f"{what}: {'; '.join(counts)}."] if counts else []


def _soonest(rows: pd.DataFrame, baseline: str, over: Effort) -> pd.DataFrame:
    """Keep the baseline and as many others as fit: those that match it with the least effort."""
    others = rows[rows["label"] != baseline]
    kept = others.sort_values(f"fewer_{WORDS[over].name}", ascending=False, kind="stable").head(_MOST)[
        "label"
    ]
    return rows[(rows["label"] == baseline) | rows["label"].isin(kept)]


def _matches(rows: pd.DataFrame, level: float, over: Effort) -> pd.DataFrame:
    """Where each label reaches the level."""
    name = WORDS[over].name
    rows = rows[np.isfinite(rows[f"{name}_most"]) & np.isfinite(rows[f"fewer_{name}"])]
    return rows[["label"]].assign(
        panel="curves", kind="match", y=level, x=rows[f"{name}_to_match"], factor=rows[f"fewer_{name}"]
    )


def _bars(rows: pd.DataFrame, cost: Effort) -> pd.DataFrame:
    """Cost to match, the baseline itself by the same rule."""
    name = WORDS[cost].name
    reached = np.isfinite(rows[f"{name}_most"])
    ends = np.isfinite(rows[f"{name}_low"]) & np.isfinite(rows[f"{name}_high"])
    bars = rows[["label"]].assign(panel="costs", kind="bar", cost=cost, factor=rows[f"fewer_{name}"])
    bars[["reached", "seeds", "spent"]] = rows[["seeds_reached", "seeds_compared", f"{name}_spent"]]
    bars["x"] = rows[f"{name}_to_match"].where(reached)
    bars[["low", "high"]] = rows[[f"{name}_low", f"{name}_high"]].where(ends)
    shown: pd.DataFrame = bars[reached | rows[f"{name}_spent"].notna()]
    return shown
