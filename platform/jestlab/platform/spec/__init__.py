"""The spec language: the words that a study is written in with Python. Each returns plain data, as in YAML.

study = spec.study(question="Does joint selection learn faster?")
study.runs.joint = {"selection.rule": "joint"}
study.reports = [table(baseline="uniform"), curves()]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ml_collections import ConfigDict

from jestlab.platform.errors import SpecError, UserError, choices
from jestlab.platform.spec.load import load
from jestlab.platform.spec.schema import Study

__all__ = [
    "SpecError",
    "Study",
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


def study(
    *, question: str, name: str | None = None, paper: str | None = None, program: str = "train"
) -> ConfigDict:
    """Create an empty study, to be filled: `base`, `runs`, `axes`, `seeds`, `resources`, `reports`, `claims`.

    Args:
        question: What it asks.
        name: Its name; that of its file by default.
        paper: The figure or table that it reproduces.
        program: What its runs execute.

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
) -> ConfigDict:
    """Create a spec of several whole studies, which run once what they share.

    `resources` and `reports` may be added.

    Args:
        question: What they ask together.
        studies: Name → spec, such as what another study's `get_config(scale)` returns; or a list of
            registered names and of paths, which are loaded at the union's scale.
        name: Its name; that of its file by default.
        paper: What of the paper it reproduces.
    """
    config = _mapping() if name is None else _mapping(name=name)
    config.update(question=question, paper=paper, studies=studies)
    return config


def _mapping(**entries: Any) -> ConfigDict:
    """Create a `ConfigDict` that keeps mappings, dotted keys and their order as they are."""
    return ConfigDict(entries, convert_dict=False, allow_dotted_keys=True, sort_keys=False)


Labels = Mapping[str, Mapping[Any, str]]
"""Key of an axis → its name, under "name", and the texts of its values, as tables and figures show them:
`{"selection.filtering_ratio": {"name": "f", 0.5: "50%", 0.9: "90%"}}`; either may be left out."""


def grid(values: Mapping[str, Sequence[Any]], labels: Labels | None = None) -> dict[str, Any]:
    """Create an axis of every combination: `grid({"selection.filtering_ratio": (0.5, 0.8, 0.9)})`."""
    return {"grid": values, **_labelled(labels)}


def zip_(values: Mapping[str, Sequence[Any]], labels: Labels | None = None) -> dict[str, Any]:
    """Create an axis of the first values, then the second values, …: as many for each key."""
    return {"zip": values, **_labelled(labels)}


def cases(*points: Mapping[str, Any], labels: Labels | None = None) -> dict[str, Any]:
    """Create an axis of explicit points, each a mapping of overrides."""
    return {"cases": list(points), **_labelled(labels)}


def _labelled(labels: Labels | None) -> dict[str, Any]:
    return {} if labels is None else {"labels": labels}


def table(**options: Any) -> dict[str, Any]:
    """Report final scores, mean ± std over seeds, and the difference to `baseline`, the name of a run.

    With `name` another table: "speedups", or one of the paper's, such as "comparison". What is shown of it:
    `columns`, `rows`, `digits`, `sort`, `caption`, `label` and `width` in LaTeX, `notes=False`.
    """
    return figure("table", **options)


def curves(**options: Any) -> dict[str, Any]:
    """Report the learning curves of every run, `over` "examples_seen", "flops", "seconds"."""
    return figure("curves", **options)


def pareto(**options: Any) -> dict[str, Any]:
    """Report score against the cost of training, `over` "flops" or "seconds", with the front."""
    return figure("pareto", **options)


def learnability(**options: Any) -> dict[str, Any]:
    """Report how learnable the batches are that the rules select, of `run`, a run of `diagnose`."""
    return figure("learnability", **options)


def figure(kind: str, **options: Any) -> dict[str, Any]:
    """Report any other figure, such as `figure("filtering_ratio", baseline="uniform")`."""
    return {"kind": kind, **options}


def claim(statement: str, **options: Any) -> dict[str, Any]:
    """State a claim that the study's runs decide.

    `claim("Joint selection learns more", of="joint", above="independent", source="Figure 3")`, or `below`,
    or `near` with `within`; `above` and `below` take a `within`, too, for no worse than. A side names a label
    or a run, a list of them (their mean), or, as `{"of": …, "minus": …}`, a difference. With `measure` other
    than the score: "score_at_flops", "score_after_0.5", an evaluation, a training metric, "loss_spikes"; of
    one side alone as `{"of": …, "measure": …}`. With `unless` the likely reason where it does not hold.
    """
    return {"statement": statement, **options}


def at_scale(scale: str, **values: Value) -> Value:
    """Return what holds at a scale: `at_scale(scale, smoke=9_600, mini=2_000_000)`.

    Raises:
        UserError: Nothing is given for that scale.
    """
    if scale not in values:
        raise UserError(f"no scale {scale!r}: {choices(scale, values)}")
    return values[scale]
