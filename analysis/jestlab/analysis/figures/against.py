"""Final scores against one choice: filtering ratio, share approximated, batch size, loss, or any config key.

Each point is a run of its own, at its end; a line connects the points that differ in that choice alone.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..configs import BATCH_SIZE, Configs
from ..curves import score_curves
from ..frames import Frames, NotYet
from .drawing import draw_line_panels
from .plot import (
    Plot,
    Texts,
    about_lost,
    about_unfinished,
    difference_axis,
    scale,
    score_axis,
    seeds,
    title,
    what_score_is,
)
from .style import looks

if TYPE_CHECKING:
    import pandas as pd

_SAME = 0.02  # costs that differ by no more than this share are called equal

_LETTERS = {"selection.filtering_ratio": "f = "}
"""Key → what is written before its value in the name of a line."""

_MEANT_BY = {BATCH_SIZE: ("schedule.batch_size",)}
"""Key → keys that mean the same."""

_SPEC_KEYS = {BATCH_SIZE: "the batch size (schedule.batch_size)"}
"""Key → what a user would vary."""


@dataclass(frozen=True)
class Axis:
    """Config keys that a figure compares by.

    Attributes:
        key: Key that scores are drawn against.
        by: Keys whose values make a line, in the order of its name.
        split: Key whose values make a panel; None for one panel. A run on which it has no effect is in all.
    """

    key: str
    by: tuple[str, ...]
    split: str | None = None


def filtering_ratio(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot the final score against the filtering ratio f: a panel a criterion, a line a rule (Figure 3).

    Args, Returns and Raises are those of `against`; the plot is named "filtering_ratio".
    """
    axis = Axis("selection.filtering_ratio", ("selection.rule",), split="selection.criterion")
    return against(frames, axis, baseline, name="filtering_ratio", x_label="filtering ratio f")


