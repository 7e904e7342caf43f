"""Learning curves: mean scores over training, with bands over seeds."""

from __future__ import annotations

from ..costs import Scope
from ..curves import Band, Effort, mean_curves, score_curves
from ..frames import Frames
from .drawing import draw_curves
from .plot import Plot, Texts
from .style import (
    BANDS,
    about_references,
    require_competitors,
    score_axis,
    styled,
    title,
    what_score_is,
)


def learning_curves(
    frames: Frames,
    baseline: str | None = None,
    effort: Effort = "examples_seen",
    scope: Scope = "scoring",
    band: Band = "range",
) -> Plot:
    """Plot the mean score over training: a curve a label, with a band over its seeds.

    The baseline's final score is a dotted line; that of a reference, which does not compete, a grey one.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run; by default the study's first non-reference run.
        effort: What the horizontal axis measures.
        scope: What counts as FLOPs.
        band: What the bands span: "range" (lowest to highest seed) or "std".

    Returns:
        The plot, named "curves". Its data: for each label and point the effort, mean, low and high.

    Raises:
        ValueError: If nothing can be drawn yet, or there is no such baseline.
    """
    compared = frames.baseline(baseline)
    curves = mean_curves(score_curves(frames, scope), effort, band)
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
        sentences.append(f"Dotted: final score of {compared}.")
    sentences += about_references(data)
    if effort == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    x = "examples seen" if effort == "examples_seen" else "training FLOPs"
    return Plot("curves", data, Texts(title(frames), " ".join(sentences), x, score_axis(frames)), draw_curves)
