"""What learners gain against what the reference that they select with gains (paper, Figure 5)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from .. import units
from ..configs import Configs, lookup
from ..frames import Frames, NotYet
from ..names import Shown
from .against import final_scores, value_text
from .drawing import draw_scatter_panels
from .plot import Plot, Texts, about_lost, difference_axis, scale, title, what_score_is
from .style import looks

if TYPE_CHECKING:
    import pandas as pd

_EXAMPLES = "schedule.examples_seen"
_CURATION = "data.filter"
_LONG = 28  # characters: a filter that is longer does not fit beside a point


def against_reference(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot each learner against the reference it selects with, both relative to the baseline.

    A panel by curation, of the references that were trained on as many examples; a panel by the examples that
    a reference has seen, of those trained on the same data. If neither varies, there is one panel of all.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run whose final score is 0 on both axes; by default the study's first run that is
            no reference.

    Returns:
        The plot, named "against_reference". Its data: rows of kind "mean" (panel, label, reference, text, x,
        y: score less the baseline's, and their ends x_low, x_high, low, high) and "seed"; a panel's rows are
        in the order in which its points are connected, if they are.

    Raises:
        ValueError: If fewer than two references and their learners have completed, or the baseline has not,
            or there is no such baseline.
    """
    import pandas as pd

    compared = frames.baseline(baseline)
    pairs = _pairs(frames, compared)
    if pairs["reference"].nunique() < 2:
        raise NotYet(
            f"experiment {frames.experiment!r} has {pairs['reference'].nunique()} references that completed "
            f"with their learners; a comparison needs two: {frames.progress()}"
        )
    configs = Configs(frames)
    parts = [
        _points(pairs[pairs["reference"].isin(shown)], panel, texts, frames.shown)
        for panel, shown, texts in _panels(list(dict.fromkeys(pairs["reference"])), configs, frames.shown)
    ]
    data = pd.concat(parts, ignore_index=True)
    data[["x", "y", "x_low", "x_high", "low", "high"]] *= scale(frames)
    x_label = f"reference's {difference_axis(frames, compared)}"
    sentences = [
        what_score_is(frames),
        f"Each point: a learner and the reference it selects with, both minus {frames.shown[compared]} with "
        "the same seed, each at the end of its own run.",
    ]
    if data["seeds"].max() > 1:
        sentences.append("Markers: mean over seeds; bars: lowest to highest seed; dots: seeds.")
    else:
        sentences.append("One seed each.")
    sentences += about_lost(frames, dict.fromkeys([compared, *pairs["reference"], *pairs["label"]]))
    words = Texts(
        title(frames), " ".join(sentences), x_label, f"learner's {difference_axis(frames, compared)}"
    )
    return Plot("against_reference", data, words, draw_scatter_panels)


def _pairs(frames: Frames, baseline: str) -> pd.DataFrame:
    """One row a learner, seed and reference: label, reference, seed, x, y, minus the baseline's score."""
    configs, finals = Configs(frames), final_scores(frames)
    finals = finals.merge(
        finals.loc[finals["label"] == baseline, ["seed", "score"]].rename(columns={"score": "base"}),
        on="seed",
    )
    if finals.empty:
        raise NotYet(
            f"baseline {baseline!r} of {frames.experiment!r} has not completed with a score: "
            f"{frames.progress()}"
        )
    gained = finals.assign(gain=finals["score"] - finals["base"])[["label", "seed", "gain"]]
    of = {label: configs.reference(label) for label in frames.labels}
    learners = gained.assign(reference=gained["label"].map(of)).dropna(subset=["reference"])
    references = gained.rename(columns={"label": "reference", "gain": "x"})
    pairs: pd.DataFrame = learners.rename(columns={"gain": "y"}).merge(references, on=["reference", "seed"])
    return pairs


def _panels(
    references: list[str], configs: Configs, names: Shown
) -> list[tuple[str, list[str], dict[str, str]]]:
    """Heading of each panel, its references in order, and the names of their points."""
    config = {label: configs.by_label[label] for label in references}
    examples = {label: lookup(config[label], _EXAMPLES) for label in references}
    curation = {label: lookup(config[label], _CURATION) for label in references}
    panels = []
    by_curation = _largest(references, examples)
    if len({curation[label] for label in by_curation}) > 1:
        panels.append(
            (
                "by curation",
                by_curation,
                {label: _called(names[label], curation[label]) for label in by_curation},
            )
        )
    by_examples = _largest(references, curation)
    if len({examples[label] for label in by_examples}) > 1:
        ordered = sorted(by_examples, key=lambda label: examples[label] or 0)
        panels.append(
            ("by examples seen", ordered, {label: units.count(examples[label] or 0) for label in ordered})
        )
    whole = [("", references, {label: names[label] for label in references})]
    return [(heading, shown, _distinct(texts, names)) for heading, shown, texts in panels or whole]


def _distinct(texts: dict[str, str], names: Shown) -> dict[str, str]:
    """Add the label where a text occurs more than once."""
    counts = Counter(texts.values())
    return {
        label: text if counts[text] == 1 or text == names[label] else f"{text} ({names[label]})"
        for label, text in texts.items()
    }


def _largest(labels: list[str], value: dict[str, Any]) -> list[str]:
    """The largest group of labels that share a value; of equally large ones the first."""
    groups: dict[Any, list[str]] = {}
    for label in labels:
        groups.setdefault(value[label], []).append(label)
    return max(groups.values(), key=len)


def _called(name: str, curation: Any) -> str:
    """Name a reference's data by its filter, where that is short."""
    text = "no filter" if curation is None else value_text(curation)
    return text if len(text) <= _LONG else name


def _points(pairs: pd.DataFrame, panel: str, texts: dict[str, str], names: Shown) -> pd.DataFrame:
    """Means and seeds of one panel, in the order of its texts."""
    import pandas as pd

    of_point = pairs.groupby(["reference", "label"], sort=False)
    means = of_point[["x", "y"]].mean()
    means[["x_low", "x_high"]] = of_point["x"].agg(["min", "max"])
    means[["low", "high"]] = of_point["y"].agg(["min", "max"])
    means["seeds"] = of_point.size()
    order = {reference: place for place, reference in enumerate(texts)}
    means = means.reset_index().sort_values("reference", key=lambda names: names.map(order), kind="stable")
    several = pairs.groupby(["reference", "label"])["seed"].transform("size") > 1
    data = pd.concat([means.assign(kind="mean"), pairs[several].assign(kind="seed")], ignore_index=True)
    chosen = looks(["", *texts], "")  # black is the baseline's, at 0
    data["color"] = data["reference"].map({name: chosen[name].color for name in texts})
    data["marker"] = data["reference"].map({name: chosen[name].marker for name in texts})
    learners = means.groupby("reference")["label"].nunique()
    data["text"] = [
        texts[row["reference"]] + (f", {names[row['label']]}" if learners[row["reference"]] > 1 else "")
        for _, row in data.iterrows()
    ]
    return data.assign(panel=panel, connected=panel == "by examples seen")
