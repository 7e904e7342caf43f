"""Learning curves with bands over seeds, and how much sooner runs reach the baseline's final score."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..costs import Scope
from ..curves import Band, mean_curves, score_curves
from ..efforts import WORDS, Effort, cost_of, known
from ..frames import Frames
from ..tables import finals, speedup_table
from .drawing import draw_curves, draw_speedup
from .plot import (
    Plot,
    Texts,
    about_references,
    require_competitors,
    scale,
    score_axis,
    styled,
    title,
    what_score_is,
)
from .published import published_scores

if TYPE_CHECKING:
    import pandas as pd

BANDS: dict[Band, str] = {
    "range": "from the lowest to the highest seed",
    "std": "± standard deviation over seeds",
}


def learning_curves(
    frames: Frames,
    baseline: str | None = None,
    effort: Effort | None = None,
    scope: Scope = "scoring",
    band: Band = "range",
) -> Plot:
    """Plot the mean score over training: a curve a label, with a band over its seeds.

    The baseline's final score is a dotted line; that of a reference, which does not compete, a grey one.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run; by default the study's first non-reference run.
        effort: What the horizontal axis measures; None for examples seen, or seconds if none are known.
        scope: What counts as FLOPs.
        band: What the bands span: "range" (lowest to highest seed) or "std".

    Returns:
        The plot, named "curves". Its data: for each label and point the effort, mean, low and high.

    Raises:
        ValueError: If nothing can be drawn yet, or there is no such baseline or no score (`Frames.score`).
    """
    compared, metric = frames.baseline(baseline), frames.score
    curves = score_curves(frames, scope)
    if effort is None:
        effort = "seconds" if known(curves) == ["seconds"] else "examples_seen"
    curves = mean_curves(curves, effort, band)
    if curves.empty:
        raise ValueError(
            f"experiment {frames.experiment!r} has no score to draw over {effort} yet: {frames.progress()}"
        )
    data = styled(frames, curves, compared, ["mean", "low", "high"]).rename(columns={effort: "effort"})
    require_competitors(frames, data)
    sentences = [what_score_is(frames)]
    if data["seeds"].max() > 1:
        sentences.append(f"Lines: mean over seeds; bands: {BANDS[band]}.")
    if (data["final"] & (data["role"] == "baseline")).any():
        sentences.append(f"Dotted: final score of {frames.shown[compared]}.")
    sentences += about_references(frames, data)
    if effort == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    words = Texts(title(frames), " ".join(sentences), WORDS[effort].axis, score_axis(frames), metric)
    return Plot("curves", data, words, draw_curves)


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
        raise ValueError(f"nothing is known of what the runs of {frames.experiment!r} have spent")
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
    ]
    sentences.append(
        f"Factors: the baseline's {WORDS[over].amount} divided by the {WORDS[over].amount} needed to match "
        "its final score, with the same seed, median over seeds. Bars: the same in "
        f"{WORDS[cost].amount}; lines on them: lowest to highest seed; open: spent without reaching it."
    )
    if len(table) - 1 < compared_with:
        sentences.append(f"Shown: the {len(table) - 1} soonest of {compared_with}.")
    if cost == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
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
    runs = rows.assign(name=rows["label"].map(frames.shown)).set_index("name")["break_even"].dropna()
    paid = [f"{name} {count:,.0f}" for name, count in runs.items() if math.isfinite(count)]
    never = [str(name) for name, count in runs.items() if math.isinf(count)]
    counts = [", ".join(paid)] if paid else []
    counts += [f"never: {', '.join(never)}"] if never else []
    what = "Runs after which a reference has paid for itself, its scoring included"
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
