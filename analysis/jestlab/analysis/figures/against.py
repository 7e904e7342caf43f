"""Final scores against a config key: a point for each label, connected where labels differ in that key only.

`PRESETS` are the paper's figures of this kind. `against_reference` plots scores against those of references.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..configs import BATCH_SIZE, Configs, lookup
from ..curves import score_curves
from ..efforts import EFFORTS, WORDS
from ..errors import NotYet
from ..frames import Frames
from ..sheet import Sheet
from . import captions
from .axes import LOG_FROM, beside, count_axis, draw_band, draw_intervals, draw_seeds, value_axis
from .panels import finish, panels, titled, write_ticks
from .plot import Plot, Texts, difference_axis, looks_of, mean_intervals, score_axis, seeds_of, title
from .style import DOTTED, GRAY, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TICKS = 8  # values that each get a tick
_EQUAL = 1.02  # ratio up to which costs count as equal
_MOST_LINES = 40  # if there are more, as in a union, only those that vary the key are shown


@dataclass(frozen=True)
class Axis:
    """Config keys by which a figure compares runs.

    Attributes:
        key: Key on the horizontal axis, or an effort.
        by: Keys whose values are lines. A line is split by run where two points would coincide. Empty: a line
            for each run.
        split: Key whose values are panels; None for one panel. A run without a value is in all panels.
        label: Label of the horizontal axis; empty for the key's display name.
        gain: Whether a second panel shows the difference from the baseline's line at the same x and seed.
    """

    key: str
    by: tuple[str, ...] = ("selection.rule",)
    split: str | None = None
    label: str = ""
    gain: bool = False


PRESETS = {
    "filtering_ratio": Axis(
        "selection.filtering_ratio", split="selection.criterion", label="filtering ratio f"
    ),
    "approximation_share": Axis(
        "approximation.share",
        split="approximation.method",
        label="λ, share of the batch trained on approximately",
    ),
    "batch_size": Axis(BATCH_SIZE, label="batch size b", gain=True),
    "loss_comparison": Axis("loss", ("selection.rule", "selection.filtering_ratio"), gain=True),
}
"""Name of a figure of the paper (Figure 3; Figure 4, right; appendix) → its axis."""


def against(frames: Frames, axis: Axis, baseline: str | None = None, name: str = "") -> Plot:
    """Plot the final score against a config key.

    Args:
        axis: The keys.
        baseline: Label or run; by default the study's baseline. A baseline without a value of the key is a
            dotted line.
        name: Name of the plot; by default "against_" and the key.

    Returns:
        The plot. Its data: rows of kind "mean" (panel, line, label, x, y, low, high, seeds, planned), "seed"
        (one run), and "level" (the baseline). A line has the look of its first label.

    Raises:
        ValueError: No run varies the key or has completed, or the baseline is unknown.
    """
    compared = frames.baseline(baseline)
    places, finals = placed(frames, axis, compared), final_scores(frames)
    points = places.merge(finals, on="label").assign(y_label=score_axis(frames))
    if points.empty:
        raise NotYet(
            f"no run of experiment {frames.experiment!r} that varies {axis.key} has completed with a score: "
            f"{frames.progress()}"
        )
    first = dict(zip(places["line"][::-1], places["label"][::-1], strict=True))  # label of each line
    base = places.set_index("label")["line"].to_dict().get(compared, frames.shown[compared])
    more = []
    varies = points.groupby("line")["x"].transform("nunique") > 1
    if points["line"].nunique() > _MOST_LINES and varies.any():
        is_shown = varies | points["line"].eq(base)
        more.append(f"Not shown: {points.loc[~is_shown, 'line'].nunique()} lines with a single position.")
        points = points[is_shown]
    if axis.gain:
        if len(gains := _gains(frames, points, base)):
            points = pd.concat([points.assign(panel="score"), gains])
            more.append(f"Second panel: difference from {base} at the same position and with the same seed.")
    elif base not in first:
        level = finals[finals["label"] == compared].assign(line=base, kind="level")
        points = pd.concat([points, level.merge(points[["panel", "y_label"]].drop_duplicates(), how="cross")])
        more.append(f"Dotted: {base}.")
    costs = frames.costs.loc[frames.costs["label"].isin(points["label"]), "learner_flops"]
    ratio = costs.max() / costs[costs > 0].min()
    if axis.key == "approximation.share" and ratio > _EQUAL:
        more.append(f"The FLOPs of training differ by up to {ratio:.2f}×: costs are not equal.")
    if others := _others(Configs(frames), places, axis.key):
        more.append(f"Also different along a line: {', '.join(others)}.")
    data = _summarized(points)
    data["title"] = [frames.names.value(axis.split, panel) if axis.split else "" for panel in data["panel"]]
    efforts = {str(effort): words.axis for effort, words in WORDS.items()}
    data["x_label"] = x_label = axis.label or frames.names.key(axis.key) or efforts.get(axis.key, axis.key)
    data["text"], look = data["line"], looks_of(frames)
    data = with_looks(data, [look[compared if line == base else first[line]] for line in data["line"]])
    labels, means = dict.fromkeys(places["label"]), data[data["kind"] == "mean"]
    words = [captions.score(frames), "Each point is a separate run, at its end."]
    words += captions.seeds(means["seeds"].max())
    if (means["seeds"] < means["planned"]).any():
        words.append("Open markers: not all seeds have completed.")
    words += [*captions.lost(frames, [*labels, compared]), *captions.unfinished(frames, labels), *more]
    texts = Texts(title(frames), " ".join(words), x_label, score_axis(frames), frames.score)
    return Plot(name or f"against_{axis.key.replace('.', '_')}", data, texts, _draw_points)


def against_reference(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot each learner against the reference that it selects with, both relative to the baseline.

    Gray lines connect references that were trained on the same data, in the order of examples seen.

    Args:
        baseline: Label or run that is 0 on both axes; by default the study's baseline.

    Returns:
        The plot, with the data of `against` and a column for the reference's label. x is the reference's
        score and y the learner's, both minus the baseline's with the same seed. Rows of kind "path" are
        connected.

    Raises:
        ValueError: Fewer than two references have completed with their learners, or the baseline is unknown
            or has not completed.
    """
    compared, configs = frames.baseline(baseline), Configs(frames)
    pairs = _pairs(frames, configs, compared)
    if (count := pairs["reference"].nunique()) < 2:
        raise NotYet(
            f"experiment {frames.experiment!r} has {count} references that completed with their learners; a "
            f"comparison needs two: {frames.progress()}"
        )
    chosen = looks_of(frames)
    points = _summarized(pairs.assign(panel="", line=pairs["label"], planned=1))
    points = with_looks(points, map(chosen.__getitem__, points["label"]))
    means = points[points["kind"] == "mean"]
    reference_configs = [configs.by_label[label] for label in means["reference"]]
    trained = [_json(lookup(config, "data.filter")) for config in reference_configs]
    seen = [lookup(config, "schedule.examples_seen") or 0 for config in reference_configs]
    paths = means.assign(kind="path", line=trained, seen=seen).sort_values("seen")
    zero = means.head(1).assign(kind="level", line="", label=compared, color=chosen[compared].color)
    zero[["x", "y", "low", "high"]] = 0.0
    x, y = (f"{whose}'s {difference_axis(frames, compared)}" for whose in ("reference", "learner"))
    data = pd.concat([points, paths, zero], ignore_index=True)
    data = data.assign(title="", x_label=x, y_label=y, text=data["label"].map(frames.shown))
    caption = [
        captions.score(frames),
        f"Each point: a learner, against the reference it selects with, both minus {frames.shown[compared]} "
        "with the same seed, each at the end of the run.",
        *captions.seeds(data["seeds"].max()),
        *captions.lost(frames, dict.fromkeys([compared, *pairs["reference"], *pairs["label"]])),
        "Gray: references trained on the same data." * (len(set(trained)) < len(trained)),
    ]
    words = Texts(title(frames), " ".join(filter(None, caption)), x, y)
    return Plot("against_reference", data, words, _draw_points)


