"""Labels, which identify runs in the store, and display names, which tables and figures show.

A label is a run's name with its values on the axes: "joint filtering_ratio=0.5". A spec can set a run's
`label`, and an axis's `labels` for its keys and their values. Display names are read from the spec in the
store. They are not part of a run's identity.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

NAME = "name"
"""The entry of an axis's `labels` that names the key itself; the other entries name its values."""

Point = Mapping[str, Any]
"""A run's values on its axes: dotted key → value."""

Texts = Mapping[str, Mapping[str, str]]
"""Dotted key of an axis → its display name, under `NAME`, and those of its values, by `value_text`."""


def value_text(value: Any) -> str:
    """Format a value for a label: strings unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Map each dotted key to its shortest ending that no other key shares."""
    endings = {key: [key.split(".", n)[-1] for n in range(key.count("."), -1, -1)] for key in keys}
    uses = Counter(ending for each in endings.values() for ending in each)
    return {key: next((e for e in each if uses[e] == 1), key) for key, each in endings.items()}


def compose(run: str, point: Point, short: Mapping[str, str], texts: Texts | None = None) -> str:
    """Compose the name of a run at a point.

    Args:
        run: The name or display name of the run; empty for the values alone.
        point: Its values on the axes.
        short: Short names of the axes' keys, from `short_names`.
        texts: Display names of keys and values; None for the run's label.
    """
    parts = [run] if run else []
    for key, value in point.items():
        given, text = (texts or {}).get(key, {}), value_text(value)
        name = given.get(NAME, short[key])
        parts.append(f"{name}={given.get(text, text)}" if name else given.get(text, text))
    return " ".join(parts)


class Shown(dict[str, str]):
    """Map labels and names of runs to display names. An unknown name is shown unchanged."""

    def __missing__(self, name: str) -> str:
        return name


class Names:
    """The names of an experiment's runs.

    Attributes:
        shown: Label, or name of a run → display name.
        named: Names of the runs whose display name the spec sets.
    """

    def __init__(self, spec: Mapping[str, Any], rows: Iterable[tuple[str, str, Point]]) -> None:
        """Compose the display names.

        Args:
            spec: The study, as stored. A union contains its studies.
            rows: Run, label, and point of each label.
        """
        self.shown = Shown()
        self.named: set[str] = set()
        self._texts: dict[str, dict[str, Mapping[str, str]]] = {}  # of each run's axes
        points: dict[str, dict[str, Point]] = {}
        for run, label, point in rows:
            points.setdefault(run, {})[label] = point
        studies = spec.get("studies") or {}
        axes = [axis for study in (spec, *studies.values()) for axis in study.get("axes") or ()]
        self._axes = [axis.get("labels") or {} for axis in axes]
        for run, labels in points.items():
            part, slash, rest = run.partition("/")
            in_union = slash and part in studies
            study, prefix, name = (studies[part], f"{part}/", rest) if in_union else (spec, "", run)
            own = self._texts.setdefault(run, {})
            for axis in study.get("axes") or ():
                if name in axis["runs"]:
                    own |= axis.get("labels") or {}
            given = ((study.get("runs") or {}).get(name) or {}).get("label")
            display = given if isinstance(given, str) else name
            if display and isinstance(given, str):
                self.named.add(run)
            self.shown[run] = prefix + (display or name)
            short = short_names({key: None for point in labels.values() for key in point})
            for each, point in labels.items():
                composed = compose(display, point, short, own) if own or isinstance(given, str) else ""
                self.shown[each] = prefix + composed if composed else each
        names = [(each, run, self.shown[each], self.shown[run]) for run in points for each in points[run]]
        self._labels: dict[str, list[str]] = {}  # by each name that refers to them
        for layer in zip(*names, strict=True):  # in the order of precedence
            found: dict[str, list[str]] = {}
            for name, (each, *_) in zip(layer, names, strict=True):
                found.setdefault(name, []).append(each)
            self._labels = self._labels | {name: found[name] for name in found if name not in self._labels}

    def value(self, key: str, value: Any, runs: Iterable[str]) -> str | None:
        """Return the display name of a key's value on the first of the runs' axes that has one."""
        texts = (self._texts[run].get(key, {}).get(value_text(value)) for run in runs)
        return next((text for text in texts if text is not None), None)

    def key(self, key: str) -> str | None:
        """Return the display name of an axis's key; None if no axis has one, or axes differ."""
        found = {name for labels in self._axes if (name := (labels.get(key) or {}).get(NAME))}
        return found.pop() if len(found) == 1 else None

    def meant(self, name: str) -> list[str]:
        """Return the labels that a name refers to: a label, a run, or the display name of either.

        A label takes precedence over a run, and both over display names.
        """
        return self._labels.get(name, [])

    @property
    def known(self) -> list[str]:
        """All names that refer to labels."""
        return list(self._labels)


def names_in(spec: Mapping[str, Any], runs: pd.DataFrame) -> Names:
    """Return the names of the runs of an experiment.

    Args:
        spec: The study, as stored.
        runs: One row per run: run, label, and optionally point (JSON).
    """
    rows = runs.drop_duplicates("label")
    texts = rows["point"] if "point" in rows else [None] * len(rows)
    points = (json.loads(text) if isinstance(text, str) and text else {} for text in texts)
    return Names(spec, zip(rows["run"].map(str), rows["label"].map(str), points, strict=True))
