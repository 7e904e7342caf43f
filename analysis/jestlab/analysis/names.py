"""What runs are called: the label by which the store knows a run at a point, and the name that is shown.

A label is a run's name with its values on the axes, "joint filtering_ratio=0.5". A spec may have tables and
figures show something else: a run's `label`, and an axis's `labels` for its keys and their values. Such names
belong to no run's identity; they are read from the spec that the store holds, so nothing is run again.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

NAME = "name"
"""In an axis's `labels`, beside the texts of a key's values: the name of the key itself."""

Point = Mapping[str, Any]
"""A run's values on its axes: dotted key → value."""

Texts = Mapping[str, Mapping[str, str]]
"""Dotted key of an axis → its name, under `NAME`, and the texts of its values, by `value_text`."""


def value_text(value: Any) -> str:
    """Write a value in a label: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Map each dotted key to its shortest ending that no other of the keys has."""
    endings: dict[str, list[str]] = {}
    for key in keys:
        parts = key.split(".")
        endings[key] = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
    uses = Counter(ending for own in endings.values() for ending in own)
    return {key: next((e for e in own if uses[e] == 1), key) for key, own in endings.items()}


def compose(run: str, point: Point, short: Mapping[str, str], texts: Texts | None = None) -> str:
    """Write the name of a run at a point.

    Args:
        run: Its name, or what is shown for it; may be empty, for the values alone.
        point: Its values on the axes.
        short: Names of the axes' keys, from `short_names`.
        texts: What is shown for keys and values; without it the name is the run's label.
    """
    parts = [run] if run else []
    for key, value in point.items():
        own = (texts or {}).get(key, {})
        name, text = own.get(NAME, short[key]), value_text(value)
        text = own.get(text, text)
        parts.append(f"{name}={text}" if name else text)
    return " ".join(parts)


class Shown(dict[str, str]):
    """Label, or name of a run → the name that is shown for it; what is not known is shown as it is."""

    def __missing__(self, name: str) -> str:
        return name


class Names:
    """The names of the runs of an experiment.

    Attributes:
        shown: What is shown for a label, and for the name of a run that has several.
    """

    def __init__(self, spec: Mapping[str, Any], rows: Iterable[tuple[str, str, Point]]) -> None:
        """Compose them.

        Args:
            spec: The study, as the store holds it; those of a union's studies are in it.
            rows: Run, label and point of each label.
        """
        self._spec = spec
        of_run: dict[str, dict[str, Point]] = defaultdict(dict)
        for run, label, point in rows:
            of_run[run][label] = point
        self._labels = {label: run for run, points in of_run.items() for label in points}
        self.shown = Shown()
        for run in of_run:
            self.shown[run] = self.run(run)
        for run, points in of_run.items():
            prefix, study, own = self._place(run)
            named, texts = _run_label(study, own), axis_texts(study, own)
            if named is None and not texts:
                self.shown |= {label: label for label in points}
                continue
            short = short_names({key: None for point in points.values() for key in point})
            for label, point in points.items():
                shown = compose(own if named is None else named, point, short, texts)
                self.shown[label] = prefix + shown if shown else label

    def run(self, run: str) -> str:
        """Return what is shown for a run, whatever its point."""
        prefix, study, own = self._place(run)
        return prefix + (_run_label(study, own) or own)

    def is_named(self, run: str) -> bool:
        """Whether the spec says what is shown for a run."""
        _, study, own = self._place(run)
        return bool(_run_label(study, own))

    def value(self, run: str, key: str, value: Any) -> str | None:
        """Return what is shown for a value of a key on a run's axes; None if the spec does not say."""
        _, study, own = self._place(run)
        return axis_texts(study, own).get(key, {}).get(value_text(value))

    def key(self, key: str) -> str | None:
        """Return what is shown for a key of an axis; None if the spec does not say, or axes differ."""
        parts = [self._spec, *(self._spec.get("studies") or {}).values()]
        axes = [axis.get("labels") or {} for part in parts for axis in part.get("axes") or ()]
        found = {name for labels in axes if (name := (labels.get(key) or {}).get(NAME))}
        return found.pop() if len(found) == 1 else None

    def meant(self, name: str) -> list[str]:
        """List the labels that a user may mean by a name: a label, or a run, or what is shown for either.

        Identities go first: what is shown for one run never hides another of that label or name.
        """
        return self._meanings.get(name, [])

    @property
    def known(self) -> list[str]:
        """All names that `meant` understands."""
        return list(self._meanings)

    @cached_property
    def _meanings(self) -> dict[str, list[str]]:
        layers: list[dict[str, list[str]]] = [{}, {}, {}, {}]
        for label, run in self._labels.items():
            for layer, name in zip(layers, (label, run, self.shown[label], self.run(run)), strict=True):
                layer.setdefault(name, []).append(label)
        meanings: dict[str, list[str]] = {}
        for layer in layers:  # in the order of precedence
            for name, labels in layer.items():
                meanings.setdefault(name, labels)
        return meanings

    def _place(self, run: str) -> tuple[str, Mapping[str, Any], str]:
        """The study that a run is written in, with what precedes its name in a union."""
        part, slash, own = run.partition("/")
        studies = self._spec.get("studies") or {}
        return (f"{part}/", studies[part], own) if slash and part in studies else ("", self._spec, run)


def names_in(spec: Mapping[str, Any], runs: pd.DataFrame) -> Names:
    """Return the names of runs that were read from a store.

    Args:
        spec: The study, as the store holds it.
        runs: One row a run: run, label and, where it is known, point (JSON).
    """
    rows = runs.drop_duplicates("label")
    texts = rows["point"] if "point" in rows else [None] * len(rows)
    points = (json.loads(text) if isinstance(text, str) and text else {} for text in texts)
    return Names(spec, zip(rows["run"].map(str), rows["label"].map(str), points, strict=True))


def axis_texts(study: Mapping[str, Any], run: str) -> dict[str, Mapping[str, str]]:
    """Return what the axes of a run say of their keys and values.

    Args:
        study: As a spec is written.
        run: Its name.
    """
    found: dict[str, Mapping[str, str]] = {}
    for axis in study.get("axes") or ():
        if run in axis["runs"]:
            found |= axis.get("labels") or {}
    return found


def _run_label(study: Mapping[str, Any], run: str) -> str | None:
    """Return the `label` of a run; None if it has none."""
    label = ((study.get("runs") or {}).get(run) or {}).get("label")
    return label if isinstance(label, str) else None
