"""Values of config keys of an experiment's runs, by label.

The store holds configs as they are resolved, defaults filled in. Keys that have no effect on a run stand in
its config all the same, such as the filtering ratio of uniform sampling: here they have no value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .frames import Frames

BATCH_SIZE = "batch_size"
"""What the learner trains on in a step: a number that follows from several keys of the config."""

_ONLY_OF = {"chunks": "joint", "sweeps": "gibbs"}
"""Keys of selection that only one rule uses, with that rule."""


class Configs:
    """The configs of an experiment's labels; seeds of a label differ in nothing but their seed."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._rows = frames.configs

    def get(self, label: str, key: str) -> Any:
        """Get the value of a dotted key for a label; None if it is missing or has no effect."""
        config = self.by_label[label]
        if key == BATCH_SIZE:
            return _batch_size(config)
        return None if _is_idle(config, key) else lookup(config, key)

    def point(self, label: str) -> dict[str, Any]:
        """Get a label's values on the axes of the study."""
        return self._points[label]

    def run(self, label: str) -> str:
        """Get the name of the run that a label is a point of."""
        return self._runs[label]

    def reference(self, label: str) -> str | None:
        """Find the label of the reference that a label selects with; None if it needs none.

        Through a run that caches its embeddings this is the reference that made them. A name means the run
        with equal values on all axes that both have.

        Raises:
            ValueError: No run of the experiment is meant, or several are.
        """
        config, point = self.by_label[label], self.point(label)
        name = self.get(label, "selection.reference")
        if name is not None:
            name = self._called_here(label, "selection.reference") or name
        while name is not None:
            found = [
                other
                for other, run in self._runs.items()
                if run == name and all(self.point(other).get(k, v) == v for k, v in point.items())
            ]
            if len(found) != 1:
                raise ValueError(
                    f"{label!r} of {self._frames.experiment!r} needs {name!r}, which is "
                    f"{'no label' if not found else 'several labels'} of the experiment"
                )
            config, point = self.by_label[found[0]], self.point(found[0])
            further = config.get("reference")  # of a run that embeds with it
            if not isinstance(further, str):
                return found[0]
            name = self._called_here(found[0], "reference") or further
        return None

    def _called_here(self, label: str, key: str) -> str | None:
        """The name of another run as this study's spec says it: in the config of a run that several studies
        share it is another's. None where the spec says nothing."""
        runs, base = self._frames.spec.get("runs") or {}, self._frames.spec.get("base") or {}
        own = runs.get(self.run(label)) or {}
        for said in (self.point(label).get(key), lookup(own, key), lookup(base, key)):
            if isinstance(said, str):
                return said
        return None

    @cached_property
    def by_label(self) -> dict[str, dict[str, Any]]:
        """Configs of all labels, by label."""
        return self._parsed("config")

    @cached_property
    def _points(self) -> dict[str, dict[str, Any]]:
        return self._parsed("point")

    @cached_property
    def _runs(self) -> dict[str, str]:
        rows = self._rows.drop_duplicates("label")
        return dict(zip(rows["label"], rows["run"], strict=True))

    def _parsed(self, column: str) -> dict[str, dict[str, Any]]:
        rows = self._rows.drop_duplicates("label")
        texts = zip(rows["label"], rows[column], strict=True)
        return {str(label): json.loads(text) if text else {} for label, text in texts}


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of a config by dotted key; an empty section is a value."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found


class Parsed(NamedTuple):
    """A config that was read from its text: for reading alone, since all who ask get the same.

    Attributes:
        tree: The config.
        keys: Its dotted keys, in their order.
    """

    tree: dict[str, Any]
    keys: tuple[str, ...]


@lru_cache(maxsize=16_384)
def parsed(text: str) -> Parsed:
    """Parse the JSON text of a config; whoever asks again, as a server does, gets what was parsed before."""
    tree = json.loads(text)
    return Parsed(tree, tuple(flat(tree)))


def lookup(config: Any, key: str) -> Any:
    """Get the value at a dotted key; None if there is none."""
    found = config
    for part in key.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def _is_idle(config: Mapping[str, Any], key: str) -> bool:
    """Tell whether a key of a training run's config has no effect on it."""
    section, _, name = key.partition(".")
    rule = lookup(config, "selection.rule")
    if section == "selection":
        if name == "reference" and lookup(config, "selection.criterion") == "hard_learner":
            return True
        only = _ONLY_OF.get(name)
        return name != "rule" and bool(rule == "uniform" or (only is not None and rule != only))
    if key == "approximation.score":
        return bool(rule == "uniform")
    if section == "approximation" and name != "share":
        scores = bool(lookup(config, "approximation.score")) and rule != "uniform"
        return not (scores or lookup(config, "approximation.share"))
    return False


def _batch_size(config: Mapping[str, Any]) -> int | None:
    """Compute b: as given, or what the filtering ratio leaves of a given super-batch."""
    whole = lookup(config, "schedule.super_batch_size")
    if whole is None:
        given = lookup(config, "schedule.batch_size")
        return None if given is None else int(given)
    return max(1, round(int(whole) * (1.0 - float(lookup(config, "selection.filtering_ratio") or 0.0))))