def final_scores(frames: Frames) -> pd.DataFrame:
    """Return the finite scores of all completed runs, in the unit of the axis: label, seed, y."""
    factor, curves = frames.score.factor, score_curves(frames)
    finals = curves.loc[curves["final"] & (curves["score"].abs() < math.inf), ["label", "seed", "score"]]
    return finals.assign(y=factor * finals.pop("score")).reset_index(drop=True)


def placed(frames: Frames, axis: Axis, baseline: str) -> pd.DataFrame:
    """Return the position of each label on an axis.

    Args:
        axis: The keys that are compared.
        baseline: Label of the baseline. Other references are left out.

    Returns:
        One row per label and panel: panel, line (its name), label, x, tick (text of the value), and planned
        (number of seeds). Words have the positions 0, 1, 2, and so on.

    Raises:
        ValueError: The key has fewer than two values.
    """
    configs, apart, planned = Configs(frames), frames.apart_from(baseline), seeds_of(frames)
    values = {label: configs.get(label, axis.key) for label in frames.labels if label not in apart}
    if axis.key in EFFORTS and all(value is None for value in values.values()):
        curves = score_curves(frames)
        efforts = curves[curves["final"]].groupby("label")[axis.key].mean().dropna()
        values = {label: efforts.get(label) for label in values}
    values = {label: value for label, value in values.items() if value is not None}
    if len(set(map(_json, values.values()))) < 2:
        raise NotYet(f"no run of experiment {frames.experiment!r} varies {axis.key}")
    x = _positions(frames, axis.key, list(values.values()))
    own = {label: configs.get(label, axis.split) if axis.split else "" for label in values}
    everywhere = list(dict.fromkeys(str(panel) for panel in own.values() if panel is not None)) or [""]
    panel = [everywhere if panel is None else str(panel) for panel in own.values()]
    places = pd.DataFrame({"panel": panel, "label": list(values)}).explode("panel", ignore_index=True)
    places["x"], places["tick"] = zip(*(x[_json(values[label])] for label in places["label"]), strict=True)
    places["planned"] = [planned[label][1] for label in places["label"]]
    return places.assign(line=_lines(frames, places, configs, axis))


