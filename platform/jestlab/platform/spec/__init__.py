"""The spec language in Python. Each function returns plain data, as in YAML.

    study = spec.study(question="Does joint selection learn faster?")
    study.runs.joint = {"selection.rule": "joint"}
    study.reports = [table(baseline="uniform"), curves()]

The function `get_config` of a Python file returns such a study.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ml_collections import ConfigDict

from jestlab.platform.errors import SpecError, UserError, choices
from jestlab.platform.spec.load import load
from jestlab.platform.spec.schema import StudySpec

__all__ = [
    "SpecError",
    "StudySpec",
    "at_scale",
    "cases",
    "claim",
    "curves",
    "figure",
    "grid",
    "learnability",
    "load",
    "pareto",
    "study",
    "table",
    "union",
    "zip_",
]

Value = TypeVar("Value")

Labels = Mapping[str, Mapping[Any, str]]
"""Key of an axis → display texts: that of the key under "name", and that of each value under the value, as in
`{"selection.filtering_ratio": {"name": "f", 0.5: "50%", 0.9: "90%"}}`."""


def study(
    *, question: str, name: str | None = None, paper: str | None = None, program: str = "train"
) -> ConfigDict:
    """Create a study without runs. Then set its `base`, `runs`, `axes`, `seeds`, `reports`, and other keys.

    Args:
        question: The question that the study answers.
        name: Name of the study; by default, the name of the spec's file.
        paper: The figure or table that the study reproduces.
        program: The default program of the runs.

    Returns:
        A `ConfigDict` whose keys may be dotted: `study.runs.joint = {"selection.rule": "joint"}`.
    """
    config = _mapping() if name is None else _mapping(name=name)
    config.update(question=question, paper=paper, program=program)
    config.update(base={}, runs=_mapping(), axes={}, reports=[], claims=[])
    return config


def union(
    *,
    question: str,
    studies: Mapping[str, Any] | Sequence[str],
    name: str | None = None,
    paper: str | None = None,
    family: Mapping[str, Any] | None = None,
) -> ConfigDict:
    """Create a union of several studies. A run that belongs to several of them is executed only once.

    You can set the union's `resources` and `reports` afterwards.

    Args:
        question: The question that the studies answer together.
        studies: Name → spec, such as the result of another study's `get_config(scale)`; or a list of
            registered names and of paths, which are loaded at the union's scale.
        name: Name of the union; by default, the name of the spec's file.
        paper: The part of the paper that the union reproduces.
        family: The error rate that the claims of all studies share.
    """
    config = _mapping() if name is None else _mapping(name=name)
    config.update(question=question, paper=paper, family=family, studies=studies)
    return config


def _mapping(**entries: Any) -> ConfigDict:
    """Create a `ConfigDict` that keeps mappings, dotted keys, and their order unchanged."""
    return ConfigDict(entries, convert_dict=False, allow_dotted_keys=True, sort_keys=False)


def grid(values: Mapping[str, Sequence[Any]], labels: Labels | None = None) -> dict[str, Any]:
    """Create an axis with all combinations of values: `grid({"selection.filtering_ratio": (0.5, 0.8)})`."""
    return _axis("grid", values, labels)


def zip_(values: Mapping[str, Sequence[Any]], labels: Labels | None = None) -> dict[str, Any]:
    """Create an axis that combines the first value of each key, then the second, and so on.

    All keys must have the same number of values.
    """
    return _axis("zip", values, labels)


def cases(*points: Mapping[str, Any], labels: Labels | None = None) -> dict[str, Any]:
    """Create an axis from explicit points, each a mapping of config overrides."""
    return _axis("cases", list(points), labels)


def _axis(kind: str, values: Any, labels: Labels | None) -> dict[str, Any]:
    return {kind: values} if labels is None else {kind: values, "labels": labels}


def figure(kind: str, **options: Any) -> dict[str, Any]:
    """Report a figure, such as `figure("filtering_ratio", baseline="uniform")`."""
    return {"kind": kind, **options}


table = partial(figure, "table")
"""Report a table: final scores, means over seeds with intervals, and the difference to the run `baseline`.

`name` selects another table, such as "speedups". `jestlab keys reports.table` lists the options.
"""

curves = partial(figure, "curves")
"""Report learning curves; `jestlab keys reports.curves` lists the options."""

pareto = partial(figure, "pareto")
"""Report scores against the cost of training; `jestlab keys reports.pareto` lists the options."""

learnability = partial(figure, "learnability")
"""Report how learnable the selected batches are. `run` names the run of `diagnose` that measured it."""


def claim(statement: str, **options: Any) -> dict[str, Any]:
    """State a claim that the study's runs confirm or refute.

    `claim("Joint selection learns more", of="joint", above="independent", source="Figure 3")` compares two
    sides. Other comparisons are `below`, `better_than`, and `near` with `within`. A side is a label, a run, a
    list of runs (their mean), or a difference, `{"of": …, "minus": …}`. `jestlab keys claims` lists all keys.
    """
    return {"statement": statement, **options}


def at_scale(scale: str, **values: Value) -> Value:
    """Return the value for a scale: `at_scale(scale, smoke=9_600, mini=2_000_000)`.

    Raises:
        UserError: No value is given for the scale.
    """
    if scale not in values:
        raise UserError(f"no scale {scale!r}: {choices(scale, values)}")
    return values[scale]
