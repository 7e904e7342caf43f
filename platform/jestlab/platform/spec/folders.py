"""Files and folders that a spec names: made absolute, so that a resolved spec works from anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jestlab.platform.programs import callables
from jestlab.platform.spec.expand import program_of
from jestlab.platform.spec.fields import local_paths
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.tree import Tree, depth_of, lookup, merge, nested


def anchor(study: Study, folder: Path) -> Study:
    """A study whose paths are absolute.

    Args:
        study: The study.
        folder: What its relative paths count from.
    """
    written = study.to_dict()
    if study.studies:
        written["studies"] = {name: anchor(part, folder).to_dict() for name, part in study.studies.items()}
        return Study.parse(written)
    for section in (written, *written["runs"].values()):  # first: what else is a path, the programs say
        if "program" in section:
            section["program"] = callables.anchored(section["program"], folder)
    study = Study.parse(written)
    for path in _local_paths(study):
        _anchor_in(written, ("base",), path, folder)
    for name in study.runs:
        for path in _local_paths(study, name):
            _anchor_in(written["runs"], (name,), path, folder)
            for axis in written.get("axes", ()):
                if name in axis["runs"]:
                    _anchor_on(axis, ".".join(path), folder)
    return Study.parse(written)


def _local_paths(study: Study, run: str | None = None) -> tuple[tuple[str, ...], ...]:
    """Places of files and folders in a run's config, or without a run in the base."""
    program = program_of(study, run)
    return program.local_paths if program.schema is None else local_paths(program.schema)


def _anchor_in(tree: Tree, prefix: tuple[str, ...], path: tuple[str, ...], folder: Path) -> None:
    where = (*prefix, *path)
    if depth_of(tree, where) == len(where):
        tree[prefix[0]] = merge(tree, nested(where, _absolute(lookup(tree, where), folder)))[prefix[0]]


def _anchor_on(axis: dict[str, Any], key: str, folder: Path) -> None:
    for columns in (axis.get("grid"), axis.get("zip")):
        if columns and key in columns:
            columns[key] = [_absolute(value, folder) for value in columns[key]]
    for case in axis.get("cases", ()):
        if key in case:
            case[key] = _absolute(case[key], folder)


def _absolute(value: Any, folder: Path) -> Any:
    """The path, absolute; what is no text is left for validation to refuse."""
    return str(folder / Path(value).expanduser()) if isinstance(value, str) else value