def _summarized(points: pd.DataFrame) -> pd.DataFrame:
    """Return a row of kind "mean" for each point, with its interval, and rows of kind "seed"."""
    if (count := points["line"].nunique()) > _MOST_LINES:
        raise NotYet(f"{count} lines are too many for one figure: choose some `runs`, or other keys as `by`")
    points = points.assign(kind=points.get("kind")).reset_index(drop=True)
    groups = points.groupby(["panel", "line", "label"], sort=False)
    means = groups.first().reset_index().drop(columns="seed")
    for column, low, high in (("x", "x_low", "x_high"), ("y", "low", "high")):
        spans = mean_intervals(points[column], groups.ngroup()).reindex(means.index)
        means[column], means[low], means[high] = spans["mean"], spans["low"], spans["high"]
    means["seeds"] = groups.size().array
    ordered = {key: pd.Categorical(means[key], points[key].unique()) for key in ("panel", "line")}
    means = means.loc[means.assign(**ordered).sort_values(["panel", "line", "x"], kind="stable").index]
    means["kind"] = means["kind"].fillna("mean")
    dots = points[(groups["y"].transform("size") > 1) & points["kind"].isna()].assign(kind="seed")
    return pd.concat([means, dots], ignore_index=True)


def with_looks(data: pd.DataFrame, looks: Iterable[Look]) -> pd.DataFrame:
    """Add the look of each row: color, marker, and dash."""
    return data.join(pd.DataFrame(list(looks), index=data.index).rename(columns={"line": "dash"}))


