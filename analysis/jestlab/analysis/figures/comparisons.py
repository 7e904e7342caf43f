"""Figures of final scores against one choice: how much is filtered, approximated or trained on at a time, and
by which loss. All of them are `against.points`, drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..configs import BATCH_SIZE
from ..frames import Frames
from ..plots import Plot, Texts
from ..style import looks
from .against import Axis, final_scores, gains, means, placed, points, said
from .dressing import about_unfinished, difference_axis, scale, score_axis, title, what_score_is
from .line_panels import draw_line_panels

if TYPE_CHECKING:
    import pandas as pd

_SAME = 0.02  # costs that differ by no more than this share are called equal


def filtering_ratio(frames: Frames, baseline: str | None = None) -> Plot:
    """Final score against the filtering ratio f: a panel a criterion, a line a rule (paper, Figure 3).

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run whose final score is a dotted level; by default the study's first run that is
            no reference.

    Returns:
        The plot, named "filtering_ratio". Its data: rows of kind "mean" (panel, line, label, x, y, low, high,
        seeds, planned), "seed" (a run) and "level" (the baseline).

    Raises:
        ValueError: If no run varies the ratio or has completed, or there is no such baseline.
    """
    axis = Axis("selection.filtering_ratio", ("selection.rule",), split="selection.criterion")
    return against(frames, axis, baseline, name="filtering_ratio", x_label="filtering ratio f")


def approximation_share(frames: Frames, baseline: str | None = None) -> Plot:
    """Final score against λ, the share trained on approximately: a panel a method, a line a rule (Figure 4).

    Whether the learners spend equal FLOPs, as in the paper, is in the caption.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run whose line is black; by default the study's first run that is no reference.

    Returns:
        The plot, named "approximation_share", with data as of `filtering_ratio`.

    Raises:
        ValueError: If no run varies the share or has completed, or there is no such baseline.
    """
    axis = Axis("approximation.share", ("selection.rule",), split="approximation.method")
    label = "λ, share of the batch trained on approximately"
    plot = against(frames, axis, baseline, name="approximation_share", x_label=label)
    return _with_sentence(plot, _about_learner_flops(frames, set(plot.data["label"])))


def batch_size(frames: Frames, baseline: str | None = None) -> Plot:
    """Final score, and its difference to the baseline's line, against the batch size b (paper, appendix).

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run whose line the others are compared with, at each b and seed; by default the
            study's first run that is no reference.

    Returns:
        The plot, named "batch_size", with data as of `filtering_ratio`, panels "score" and "gain".

    Raises:
        ValueError: If no run varies the batch size or has completed, or there is no such baseline.
    """
    axis = Axis(BATCH_SIZE, ("selection.rule", "selection.criterion"))
    return _with_gains(frames, axis, baseline, name="batch_size", x_label="batch size b", relative=False)


def loss_comparison(frames: Frames, baseline: str | None = None) -> Plot:
    """Final score by loss, and the relative improvement over the baseline with the same loss (appendix).

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run whose line the others are compared with, for each loss and seed; by default the
            study's first run that is no reference.

    Returns:
        The plot, named "loss_comparison", with data as of `filtering_ratio`, panels "score" and "gain".

    Raises:
        ValueError: If no run varies the loss or has completed, or there is no such baseline.
    """
    axis = Axis("loss", ("selection.rule", "selection.filtering_ratio"))
    return _with_gains(frames, axis, baseline, name="loss_comparison", x_label="loss", relative=True)


def against(frames: Frames, axis: Axis, baseline: str | None = None, *, name: str, x_label: str) -> Plot:
    """Final score against any key of the config, lines and panels by other keys.

    Args:
        frames: Results of an experiment, from `frames.read`.
        axis: Which keys.
        baseline: Label or run; a dotted level where it has no place on the axis, a black line where it has.
        name: Of the plot.
        x_label: Of the horizontal axis.

    Returns:
        The plot, with data as of `filtering_ratio`.

    Raises:
        ValueError: If no run varies the key or has completed, or there is no such baseline.
    """
    import pandas as pd

    compared = frames.baseline(baseline)
    labels = dict.fromkeys(placed(frames, axis, compared)["label"])
    found = points(frames, axis, compared)
    lines = _lines(found, compared)
    data = pd.concat([_scored(found, "score"), _levels(frames, found, compared)], ignore_index=True)
    data = _placed(_styled(data, lines, compared), x_label)
    data[["y", "low", "high"]] *= scale(frames)
    data["y_label"] = score_axis(frames)
    data["title"] = [panel.replace("_", " ") if axis.split else "" for panel in data["panel"]]
    return Plot(name, data, _texts(frames, data, x_label, labels), draw_line_panels)


def _with_gains(
    frames: Frames, axis: Axis, baseline: str | None, *, name: str, x_label: str, relative: bool
) -> Plot:
    """Two panels: scores, and what the other lines gain over the baseline's."""
    import pandas as pd

    compared = frames.baseline(baseline)
    labels = dict.fromkeys(placed(frames, axis, compared)["label"])
    found = points(frames, axis, compared)
    lines = _lines(found, compared)
    own = lines.get(compared, "")
    gained = gains(found, lambda line: line == own, relative)
    parts = [_scored(found.assign(panel="score"), "score")]
    if not gained.empty:
        parts.append(_scored(gained.assign(panel="gain"), "gain"))
        level = {"panel": "gain", "line": own, "label": compared, "kind": "level", "seeds": 1, "planned": 1}
        parts.append(pd.DataFrame([level | dict.fromkeys(("y", "low", "high"), 0.0)]))
    data = _placed(_styled(pd.concat(parts, ignore_index=True), lines, compared), x_label)
    scaled = (data["panel"] == "score") | (not relative)
    data.loc[scaled, ["y", "low", "high"]] *= scale(frames)
    gain = f"gain over {own} (%)" if relative else difference_axis(frames, own)
    data["y_label"] = data["panel"].map({"score": score_axis(frames), "gain": gain})
    data["title"] = ""
    plot = Plot(name, data, _texts(frames, data, x_label, labels), draw_line_panels)
    if gained.empty:
        return plot
    same = f"Right: over {own} with the same {x_label} and seed"
    return _with_sentence(plot, f"{same}, relative to its score." if relative else f"{same}.")


