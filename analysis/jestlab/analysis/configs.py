"""Values of config keys by label.

The store holds resolved configs, which contain all defaults. Some of their keys have no effect on a run, such
as the filtering ratio of uniform sampling. `Configs` gives such keys no value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .errors import NotYet
from .names import study_of

if TYPE_CHECKING:
    import pandas as pd

    from .frames import Frames

BATCH_SIZE = "batch_size"
"""A derived key: the number of examples in a training step, which follows from several keys of the config."""

_RULES = {"chunks": "joint", "sweeps": "gibbs"}
"""Key of `selection` that only one rule uses → that rule."""


class Configs:
    """The configs of an experiment's labels. Seeds of a label differ only in the seed.

    Attributes:
        by_label: Label → its config.
        points: Label → its values on the axes of the study.
        runs: Label → the name of its run.
    """

    def __init__(self, frames: Frames) -> None:
        rows = frames.configs.drop_duplicates("label").set_index("label")
        self._frames = frames
        self.by_label: dict[str, dict[str, Any]] = _parsed(rows["config"])
        self.points: dict[str, dict[str, Any]] = _parsed(rows["point"])
        self.runs: dict[str, str] = dict(zip(rows.index.astype(str), rows["run"].astype(str), strict=True))

    def get(self, label: str, key: str) -> Any:
        """Return the value of a dotted key for a label; None if it is missing or has no effect."""
        config = self.by_label[label]
        if key == BATCH_SIZE:
            return _batch_size(config)
        return None if _is_idle(config, key) else lookup(config, key)

    def reference(self, label: str) -> str | None:
        """Return the label of the reference model that a label selects with; None without a reference.

        If the label reads cached embeddings, this is the reference that computed them. If the reference's run
        has several points, this is the point with the same values on all axes that the two runs share.

        Raises:
            NotYet: No label or several labels match.
        """
        needed, reference = self._named_run(label, "selection.reference"), None
        while needed is not None:
            point = self.points[reference or label]
            matches = [
                other
                for other, run in self.runs.items()
                if run == needed and all(self.points[other].get(k, v) == v for k, v in point.items())
            ]
            if len(matches) != 1:
                raise NotYet(
                    f"{label!r} of {self._frames.experiment!r} needs {needed!r}, which is "
                    f"{'no label' if not matches else 'several labels'} of the experiment"
                )
            [reference] = matches
            needed = self._named_run(reference, "reference")  # key of runs that cache embeddings
        return reference

    def _named_run(self, label: str, key: str) -> str | None:
        """Return the run that a key names, as called in this study: studies that share a run may differ."""
        resolved = self.get(label, key)
        if not isinstance(resolved, str):
            return None
        study, prefix, name = study_of(self._frames.spec, self.runs[label])
        run, base = (study.get("runs") or {}).get(name), study.get("base")
        candidates = (self.points[label].get(key), lookup(run, key), lookup(base, key), resolved)
        return prefix + next(name for name in candidates if isinstance(name, str))


def _parsed(texts: pd.Series[Any]) -> dict[str, dict[str, Any]]:
    return {str(label): json.loads(text) if text else {} for label, text in texts.items()}


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a config: dotted key → value. An empty section counts as a value."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = value
    return values


@lru_cache(maxsize=16_384)
def parsed(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Parse the JSON text of a config: return the tree, which callers must not change, and its keys."""
    tree = json.loads(text)
    return tree, tuple(flat(tree))


def lookup(config: Any, key: str) -> Any:
    """Return the value at a dotted key; None if it is missing."""
    for part in key.split("."):
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


def _is_idle(config: Mapping[str, Any], key: str) -> bool:
    """Return whether a key of a training run's config has no effect on the run."""
    section, _, name = key.partition(".")
    rule = lookup(config, "selection.rule")
    scores = bool(lookup(config, "approximation.score")) and rule != "uniform"
    if key == "selection.reference" and lookup(config, "selection.criterion") == "hard_learner":
        return True
    if section == "selection":
        return name != "rule" and bool(rule == "uniform" or _RULES.get(name, rule) != rule)
    if key == "approximation.score":
        return bool(rule == "uniform")
    return (
        section == "approximation"
        and name != "share"
        and not (scores or lookup(config, "approximation.share"))
    )


def _batch_size(config: Mapping[str, Any]) -> int | None:
    """Compute b from the super-batch size and the filtering ratio, or return the configured batch size."""
    super_batch_size = lookup(config, "schedule.super_batch_size")
    if super_batch_size is None:
        batch_size = lookup(config, "schedule.batch_size")
        return None if batch_size is None else int(batch_size)
    filtering_ratio = float(lookup(config, "selection.filtering_ratio") or 0.0)
    return max(1, round(int(super_batch_size) * (1.0 - filtering_ratio)))