def _draw_points(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw means with intervals, connected along a line, a dot for each seed, laws, paths, and levels."""
    shown = [panel for _, panel in data.groupby("panel", sort=False)]
    figure, all_axes = panels(sheet, len(shown), sharey=data["y_label"].nunique() == 1)
    measured = data["kind"].eq("path").any()  # x is a score, not a value of a key
    for axes, panel in zip(all_axes, shown, strict=True):
        rows = {kind: panel[panel["kind"] == kind] for kind in ("mean", "seed", "level", "path", "law")}
        means, dots, y_label = rows["mean"], rows["seed"], panel["y_label"].iloc[0]
        axes.set(xlabel=panel["x_label"].iloc[0], ylabel=y_label)
        heights = [*means["low"], *means["high"], *dots["y"]]
        axes.update_datalim(list(zip([*means["x"], *means["x"], *dots["x"]], heights, strict=True)))
        lines = list(means.groupby("line", sort=False))
        for place, (name, line) in enumerate(lines):
            color, marker, dash, text = line[["color", "marker", "dash", "text"]].iloc[0]
            alone = measured or means["seeds"].max() <= 1 or len(rows["law"])
            moved = {} if alone else {"transform": beside(axes, place, len(lines))}
            style: dict[str, Any] = {"color": color, "marker": marker, "markersize": 5, **moved}
            axes.plot(line["x"], line["y"], linestyle=dash if len(line) > 1 else "none", label=text, **style)
            for x, y in line.loc[line["seeds"] < line["planned"], ["x", "y"]].to_numpy():
                axes.plot(x, y, markerfacecolor="white", **style)
            ends = (line["x_low"], line["x_high"]), (line["low"], line["high"])
            draw_intervals(axes, line["x"], line["y"], *ends, color, **moved)
            own = dots[dots["line"] == name]
            draw_seeds(axes, own["x"], own["y"], color, **moved)
        for _, law in rows["law"].groupby(["line", "dash"], sort=False):
            color, dash, text = law[["color", "dash", "text"]].iloc[0]
            draw_band(axes, law["x"], law["low"], law["high"], color)
            axes.plot(law["x"], law["y"], linestyle=dash, color=color, label=text)
        for _, path in rows["path"].groupby("line"):
            axes.plot(path["x"], path["y"], color=GRAY, linewidth=0.8, zorder=1)
        for level in rows["level"].to_dict("records"):
            color = level["color"]
            axes.axhline(level["y"], color=color, label=level["text"], **DOTTED)
            axes.axhspan(level["low"], level["high"], color=color, alpha=0.08, linewidth=0, zorder=0)
            if not math.isnan(level["x"]):
                axes.axvline(level["x"], color=color, **DOTTED)
        if len(rows["law"]):
            count_axis(axes, panel["x"], log=True)
        elif not measured:
            _tick(axes, means)
        heights = data.loc[data["y_label"] == y_label, "y"]  # of all panels that share the axis
        is_log, percent = texts.metric.scale == "log", texts.metric.suffix == "%"
        is_score = y_label == texts.y
        value_axis(axes, heights, log=is_log and is_score, percent=percent and is_score)
    titled(all_axes, [panel["title"].iloc[0] for panel in shown])
    return finish(figure, texts, sheet, named="below" if len(shown) > 1 or measured else "direct")


def _tick(axes: Axes, means: pd.DataFrame) -> None:
    """Write a tick at each value if there are few, or if they are equidistant, with the texts that fit."""
    values = means.drop_duplicates("tick").sort_values("x")
    x = values["x"]
    axes.margins(x=0.08)
    count_axis(axes, x, log=x.max() >= LOG_FROM * x.min())
    if len(x) <= _MOST_TICKS or list(x) == list(range(len(x))):
        write_ticks(axes, x, values["tick"])


def _gains(frames: Frames, points: pd.DataFrame, base: str) -> pd.DataFrame:
    """Return the panel of gains over the baseline's line at the same x and seed, where it has a point."""
    is_base = points["line"] == base
    bases = points[is_base].groupby(["x", "seed"])["y"].mean().rename("base").reset_index()
    pairs = points[~is_base].merge(bases, on=["x", "seed"])
    pairs["y"] -= pairs.pop("base")
    zero = points[is_base].head(len(pairs[:1])).assign(y=0.0, x=math.nan, kind="level")
    return pd.concat([pairs, zero]).assign(panel="gain", y_label=difference_axis(frames, base))


def _positions(frames: Frames, key: str, values: Sequence[Any]) -> dict[str, tuple[float, str]]:
    """Return position and text of each value; words, and wide ranges with 0, have equidistant positions."""
    are_words = any(isinstance(value, bool) or not isinstance(value, int | float) for value in values)
    distinct = {_json(value): value for value in (values if are_words else sorted(values))}
    least = min((value for value in values if value > 0), default=math.inf) if not are_words else 0
    is_spaced = are_words or (min(values) <= 0 and max(values) >= LOG_FROM * least)
    x = range(len(distinct)) if is_spaced else distinct.values()
    ticks = [frames.names.value(key, value) for value in distinct.values()]
    return dict(zip(distinct, zip(map(float, x), ticks, strict=True), strict=True))


def _lines(frames: Frames, places: pd.DataFrame, configs: Configs, axis: Axis) -> list[str]:
    """Name the line of each row by the axis's keys or by its run; add more keys where two points coincide."""
    names = frames.names

    def pair(key: str, value: Any) -> str:
        return f"{names.key(key) or key.rpartition('.')[2]}={names.value(key, value)}"

    def by_keys(label: str) -> str:
        values = ((key, value) for key in axis.by if (value := configs.get(label, key)) is not None)
        parts = [names.value(*each) if isinstance(each[1], str) else pair(*each) for each in values]
        return " ".join(parts) or names.shown[configs.runs[label]]

    def by_other_axes(label: str) -> str:
        others = [each for each in configs.points[label].items() if each[0] not in (axis.key, axis.split)]
        return " ".join([names.shown[configs.runs[label]], *starmap(pair, others)])

    rows = places.assign(line=places["label"].map(by_keys), run=places["label"].map(configs.runs))
    is_one = [rows.groupby(a)[b].transform("nunique") == 1 for a, b in (("line", "run"), ("run", "line"))]
    rows["line"] = rows["line"].where(~(is_one[0] & is_one[1]), rows["run"].map(names.shown))
    for longer_name in (by_other_axes, names.shown.__getitem__):
        ambiguous = rows.loc[rows.duplicated(["panel", "line", "x"]), "line"]
        rows["line"] = rows["line"].where(~rows["line"].isin(ambiguous), rows["label"].map(longer_name))
    return list(rows["line"])


def _others(configs: Configs, places: pd.DataFrame, key: str) -> list[str]:
    """Return the study's other axes on which labels of one line differ."""
    points = pd.DataFrame(list(map(configs.points.get, places["label"])), dtype=object).map(_json)
    counts = points.groupby([places["panel"], places["line"]]).nunique()
    return sorted(
        other for other in map(str, points) if counts[other].gt(1).any() and not other.endswith(key)
    )


def _pairs(frames: Frames, configs: Configs, baseline: str) -> pd.DataFrame:
    """Return one row per learner and seed: label, reference, seed, x, y, both minus the baseline's score."""
    finals = final_scores(frames).set_index(["label", "seed"])["y"].unstack("label")
    if baseline not in finals:
        raise NotYet(
            f"baseline {baseline!r} of {frames.experiment!r} has not completed with a score: "
            f"{frames.progress()}"
        )
    finals = finals[[label for label in frames.labels if label in finals]].sub(finals[baseline], axis=0)
    gains = finals.melt(value_name="y", ignore_index=False).dropna().reset_index()
    references = gains[["label", "seed", "y"]].rename(columns={"label": "reference", "y": "x"})
    gains["reference"] = [configs.reference(label) for label in gains["label"]]
    return gains.merge(references, on=["reference", "seed"])


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
