"""Absolute paths in a study, so that the resolved spec works from any folder of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from jestlab.analysis.names import NAME
from jestlab.models.extensions import references
from jestlab.platform.errors import Path as Place
from jestlab.platform.spec.axes import AxisSpec
from jestlab.platform.spec.fields import IS_PATH, NAMES_CODE, marked, merge
from jestlab.platform.spec.program import ProgramConfig
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import Tree, has, lookup, nested

Absolute = Callable[[Any], Any]
"""Makes a value of a config absolute."""


def anchored(study: StudySpec, folder: Path, spec_folder: Path | None = None) -> StudySpec:
    """Return a study with absolute paths.

    Args:
        study: The study.
        folder: The start of relative paths.
        spec_folder: The folder of the spec, where commands run by default; None if it has no file.
    """
    on = study.resources.on
    study = study.replaced(
        record=study.record.anchored(folder),
        reports=tuple(_anchored_report(report, folder) for report in study.reports),
        resources=study.resources.model_copy(update={"on": on and references.anchored(on, folder)}),
        studies={name: anchored(part, folder, spec_folder) for name, part in study.studies.items()},
    )
    if study.studies:
        return study
    runs = {
        name: run.model_copy(update={"program": run.program and references.anchored(run.program, folder)})
        for name, run in study.runs.items()
    }
    study = study.replaced(
        program=references.anchored(study.program, folder), runs=runs
    )  # programs have paths
    axes = study.axes
    for name, run in runs.items():
        program = study.program_of(name)
        overrides = run.overrides
        if program.name != study.program:
            overrides = _with_folder(overrides, program, spec_folder)
        runs[name] = run.model_copy(update={"overrides": _anchored_config(overrides, program, folder)})
        axes = tuple(_anchored_axis(axis, program, folder) if name in axis.runs else axis for axis in axes)
    program = study.program_of()
    base = _anchored_config(_with_folder(study.base, program, spec_folder), program, folder)
    return study.replaced(base=base, runs=runs, axes=axes)


def _anchored_report(report: BaseModel, folder: Path) -> BaseModel:
    field = "name" if getattr(report, "kind", None) == "table" else "kind"
    name = getattr(report, field)
    absolute = references.anchored(name, folder)
    return report if absolute == name else report.model_copy(update={field: absolute})


def _with_folder(config: Tree, program: ProgramConfig, spec_folder: Path | None) -> Tree:
    """Add the folder of the spec under the key that the program has for it, unless the key is given."""
    if program.spec_folder is None or spec_folder is None:
        return config
    return config if program.spec_folder in config else {**config, program.spec_folder: str(spec_folder)}


def _places(program: ProgramConfig, folder: Path) -> Iterator[tuple[Place, Absolute]]:
    """Yield the fields for files, folders, and code in a program's config."""

    def absolute(value: Any) -> Any:
        return str(folder / Path(value).expanduser()) if isinstance(value, str) else value

    def absolute_code(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: absolute_code(below) for key, below in value.items()}
        return references.anchored(value, folder) if isinstance(value, str) else value

    if program.schema is None:
        yield from ((path, absolute) for path in program.local_paths)
    else:
        yield from ((path, absolute) for path in marked(program.schema, IS_PATH))
        yield from ((path, absolute_code) for path in marked(program.schema, NAMES_CODE))


def _anchored_config(config: Tree, program: ProgramConfig, folder: Path) -> Tree:
    for path, absolute in _places(program, folder):
        if has(config, path):
            config = merge(config, nested(path, absolute(lookup(config, path))))
    return config


def _anchored_axis(axis: AxisSpec, program: ProgramConfig, folder: Path) -> AxisSpec:
    by_key = {".".join(path): absolute for path, absolute in _places(program, folder)}
    if not axis.keys & by_key.keys():
        return axis

    def moved(key: str, value: Any) -> Any:
        return by_key[key](value) if key in by_key else value

    given = getattr(axis, axis.kind)
    if isinstance(given, Mapping):
        points: Any = {key: tuple(moved(key, value) for value in values) for key, values in given.items()}
    else:
        points = tuple({key: moved(key, value) for key, value in case.items()} for case in given)
    labels = {
        key: {value if value == NAME else moved(key, value): text for value, text in texts.items()}
        for key, texts in axis.labels.items()
    }
    return axis.model_copy(update={axis.kind: points, "labels": labels})
