"""Gains of learners against the gains of their reference models (paper, Figure 5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..configs import Configs, lookup
from ..errors import NotYet
from ..frames import Frames
from .against import draw_points, final_scores, summarized, with_looks
from .plot import Plot, Texts, about_lost, about_seeds, difference_axis, looks_of, title, what_score_is

if TYPE_CHECKING:
    import pandas as pd


def against_reference(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot each learner against the reference that it selects with, both relative to the baseline.

    Gray lines connect references that were trained on the same data, in the order of examples seen.

    Args:
        baseline: Label or run that is 0 on both axes; by default the first that is not a reference.

    Returns:
        The plot, with the data of `against`, and the label of the reference. x is the reference's score and
        y the learner's, both minus the baseline's with the same seed. Rows of kind "path" are connected.

    Raises:
        ValueError: Fewer than two references have completed with their learners, the baseline has not
            completed, or it is unknown.
    """
    import pandas as pd

    compared, configs = frames.baseline(baseline), Configs(frames)
    pairs = _pairs(frames, configs, compared)
    if (count := pairs["reference"].nunique()) < 2:
        raise NotYet(
            f"experiment {frames.experiment!r} has {count} references that completed with their learners; a "
            f"comparison needs two: {frames.progress()}"
        )
    chosen = looks_of(frames, compared)
    points = summarized(pairs.assign(panel="", line=pairs["label"], planned=1))
    points = with_looks(points, map(chosen.__getitem__, points["label"]))
    means = points[points["kind"] == "mean"]
    of_references = [configs.by_label[label] for label in means["reference"]]
    trained = [json.dumps(lookup(config, "data.filter")) for config in of_references]
    seen = [lookup(config, "schedule.examples_seen") or 0 for config in of_references]
    paths = means.assign(kind="path", line=trained, seen=seen).sort_values("seen")
    zero = means.head(1).assign(kind="level", line="", label=compared, color=chosen[compared].color)
    zero[["x", "y", "low", "high"]] = 0.0
    x, y = (f"{whose}'s {difference_axis(frames, compared)}" for whose in ("reference", "learner"))
    data = pd.concat([points, paths, zero], ignore_index=True)
    data = data.assign(title="", x_label=x, y_label=y, text=data["label"].map(frames.shown))
    caption = [
        what_score_is(frames),
        f"Each point: a learner, against the reference it selects with, both minus {frames.shown[compared]} "
        "with the same seed, each at the end of the run.",
        *about_seeds(data["seeds"].max()),
        *about_lost(frames, dict.fromkeys([compared, *pairs["reference"], *pairs["label"]])),
        "Gray: references trained on the same data." * (len(set(trained)) < len(trained)),
    ]
    words = Texts(title(frames), " ".join(filter(None, caption)), x, y)
    return Plot("against_reference", data, words, draw_points)


def _pairs(frames: Frames, configs: Configs, baseline: str) -> pd.DataFrame:
    """Return one row per learner and seed: label, reference, seed, x, y, both minus the baseline's score."""
    finals = final_scores(frames).set_index(["label", "seed"])["score"].unstack("label")
    if baseline not in finals:
        raise NotYet(
            f"baseline {baseline!r} of {frames.experiment!r} has not completed with a score: "
            f"{frames.progress()}"
        )
    finals = finals[[label for label in frames.labels if label in finals]].sub(finals[baseline], axis=0)
    gains = finals.melt(value_name="y", ignore_index=False).dropna().reset_index()
    references = gains[["label", "seed", "y"]].rename(columns={"label": "reference", "y": "x"})
    gains["reference"] = [configs.reference(label) for label in gains["label"]]
    pairs: pd.DataFrame = gains.merge(references, on=["reference", "seed"])
    return pairs
