"""The figures of an experiment: learning curves, and accuracy against FLOPs with the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .costs import Scope
from .curves import Band, Effort, mean_curves, score_curves
from .drawing import draw_curves, draw_pareto
from .frames import Frames
from .pareto import front
from .plots import Plot, Texts
from .style import looks

if TYPE_CHECKING:
    import pandas as pd

_COSTS: dict[Scope, str] = {
    "learner": "training alone",
    "scoring": "training and the learner's scoring of super-batches",
    "reference_scoring": "training, and scoring of super-batches by learner and reference",
}
_BANDS: dict[Band, str] = {
    "range": "from the lowest to the highest seed",
    "std": "± standard deviation over seeds",
}


def learning_curves(
    frames: Frames,
    baseline: str | None = None,
    effort: Effort = "examples_seen",
    scope: Scope = "scoring",
    band: Band = "range",
) -> Plot:
    """Mean score over training, one curve a label with a band over its seeds.

    The baseline's final score is a dotted line; that of a reference, which competes with none, a grey one.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run; by default the study's first run that is no reference.
        effort: The horizontal axis.
        scope: What counts as FLOPs.
        band: What the bands span: "range" (lowest to highest seed) or "std".

    Returns:
        The plot, named "curves". Its data: for each label and point the effort, mean, low and high.

    Raises:
        ValueError: If nothing of it can be drawn yet, or it has no
            such baseline.
    """
    compared = frames.baseline(baseline)
    curves = mean_curves(score_curves(frames, scope), effort, band)
    if curves.empty:
        raise ValueError(
            f"experiment {frames.experiment!r} has no score to draw over {effort} yet: {frames.progress()}"
        )
    data = _dressed(frames, curves, compared, ["mean", "low", "high"]).rename(columns={effort: "effort"})
    _require_competitors(frames, data)
    sentences = [_what_score_is(frames)]
    if data["seeds"].max() > 1:
        sentences.append(f"Lines: mean over seeds; bands: {_BANDS[band]}.")
    if (data["final"] & (data["role"] == "baseline")).any():
        sentences.append(f"Dotted: final score of {compared}.")
    sentences += _about_references(data)
    if effort == "flops":
        sentences.append(f"FLOPs: {_COSTS[scope]}.")
    x = "examples seen" if effort == "examples_seen" else "training FLOPs"
    return Plot(
        "curves", data, Texts(_title(frames), " ".join(sentences), x, _score_axis(frames)), draw_curves
    )


def pareto(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    trajectories: bool = False,
) -> Plot:
    """Mean final accuracy against total training FLOPs, with the Pareto front of the means.

    Completed runs alone are points: a marker a label, with error bars over seeds, and a dot a seed.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run that is drawn in black; by default the study's first run that is no reference.
        scope: What counts as FLOPs.
        trajectories: Whether to show, faintly, how each mean came there over training. These points belong to
            one budget, so they are never part of the front.

    Returns:
        The plot, named "pareto". Its data: rows of kind "mean" (a label: flops, score, spread, on_front),
        "seed" (a run) and "trajectory" (a point on the way).

    Raises:
        ValueError: If no run of it has completed with a known price
            yet, or it has no such baseline.
    """
    import pandas as pd

    compared = frames.baseline(baseline)
    curves = score_curves(frames, scope)
    runs = curves[curves["final"]].dropna(subset=["score", "flops"])
    if runs.empty:
        raise ValueError(
            f"no run of experiment {frames.experiment!r} has completed with a score and a price: "
            f"{frames.progress()}"
        )
    of_label = runs.groupby("label", sort=False)
    means = of_label[["flops", "score"]].mean().assign(spread=of_label["score"].std(), seeds=of_label.size())
    means = means.reset_index()
    competes = ~means["label"].isin(frames.apart_from(compared))
    means["on_front"] = False
    means.loc[competes, "on_front"] = front(means.loc[competes, "flops"], means.loc[competes, "score"])
    parts = [means.assign(kind="mean"), runs[["label", "seed", "flops", "score"]].assign(kind="seed")]
    if trajectories:
        way = mean_curves(curves[curves["label"].isin(means["label"])], "flops")
        parts.append(
            way.rename(columns={"mean": "score"})[["label", "flops", "score"]].assign(kind="trajectory")
        )
    points = pd.concat(parts, ignore_index=True)
    data = _dressed(frames, points, compared, ["score", "spread"])
    _require_competitors(frames, data)

    sentences = [_what_score_is(frames)]
    if means["seeds"].max() > 1:
        sentences.append("Markers: mean over seeds ± standard deviation; dots: seeds.")
    sentences.append("Grey steps and filled markers: Pareto front of the means.")
    if trajectories:
        sentences.append("Faint lines: the way there in training, no points of the front.")
    sentences += _about_references(data[data["kind"] == "mean"].rename(columns={"score": "mean"}))
    sentences.append(f"FLOPs: {_COSTS[scope]}.")
    return Plot(
        "pareto",
        data,
        Texts(_title(frames), " ".join(sentences), "training FLOPs", _score_axis(frames)),
        draw_pareto,
    )


def _require_competitors(frames: Frames, data: pd.DataFrame) -> None:
    """ValueError where there is nothing but references."""
    if (data["role"] == "reference").all():
        raise ValueError(
            f"no run of experiment {frames.experiment!r} but references has a score: {frames.progress()}"
        )


def _dressed(frames: Frames, data: pd.DataFrame, baseline: str, scores: list[str]) -> pd.DataFrame:
    """Rows in the order of the study, scores in the axis's unit, with how each label looks and reads."""
    data = data.copy()
    apart = set(frames.apart_from(baseline))
    chosen = looks([label for label in frames.labels if label not in apart], baseline)
    roles = {label: "reference" if label in apart else "competitor" for label in frames.labels}
    data["role"] = data["label"].map(roles | {baseline: "baseline"})
    data["text"] = data["label"].map(_texts(frames))
    for part in ("colour", "marker", "line"):
        data[part] = data["label"].map({label: getattr(look, part) for label, look in chosen.items()})
    data[scores] = data[scores] * _scale(frames)
    order = {label: position for position, label in enumerate(frames.labels)}
    return data.sort_values("label", key=lambda labels: labels.map(order), kind="stable", ignore_index=True)


def _texts(frames: Frames) -> dict[str, str]:
    """Label → how it reads in a figure: marked where some of its seeds have not completed."""
    completed = frames.runs["state"].eq("COMPLETED").groupby(frames.runs["label"]).agg(["sum", "size"])
    return {
        str(label): str(label) if done == planned else f"{label} ({done} of {planned} seeds)"
        for label, done, planned in completed.itertuples()
    }


def _about_references(data: pd.DataFrame) -> list[str]:
    """A sentence on references, which have no point: their own training is another budget on other data."""
    ends = data[data["role"] == "reference"].groupby("label", sort=False)["mean"].last()
    shown = ", ".join(f"{label} {score:.1f}" for label, score in ends.items())
    # A reference far from the others' scores is not drawn: it would squeeze them.
    return [f"Final score of the others' reference (grey dashes where near): {shown}."] if shown else []


def _scale(frames: Frames) -> float:
    return 100.0 if frames.scores_are_shares else 1.0


def _score_axis(frames: Frames) -> str:
    return "mean score (%)" if frames.scores_are_shares else "mean score"


def _what_score_is(frames: Frames) -> str:
    names = frames.metrics
    return f"Score: mean of {', '.join(names)}." if len(names) > 1 else f"Score: {names[0]}."


def _title(frames: Frames) -> str:
    return frames.question or frames.experiment
