"""Sentences of the captions of figures; those without content are left out."""

from collections.abc import Collection, Iterable

import pandas as pd

from ..frames import Frames
from ..metrics import Metric
from .plot import MOST_REFERENCES, references_in, seeds_of
from .style import UNCERTAINTY


def score(frames: Frames) -> str:
    """Say in a sentence which metrics the score is the mean of, and whether less of it is better."""
    names, metric = list(frames.declared.called(frames.averaged).values()), frames.score
    less = ", less is better" if metric.goal == "min" else ""
    return f"Score: mean of {', '.join(names)}{less}." if len(names) > 1 else f"Score: {names[0]}{less}."


def seeds(count: float, bands: str | None = None, *, thin: bool = False) -> list[str]:
    """Describe means and intervals, or say that each label has one seed.

    Args:
        count: Largest number of seeds.
        bands: Shape of the intervals around lines, empty for none; None for markers with bars.
        thin: Whether each seed has a thin line.
    """
    if count <= 1:
        return ["One seed each."]
    if bands is None:
        return [f"Markers: mean over seeds; bars: {UNCERTAINTY}; dots: seeds."]
    parts = ["Lines: mean over seeds", *([f"{bands}: {UNCERTAINTY}"] if bands else [])]
    return ["; ".join([*parts, *(["thin lines: seeds"] if thin else [])]) + "."]


def references(frames: Frames, data: pd.DataFrame, metric: Metric) -> list[str]:
    """Describe references in a sentence; they have no point, since their data and budget differ.

    Args:
        frames: Results of the experiment.
        data: Rows of label, role, mean (as shown), and final (whether the row is the end of completed runs);
            the last row of a label is its end.
        metric: Metric of `mean`.
    """
    ends = references_in(data).sort_values("mean")
    scores = [metric.text(score / metric.factor) for score in ends["mean"]]
    if len(ends) > MOST_REFERENCES:
        return [f"{len(ends)} references: {scores[0]} to {scores[-1]}."]
    named = [
        f"{frames.shown[label]} {score}{'' if final else ' so far'}"
        for label, score, final in zip(ends["label"], scores, ends["final"], strict=True)
    ]
    # A reference far from the others' scores is not drawn: it would squeeze them.
    return [f"References (gray dashes if in range): {', '.join(named)}."] if named else []


def unfinished(frames: Frames, labels: Iterable[str]) -> list[str]:
    """Name the labels that are not shown because none of their seeds has completed."""
    completed = seeds_of(frames)
    missing = [frames.shown[label] for label in labels if completed[label][0] == 0]
    return [f"Not shown (no seed has completed): {', '.join(missing)}."] if missing else []


def lost(frames: Frames, labels: Collection[str]) -> list[str]:
    """Describe the labels that represent the best of others, and those that lost seeds."""
    best = [f"{label}: {frames.about[label]}." for label in labels if label in frames.about]
    fates = [f"{frames.shown[label]} {frames.lost[label]}." for label in labels if label in frames.lost]
    fates += ["Means are over the seeds that remain; such curves are finely dotted."] * bool(fates)
    return [*best, *fates]