def approximation_share(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot the final score against λ, the share trained on approximately: a panel a method (Figure 4).

    The caption says whether the learners spend equal FLOPs, as in the paper. Args, Returns and Raises are
    those of `against`; the plot is named "approximation_share".
    """
    axis = Axis("approximation.share", ("selection.rule",), split="approximation.method")
    label = "λ, share of the batch trained on approximately"
    plot = against(frames, axis, baseline, name="approximation_share", x_label=label)
    return _with_sentence(plot, _about_learner_flops(frames, set(plot.data["label"])))


def batch_size(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot the final score, and its difference to the baseline's line, against the batch size b (appendix).

    Args, Returns and Raises are those of `against`; the plot is named "batch_size", its panels "score" and
    "gain": over the baseline's line at the same b and seed.
    """
    axis = Axis(BATCH_SIZE, ("selection.rule", "selection.criterion"))
    return against(frames, axis, baseline, name="batch_size", x_label="batch size b", gain="difference")


def loss_comparison(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot the final score by loss, and the relative improvement over the baseline with that loss (appendix).

    Args, Returns and Raises are those of `against`; the plot is named "loss_comparison", its panels "score"
    and "gain": over the baseline's line with the same loss and seed, in percent of its score.
    """
    axis = Axis("loss", ("selection.rule", "selection.filtering_ratio"))
    return against(frames, axis, baseline, name="loss_comparison", x_label="loss", gain="relative")


def against(
    frames: Frames,
    axis: Axis,
    baseline: str | None = None,
    *,
    name: str,
    x_label: str,
    gain: str | None = None,
) -> Plot:
    """Plot the final score against any key of the config, with lines and panels by other keys.

    Args:
        frames: Results of an experiment, from `frames.read`.
        axis: The keys.
        baseline: Label or run; by default the study's first non-reference run. It is a dotted level
            where it has no position on the axis, a black line where it has.
        name: Name of the plot.
        x_label: Label of the horizontal axis.
        gain: For a second panel with what the other lines gain over the baseline's at the same x and seed:
            "difference" in score, or "relative", in percent of the baseline's score. None for no such panel.

    Returns:
        The plot. Its data: rows of kind "mean" (panel, line, label, x, y, low, high, seeds, planned), "seed"
        (a run) and "level" (the baseline).

    Raises:
        ValueError: If no run varies the key or has completed, or there is no such baseline.
    """
    import pandas as pd

    compared = frames.baseline(baseline)
    labels = dict.fromkeys(placed(frames, axis, compared)["label"])
    found = points(frames, axis, compared)
    lines = dict(zip(found["label"], found["line"], strict=True))
    own = lines.get(compared, "")
    gained = _gains(found, own, gain == "relative") if gain else pd.DataFrame()
    if gain is None:
        parts = [_scored(found, "score"), _levels(frames, found, compared)]
    else:
        parts = [_scored(found.assign(panel="score"), "score")]
    if not gained.empty:
        zero = {"panel": "gain", "line": own, "label": compared, "kind": "level", "seeds": 1, "planned": 1}
        zero |= dict.fromkeys(("y", "low", "high"), 0.0)
        parts += [_scored(gained.assign(panel="gain"), "gain"), pd.DataFrame([zero])]
    styled = _styled(frames, pd.concat(parts, ignore_index=True), lines, compared)
    data = _positioned(frames, styled, axis, x_label)
    is_gain = data["panel"].eq("gain") & (gain is not None)
    data.loc[~(is_gain & (gain == "relative")), ["y", "low", "high"]] *= scale(frames)
    data["y_label"] = score_axis(frames)
    data.loc[is_gain, "y_label"] = (
        f"gain over {frames.shown[own]} (%)" if gain == "relative" else difference_axis(frames, own)
    )
    runs = list(dict.fromkeys(frames.runs["run"]))
    data["title"] = [
        (_named(frames, runs, axis.split, panel) or panel.replace("_", " ")) if axis.split else ""
        for panel in data["panel"]
    ]
    plot = Plot(name, data, _texts(frames, data, x_label, labels), draw_line_panels)
    if gained.empty:
        return plot
    same = f"Right: gain over {frames.shown[own]} with the same {x_label} and seed"
    return _with_sentence(plot, f"{same}, in percent of its score." if gain == "relative" else f"{same}.")


def final_scores(frames: Frames) -> pd.DataFrame:
    """Return the finite score of every run that has completed: label, seed, score, examples_seen, flops.

    Raises:
        ValueError: There is no score (`Frames.score`).
    """
    frames.score  # noqa: B018 — is there one?
    curves = score_curves(frames)
    finals = curves.loc[curves["final"], ["label", "seed", "score", "examples_seen", "flops"]]
    return finals[finals["score"].abs() < math.inf].reset_index(drop=True)


def placed(frames: Frames, axis: Axis, baseline: str) -> pd.DataFrame:
    """Find the position of each label of an experiment on an axis.

    Args:
        frames: Results of an experiment.
        axis: What is compared.
        baseline: Label that is compared with; other references are left out.

    Returns:
        One row a label for each panel that it is in: panel, line (its name), label, x (the key's value, any
        type), planned (number of seeds planned), and again (keys that differ along the line beside the axis's
        own, "" for none).

    Raises:
        ValueError: The key has fewer than two values among them.
    """
    import pandas as pd

    configs, apart = Configs(frames), frames.apart_from(baseline)
    x = {label: configs.get(label, axis.key) for label in frames.labels if label not in apart}
    shown = [label for label, value in x.items() if value is not None]
    if len({_hashable(x[label]) for label in shown}) < 2:
        raise ValueError(
            f"no run of experiment {frames.experiment!r} varies {_SPEC_KEYS.get(axis.key, axis.key)}"
        )
    panels = [configs.get(label, axis.split) if axis.split else "" for label in shown]
    known = list(dict.fromkeys(panel for panel in panels if panel is not None)) or [""]
    rows = [
        {"panel": str(each), "label": label, "x": x[label]}
        for label, panel in zip(shown, panels, strict=True)
        for each in (known if panel is None else [panel])
    ]
    positions = pd.DataFrame(rows)
    planned = {label: planned for label, (_, planned) in seeds(frames).items()}
    positions["planned"] = positions["label"].map(planned)
    positions["line"] = _line_names(frames, positions, configs, axis)
    positions["again"] = positions.groupby(["panel", "line"])["label"].transform(
        lambda labels: ", ".join(_varying(configs, list(labels), axis))
    )
    return positions


def points(frames: Frames, axis: Axis, baseline: str) -> pd.DataFrame:
    """Return the final scores of all runs with a position on an axis.

    Args:
        frames: Results of an experiment.
        axis: What is compared.
        baseline: Label that is compared with.

    Returns:
        As `placed`, one row a run that has completed with a score, with seed, score, examples_seen and flops.

    Raises:
        ValueError: The key has fewer than two values, or no such run has completed.
    """
    found = placed(frames, axis, baseline).merge(final_scores(frames), on="label")
    if found.empty:
        raise NotYet(
            f"no run of experiment {frames.experiment!r} that varies {axis.key} has completed with a score: "
            f"{frames.progress()}"
        )
    return found


def value_text(value: Any) -> str:
    """Write a value of a config for people: "easy reference", "0.9"."""
    if isinstance(value, str):
        return value.replace("_", " ")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _means(found: pd.DataFrame, value: str) -> pd.DataFrame:
    """One row a point: the mean over its seeds as y, with low and high, in the order of lines and of x."""
    keys = ["panel", "line", "label"]
    of_point = found.dropna(subset=[value]).groupby(keys, sort=False)
    table = of_point[["x", "planned", "again"]].first()
    table[["y", "low", "high", "seeds"]] = of_point[value].agg(["mean", "min", "max", "size"])
    table = table.reset_index()
    # x may be words, which stay in the order of the study, as panels and lines do.
    x_sorted = table if table["x"].map(lambda x: isinstance(x, str)).any() else table.sort_values("x")
    order = {name: {value: i for i, value in enumerate(dict.fromkeys(found[name]))} for name in keys[:2]}
    return x_sorted.sort_values(
        keys[:2], key=lambda column: column.map(order[str(column.name)]), kind="stable", ignore_index=True
    )


def _gains(found: pd.DataFrame, baseline: str, relative: bool) -> pd.DataFrame:
    """Rows of the other lines with what they gain over the baseline's line at the same x and seed, in percent
    of its score if `relative`; without rows that have no such counterpart."""
    keys = ["panel", "x", "seed"]
    of_baseline = found["line"] == baseline
    base = found[of_baseline].groupby(keys)["score"].mean().rename("base").reset_index()
    paired = found[~of_baseline].merge(base, on=keys)
    difference = paired["score"] - paired["base"]
    return paired.assign(gain=100 * difference / paired["base"] if relative else difference)


def _scored(found: pd.DataFrame, value: str) -> pd.DataFrame:
    """Rows of kind "mean" and "seed"."""
    import pandas as pd

    each = found.rename(columns={value: "y"})[["panel", "line", "label", "seed", "x", "y", "planned"]]
    several = each.groupby(["panel", "line", "label"])["y"].transform("count") > 1
    return pd.concat([_means(found, value).assign(kind="mean"), each[several].assign(kind="seed")])


def _levels(frames: Frames, found: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The baseline's final score in every panel, where it has no position on the axis."""
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


def _styled(frames: Frames, data: pd.DataFrame, lines: dict[str, str], baseline: str) -> pd.DataFrame:
    """Add how each line looks; the baseline's is black."""
    chosen = looks(list(dict.fromkeys(data["line"])), lines.get(baseline, baseline))
    for column, part in (("color", "color"), ("marker", "marker"), ("dash", "line")):
        data[column] = data["line"].map({line: getattr(look, part) for line, look in chosen.items()})
    data["text"] = data["line"].map(frames.shown)  # a line may be named by the baseline's label
    return data


def _positioned(frames: Frames, data: pd.DataFrame, axis: Axis, x_label: str) -> pd.DataFrame:
    """Make x a number: words are at 0, 1, … and become the ticks."""
    data["x_label"] = x_label
    values = data["x"].dropna()
    data["tick"] = None
    if values.map(lambda value: isinstance(value, str)).any():
        positions = {value: i for i, value in enumerate(dict.fromkeys(values))}
        runs = list(dict.fromkeys(frames.runs["run"]))
        named = {value: _named(frames, runs, axis.key, value) or value_text(value) for value in positions}
        data["tick"] = data["x"].map(named, na_action="ignore")
        data["x"] = data["x"].map(positions)
    data["x"] = data["x"].astype(float)
    return data


def _line_names(frames: Frames, positions: pd.DataFrame, configs: Configs, axis: Axis) -> list[str]:
    """Name the line of each row by the axis's keys, and by more where two points would coincide."""
    labels, panels = list(positions["label"]), list(positions["panel"])
    own = {axis.key, axis.split, *axis.by}

    # The first key always names a line; a further one only where it tells lines apart.
    telling = [
        key
        for place, key in enumerate(axis.by)
        if place == 0 or len({_hashable(value) for label in labels if (value := configs.get(label, key))}) > 1
    ]

    # What the first key says is the name of a run, if all that it says it of are of that run.
    runs_with: dict[str, set[str]] = {}
    for label in labels:
        runs_with.setdefault(_hashable(configs.get(label, axis.by[0])), set()).add(configs.run(label))

    def text(label: str, key: str, value: Any) -> str:
        run = configs.run(label)
        if (said := frames.names.value(key, value, [run])) is not None:
            name = frames.names.key(key)
            return f"{name} = {said}" if name else said
        alone = key == axis.by[0] and runs_with[_hashable(value)] == {run}
        if alone and run in frames.names.named:
            return frames.shown[run]
        return _LETTERS.get(key, "") + value_text(value)

    def by_keys(label: str) -> str:
        values = {key: value for key in telling if (value := configs.get(label, key)) is not None}
        named = ", ".join(text(label, key, value) for key, value in values.items())
        return named or frames.shown[configs.run(label)]

    def by_other_axes(label: str) -> str:
        others = {name: value for name, value in configs.point(label).items() if name not in own}
        return ", ".join(f"{name.rpartition('.')[2]}={value_text(value)}" for name, value in others.items())

    names = [by_keys(label) for label in labels]
    for more in (by_other_axes, configs.run):
        counts = Counter(zip(panels, names, map(_hashable, positions["x"]), strict=True))
        crowded = {name for (_, name, _), count in counts.items() if count > 1}
        names = [
            ", ".join(filter(None, (name, more(label)))) if name in crowded else name
            for name, label in zip(names, labels, strict=True)
        ]
    return names


def _varying(configs: Configs, labels: Sequence[str], axis: Axis) -> list[str]:
    """Axes of the study, other than the one drawn, on which labels of one line differ."""
    own = {axis.key, *_MEANT_BY.get(axis.key, ())}
    names = dict.fromkeys(name for label in labels for name in configs.point(label) if name not in own)
    return [
        name for name in names if len({_hashable(configs.point(label).get(name)) for label in labels}) > 1
    ]


def _named(frames: Frames, runs: Iterable[str], key: str, value: Any) -> str | None:
    """What the axes of any run show for a value of a key; None if they do not say."""
    return frames.names.value(key, value, runs)


def _hashable(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _texts(frames: Frames, data: pd.DataFrame, x_label: str, labels: Iterable[str]) -> Texts:
    """Title and caption; the labels are those that would be shown if all had completed."""
    measured = data[data["kind"] == "mean"]
    sentences = [what_score_is(frames), "Each point is a separate run, at its end."]
    if measured["seeds"].max() > 1:
        sentences.append("Lines: mean over seeds; bars: lowest to highest seed; dots: seeds.")
    if (measured["seeds"] < measured["planned"]).any():
        sentences.append("Open: not all seeds have completed.")
    elif measured["seeds"].max() == 1:
        sentences.append("One seed each.")
    levels = data[(data["kind"] == "level") & (data["y"] != 0)]
    if not levels.empty:
        sentences.append(f"Dotted: {frames.shown[levels['line'].iloc[0]]}.")
    sentences += about_lost(frames, dict.fromkeys([*labels, *levels["label"]]))
    sentences += about_unfinished(frames, labels)
    again = sorted({key for keys in measured["again"] for key in keys.split(", ") if key})
    if again:
        sentences.append(f"Also different along a line: {', '.join(again)}.")
    return Texts(title(frames), " ".join(sentences), x_label, score_axis(frames), frames.score)


def _with_sentence(plot: Plot, sentence: str) -> Plot:
    return replace(plot, texts=replace(plot.texts, caption=f"{plot.texts.caption} {sentence}"))


def _about_learner_flops(frames: Frames, labels: set[str]) -> str:
    """Say whether the learners that are compared have been trained at equal cost."""
    costs = frames.costs[frames.costs["label"].isin(labels)]["learner_flops"]
    costs = costs[costs > 0]
    if costs.empty:
        return ""
    ratio = float(costs.max() / costs.min())
    if ratio <= 1 + _SAME:
        return f"All learners are trained with equal FLOPs, to {max(0.1, 100 * (ratio - 1)):.1f}%."
    return f"The learners' FLOPs differ by up to {ratio:.2f}×: this is not a comparison at equal cost."
