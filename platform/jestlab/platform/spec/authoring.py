"""The words of a spec in Python. Each gives plain data, the same that YAML gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ml_collections import ConfigDict

from jestlab.platform.errors import UserError
from jestlab.platform.spec.errors import choices

Value = TypeVar("Value")


def study(
    *, question: str, name: str | None = None, paper: str | None = None, program: str = "train"
) -> ConfigDict:
    """An empty study, to be filled: `base`, `runs.<name>`, `axes`, `seeds`, `resources`, `reports`,
    `claims`.

    Args:
        question: What it asks.
        name: Its name; that of its file by default.
        paper: The figure or table that it reproduces.
        program: What its runs execute.

    Returns:
        A `ConfigDict` that keeps mappings as they are, so that keys may be dotted:
        `study.runs.joint = {"selection.rule": "joint"}`.
    """
    config = _mapping()
    if name is not None:
        config.name = name
    config.question = question
    config.paper = paper
    config.program = program
    config.base = {}
    config.runs = _mapping()
    config.axes = {}
    config.reports = []
    config.claims = []
    return config


def union(
    *,
    question: str,
    studies: Mapping[str, Any] | Sequence[str],
    name: str | None = None,
    paper: str | None = None,
) -> ConfigDict:
    """A spec of several whole studies: what they share runs once. `resources` and `reports` may be added.

    Args:
        question: What they ask together.
        studies: Name → spec, such as what another study's `get_config(scale)` returns; or a list of
            registered names and of paths, which are loaded at the union's scale.
        name: Its name; that of its file by default.
        paper: What of the paper it reproduces.
    """
    config = _mapping()
    if name is not None:
        config.name = name
    config.question = question
    config.paper = paper
    config.studies = studies
    return config


def _mapping() -> ConfigDict:
    """A `ConfigDict` that keeps mappings, dotted keys and their order as they are."""
    return ConfigDict(convert_dict=False, allow_dotted_keys=True, sort_keys=False)


def grid(values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """An axis of every combination: `grid({"selection.filtering_ratio": (0.5, 0.8, 0.9)})`."""
    return {"grid": values}


def zip_(values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """An axis of the first values, then the second values, …: as many for each key."""
    return {"zip": values}


def cases(*points: Mapping[str, Any]) -> dict[str, Any]:
    """An axis of points written out, each a mapping of overrides."""
    return {"cases": list(points)}


def table(**options: Any) -> dict[str, Any]:
    """A report: final scores, mean ± std over seeds, and the difference to `baseline`, the name of a run.

    With `name` another table: "speedups", or one of the paper's, such as "comparison".
    """
    return {"kind": "table", **options}


def curves(**options: Any) -> dict[str, Any]:
    """A report: the learning curves of every run, over `effort`: "examples_seen" or "flops"."""
    return {"kind": "curves", **options}


def pareto(**options: Any) -> dict[str, Any]:
    """A report: score against total training FLOPs of a `scope`, with the front."""
    return {"kind": "pareto", **options}


def learnability(**options: Any) -> dict[str, Any]:
    """A report: how learnable the batches are that the rules select, of `run`, a run of `diagnose`."""
    return {"kind": "learnability", **options}


def figure(kind: str, **options: Any) -> dict[str, Any]:
    """A report: any other figure, such as `figure("filtering_ratio", baseline="uniform")`."""
    return {"kind": kind, **options}


def claim(statement: str, **told: Any) -> dict[str, Any]:
    """A statement that the study's runs decide.

    `claim("Joint selection learns more", of="joint", above="independent", source="Figure 3")`, or `below`,
    or `near` with `within`; `above` and `below` take a `within`, too, for no worse than. A side names a label
    or a run, a list of them (their mean), or, as `{"of": …, "minus": …}`, a difference. With `measure` other
    than the score: "score_at_flops", "score_after_0.5", an evaluation, a training metric, "loss_spikes"; of
    one side alone as `{"of": …, "measure": …}`. With `unless` the likely reason where it does not hold.
    """
    return {"statement": statement, **told}


def at_scale(scale: str, **values: Value) -> Value:
    """What holds at a scale: `at_scale(scale, smoke=9_600, mini=2_000_000)`.

    Raises:
        UserError: Nothing is given for that scale.
    """
    if scale not in values:
        raise UserError(f"no scale {scale!r}: {choices(scale, values)}")
    return values[scale]
