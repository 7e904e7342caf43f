"""Final scores against a key of the config: the data behind half of the paper's figures.

Each point is a run of its own, at its end; a line connects the points that differ in that key alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..configs import BATCH_SIZE, Configs
from ..curves import score_curves
from ..frames import Frames
from .dressing import seeds

if TYPE_CHECKING:
    import pandas as pd


_LETTERS = {"selection.filtering_ratio": "f = "}
"""What makes a number in a line's name plain."""

_MEANT_BY = {BATCH_SIZE: ("schedule.batch_size",)}
"""Keys that say the same as another."""

_SPEC_KEYS = {BATCH_SIZE: "the batch size (schedule.batch_size)"}
"""What a user would vary."""


@dataclass(frozen=True)
class Axis:
    """What a score is drawn against.

    Attributes:
        key: Of the config.
        by: Keys whose values make a line, in the order of its name.
        split: Key whose values make a panel; None for one panel. A run on which it has no effect is in all.
    """

    key: str
    by: tuple[str, ...]
    split: str | None = None


def final_scores(frames: Frames) -> pd.DataFrame:
    """The score of every run that has completed with one: label, seed, score, examples_seen, flops."""
    curves = score_curves(frames)
    finals = curves.loc[curves["final"], ["label", "seed", "score", "examples_seen", "flops"]]
    return finals.dropna(subset=["score"]).reset_index(drop=True)


def placed(frames: Frames, axis: Axis, baseline: str) -> pd.DataFrame:
    """Where each label of an experiment stands on an axis.

    Args:
        frames: Results of an experiment.
        axis: What is compared.
        baseline: Label that is compared with; a reference otherwise has no place here.

    Returns:
        One row a label for each panel that it is in: panel, line (its name), label, x (the key's value, any
        type), planned (how many seeds there are to be), and again (keys that differ along the line beside
        the axis's own, "" for none).

    Raises:
        ValueError: The key has fewer than two values among them.
    """
    import pandas as pd

    configs, apart = Configs(frames), frames.apart_from(baseline)
    x = {label: configs.get(label, axis.key) for label in frames.labels if label not in apart}
    standing = [label for label, value in x.items() if value is not None]
    if len({_hashable(x[label]) for label in standing}) < 2:
        raise ValueError(
            f"no run of experiment {frames.experiment!r} varies {_SPEC_KEYS.get(axis.key, axis.key)}"
        )
    panels = [configs.get(label, axis.split) if axis.split else "" for label in standing]
    known = list(dict.fromkeys(panel for panel in panels if panel is not None)) or [""]
    rows = [
        {"panel": str(each), "label": label, "x": x[label]}
        for label, panel in zip(standing, panels, strict=True)
        for each in (known if panel is None else [panel])
    ]
    places = pd.DataFrame(rows)
    places["planned"] = places["label"].map({label: planned for label, (_, planned) in seeds(frames).items()})
    places["line"] = _lines(places, configs, axis)
    places["again"] = places.groupby(["panel", "line"])["label"].transform(
        lambda labels: ", ".join(_varying(configs, list(labels), axis))
    )
    return places


def points(frames: Frames, axis: Axis, baseline: str) -> pd.DataFrame:
    """The final scores of all runs that stand on an axis.

    Args:
        frames: Results of an experiment.
        axis: What is compared.
        baseline: Label that is compared with.

    Returns:
        As `placed`, one row a run that has completed with a score, with seed, score, examples_seen and flops.

    Raises:
        ValueError: The key has fewer than two values, or nothing of it has completed.
    """
    found = placed(frames, axis, baseline).merge(final_scores(frames), on="label")
    if found.empty:
        raise ValueError(
            f"no run of experiment {frames.experiment!r} that varies {axis.key} has completed with a score: "
            f"{frames.progress()}"
        )
    return found


def means(found: pd.DataFrame, value: str = "score") -> pd.DataFrame:
    """One row a point: the mean over its seeds, with their ends.

    Args:
        found: From `points`.
        value: The column that is averaged.

    Returns:
        panel, line, label, x, y, low, high, seeds, planned, again; in the order of lines and of x.
    """
    keys = ["panel", "line", "label"]
    of_point = found.dropna(subset=[value]).groupby(keys, sort=False)
    table = of_point[["x", "planned", "again"]].first()
    table[["y", "low", "high", "seeds"]] = of_point[value].agg(["mean", "min", "max", "size"])
    table = table.reset_index()
    # x may be words, which stay in the order of the study, as panels and lines do.
    x_sorted = table if table["x"].map(lambda x: isinstance(x, str)).any() else table.sort_values("x")
    places = {name: {value: i for i, value in enumerate(dict.fromkeys(found[name]))} for name in keys[:2]}
    return x_sorted.sort_values(
        keys[:2], key=lambda column: column.map(places[str(column.name)]), kind="stable", ignore_index=True
    )


def gains(found: pd.DataFrame, is_baseline: Callable[[str], bool], relative: bool = False) -> pd.DataFrame:
    """Each run's score less that of the baseline line with the same x and seed.

    Args:
        found: From `points`.
        is_baseline: Of a line's name.
        relative: Over the baseline's score, in percent.

    Returns:
        The rows of the other lines that have such a counterpart, with a column gain.
    """
    keys = ["panel", "x", "seed"]
    of_baseline = found["line"].map(is_baseline)
    base = found[of_baseline].groupby(keys)["score"].mean().rename("base").reset_index()
    paired = found[~of_baseline].merge(base, on=keys)
    difference = paired["score"] - paired["base"]
    return paired.assign(gain=100 * difference / paired["base"] if relative else difference)


def _lines(places: pd.DataFrame, configs: Configs, axis: Axis) -> list[str]:
    """A name of the line for each row: by the axis's keys, and by more where two points would coincide."""
    labels, panels = list(places["label"]), list(places["panel"])
    own = {axis.key, axis.split, *axis.by}

    # The first key always names a line; a further one where it tells lines apart.
    telling = [
        key
        for place, key in enumerate(axis.by)
        if place == 0 or len({_hashable(value) for label in labels if (value := configs.get(label, key))}) > 1
    ]

    def by_keys(label: str) -> str:
        values = {key: value for key in telling if (value := configs.get(label, key)) is not None}
        return ", ".join(_LETTERS.get(key, "") + said(value) for key, value in values.items()) or configs.run(
            label
        )

    def by_other_axes(label: str) -> str:
        others = {name: value for name, value in configs.point(label).items() if name not in own}
        return ", ".join(f"{name.rpartition('.')[2]}={said(value)}" for name, value in others.items())

    names = [by_keys(label) for label in labels]
    for more in (by_other_axes, configs.run):
        points = Counter(zip(panels, names, map(_hashable, places["x"]), strict=True))
        crowded = {name for (_, name, _), count in points.items() if count > 1}
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


def said(value: Any) -> str:
    """A value of a config as a person reads it."""
    return (
        value.replace("_", " ")
        if isinstance(value, str)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _hashable(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
