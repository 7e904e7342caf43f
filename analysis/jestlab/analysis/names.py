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

from . import units

if TYPE_CHECKING:
    import pandas as pd

NAME = "name"
"""The entry of an axis's `labels` that names the key itself; the other entries name its values."""

Point = Mapping[str, Any]
"""A run's values on its axes: dotted key → value."""

Texts = Mapping[str, Mapping[str, str]]
"""Dotted key of an axis → display names: of the key under `NAME`, of each value under its `value_text`."""


def value_text(value: Any) -> str:
    """Format a value for a label: strings unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Map each dotted key to its shortest ending that no other key shares."""
    endings = {key: [key.split(".", n)[-1] for n in range(key.count("."), -1, -1)] for key in keys}
    uses = Counter(ending for of_key in endings.values() for ending in of_key)
    return {key: next((e for e in of_key if uses[e] == 1), key) for key, of_key in endings.items()}


def compose(run: str, point: Point, short: Mapping[str, str], texts: Texts | None = None) -> str:
    """Compose the name of a run at a point.

    Args:
        run: The name or display name of the run; empty to compose the values alone.
        point: Its values on the axes.
        short: Short names of the axes' keys, from `short_names`.
        texts: Display names of keys and values; None to compose the run's label.
    """
    parts = [run] if run else []
    for key, value in point.items():
        displays, text = (texts or {}).get(key, {}), value_text(value)
        name = displays.get(NAME, short[key])
        parts.append(f"{name}={displays.get(text, text)}" if name else displays.get(text, text))
    return " ".join(parts)


class Shown(dict[str, str]):
    """Map labels and names of runs to display names. An unknown name is shown unchanged."""

    def __missing__(self, name: str) -> str:
        return name


class Names:
    """The names of an experiment's runs.

    Attributes:
        shown: Label or name of a run → display name.
    """

    def __init__(self, spec: Mapping[str, Any], rows: Iterable[tuple[str, str, Point | str | None]]) -> None:
        """Compose the display names.

        Args:
            spec: The study, as stored. A union contains its studies.
            rows: Run, label, and point of each label; the point may be JSON.
        """
        points: dict[str, dict[str, Point]] = {}
        for run, label, point in rows:
            parsed = json.loads(point or "{}") if isinstance(point, str) else point
            points.setdefault(run, {})[label] = parsed if isinstance(parsed, Mapping) else {}
        self.shown = Shown()
        self._texts: dict[str, Mapping[str, str]] = {}  # display names for the axes of all runs
        for run, labels in points.items():
            study, prefix, name = study_of(spec, run)
            texts: dict[str, Mapping[str, str]] = {}
            for axis in study.get("axes") or ():
                if name in axis["runs"]:
                    texts |= axis.get("labels") or {}
            self._texts = texts | self._texts
            given = ((study.get("runs") or {}).get(name) or {}).get("label")
            display = given if isinstance(given, str) else name
            self.shown[run] = prefix + (display or name)
            short = short_names({key: None for point in labels.values() for key in point})
            for label, point in labels.items():
                composed = compose(display, point, short, texts) if texts or isinstance(given, str) else ""
                self.shown[label] = prefix + composed if composed else label
        self._labels: dict[str, list[str]] = {}  # name → the labels that it refers to
        names = [(label, run, self.shown[label], self.shown[run]) for run in points for label in points[run]]
        for layer in zip(*names, strict=True):  # in the order of precedence
            taken = set(self._labels)
            for name, (label, *_) in zip(layer, names, strict=True):
                if name not in taken:
                    self._labels.setdefault(name, []).append(label)

    def value(self, key: str, value: Any) -> str:
        """Return the display name of a key's value, or else a formatted value: "easy reference", "0.9"."""
        plain = value.replace("_", " ") if isinstance(value, str) else str(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            plain = units.tick(value)
        return self._texts.get(key, {}).get(value_text(value), plain)

    def key(self, key: str) -> str | None:
        """Return the display name of an axis's key; None if no axis has one."""
        return self._texts.get(key, {}).get(NAME)

    def meant(self, name: str) -> list[str]:
        """Return the labels that a name refers to: a label, a run, or the display name of either.

        A label takes precedence over a run, and both over display names.
        """
        return self._labels.get(name, [])

    @property
    def known(self) -> list[str]:
        """All names that refer to labels."""
        return list(self._labels)


def study_of(spec: Mapping[str, Any], run: str) -> tuple[Mapping[str, Any], str, str]:
    """Return the study of a run, the prefix of its names in a union of studies, and its name in the study."""
    part, slash, rest = run.partition("/")
    studies = spec.get("studies") or {}
    return (studies[part], f"{part}/", rest) if slash and part in studies else (spec, "", run)


def names_in(spec: Mapping[str, Any], runs: pd.DataFrame) -> Names:
    """Return the names of runs, from a frame with their run, label, and optionally point."""
    rows = runs.drop_duplicates("label").reindex(columns=["run", "label", "point"])
    return Names(spec, rows.itertuples(index=False))