def _lines(found: pd.DataFrame, baseline: str) -> dict[str, str]:
    """Label → line; the baseline's own, where it has a place."""
    return dict(zip(found["label"], found["line"], strict=True))


def _scored(found: pd.DataFrame, value: str) -> pd.DataFrame:
    """Rows of kind "mean" and "seed"."""
    import pandas as pd

    each = found.rename(columns={value: "y"})[["panel", "line", "label", "seed", "x", "y", "planned"]]
    several = each.groupby(["panel", "line", "label"])["y"].transform("count") > 1
    return pd.concat([means(found, value).assign(kind="mean"), each[several].assign(kind="seed")])


def _levels(frames: Frames, found: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The baseline's final score in every panel, where it has no place on the axis."""
    import pandas as pd

    finals = final_scores(frames)
    of_baseline = finals.loc[finals["label"] == baseline, "score"]
    if baseline in set(found["label"]) or of_baseline.empty:
        return pd.DataFrame()
    planned = int((frames.runs["label"] == baseline).sum())
    row: dict[str, Any] = {"line": baseline, "label": baseline, "kind": "level", "planned": planned}
    row |= {"y": of_baseline.mean(), "low": of_baseline.min(), "high": of_baseline.max()}
    row |= {"seeds": len(of_baseline)}
    return pd.DataFrame([row | {"panel": panel} for panel in dict.fromkeys(found["panel"])])


def _styled(data: pd.DataFrame, lines: dict[str, str], baseline: str) -> pd.DataFrame:
    """With how each line looks: the baseline's black."""
    chosen = looks(list(dict.fromkeys(data["line"])), lines.get(baseline, baseline))
    for part in ("colour", "marker"):
        data[part] = data["line"].map({line: getattr(look, part) for line, look in chosen.items()})
    data["dash"] = data["line"].map({line: look.line for line, look in chosen.items()})
    data["text"] = data["line"]
    return data


def _placed(data: pd.DataFrame, x_label: str) -> pd.DataFrame:
    """With x as numbers: words stand at 0, 1, … and are the ticks."""
    data["x_label"] = x_label
    values = data["x"].dropna()
    is_word = values.map(lambda value: isinstance(value, str)).any()
    data["tick"] = None
    if is_word:
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        data["tick"] = data["x"].map(said, na_action="ignore")
        data["x"] = data["x"].map(places)
    data["x"] = data["x"].astype(float)
    return data


def _texts(frames: Frames, data: pd.DataFrame, x_label: str, labels: Iterable[str]) -> Texts:
    """What all of them say; the labels are those that would be shown."""
    measured = data[data["kind"] == "mean"]
    sentences = [what_score_is(frames), "Each point is a run of its own, at its end."]
    if measured["seeds"].max() > 1:
        sentences.append("Lines: mean over seeds; bars: lowest to highest seed; dots: seeds.")
    if (measured["seeds"] < measured["planned"]).any():
        sentences.append("Open: not all seeds have completed.")
    elif measured["seeds"].max() == 1:
        sentences.append("One seed each.")
    levels = data[(data["kind"] == "level") & (data["y"] != 0)]
    if not levels.empty:
        sentences.append(f"Dotted: {levels['line'].iloc[0]}.")
    sentences += about_unfinished(frames, labels)
    again = sorted({key for keys in measured["again"] for key in keys.split(", ") if key})
    if again:
        sentences.append(
            f"Along a line {' and '.join(again)} {'differ' if len(again) > 1 else 'differs'}, too."
        )
    return Texts(title(frames), " ".join(sentences), x_label, score_axis(frames))


def _with_sentence(plot: Plot, sentence: str) -> Plot:
    return replace(plot, texts=replace(plot.texts, caption=f"{plot.texts.caption} {sentence}"))


def _about_learner_flops(frames: Frames, labels: set[str]) -> str:
    """Whether the learners that are compared have been trained at equal cost."""
    costs = frames.costs[frames.costs["label"].isin(labels)]["learner_flops"]
    costs = costs[costs > 0]
    if costs.empty:
        return ""
    ratio = float(costs.max() / costs.min())
    if ratio <= 1 + _SAME:
        return f"All learners are trained with equal FLOPs, to {max(0.1, 100 * (ratio - 1)):.1f}%."
    return f"The learners' FLOPs differ by up to {ratio:.2f}×: this is no comparison at equal cost."
