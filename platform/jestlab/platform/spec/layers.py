"""Checks of the parts of a study where they are written, before anything is laid over anything."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from jestlab.platform import programs
from jestlab.platform.errors import Mistakes, Path, SpecError, UserError, nearest, shown
from jestlab.platform.programs import Program
from jestlab.platform.spec.config_tree import MATCH, check, depth_of, fields_of, nested

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Study

SEED = "seed"
"""The config key that replicates differ in."""


def program_of(study: Study, name: str | None = None) -> Program:
    """Return what a run executes; without a name, what the study's runs execute unless they say otherwise.

    Raises:
        SpecError: There is no such program.
    """
    own = study.runs[name].program if name is not None else None
    path = ("program",) if own is None else ("runs", str(name), "program")
    try:
        return programs.get(own or study.program)
    except UserError as error:
        raise SpecError(path, str(error)) from None


def check_layers(study: Study, unsure: Collection[str], mistakes: Mistakes) -> set[str]:
    """Check each part of the spec where it is written, before anything is laid over anything.

    Returns:
        The runs that something wrong belongs to.
    """
    wrong: set[str] = set()
    before = len(mistakes)
    with mistakes:
        _check_base(study)
    if len(mistakes) > before:
        wrong.update(study.runs)
    for name in study.runs:
        before = len(mistakes)
        with mistakes:
            _check_run(study, name)
        _check_needs(study, name, mistakes)
        with mistakes:
            _check_match(study, name)
        if len(mistakes) > before:
            wrong.add(name)
    for index, axis in enumerate(study.axes):
        before = len(mistakes)
        if not wrong.union(unsure).intersection(axis.runs):
            _check_axis(study, index, mistakes)
        if len(mistakes) > before:
            wrong.update(axis.runs)
    return wrong


def _check_base(study: Study) -> None:
    schema = program_of(study).schema
    if schema is not None:
        check(study.base, fields_of(schema), ("base",))
    if SEED in study.base:
        remedy = "replicates are set by `seeds`; a run that they share may fix its own seed"
        raise SpecError(("base", SEED), remedy)


def _check_run(study: Study, name: str) -> None:
    run = study.runs[name]
    schema, seed = program_of(study, name).schema, run.overrides.get(SEED, 0)
    if schema is not None:
        check(run.overrides, fields_of(schema), ("runs", name))
    elif not isinstance(seed, int) or isinstance(seed, bool):
        raise SpecError(("runs", name, SEED), f"must be a whole number, not {shown(seed)}")


def _check_axis(study: Study, index: int, mistakes: Mistakes) -> None:
    axis, path = study.axes[index], ("axes", str(index))
    if SEED in axis.keys:
        mistakes.add([SpecError((*path, axis.kind, SEED), "replicates are set by `seeds`")])
    for schema in {program_of(study, name).schema for name in axis.runs} - {None}:
        for key, value, number in axis.values():
            keys = key.split(".")
            place = (*path, *axis.place(key, number))
            with mistakes:
                check(nested(keys, value), fields_of(schema), place[: -len(keys)])


def _check_needs(study: Study, name: str, mistakes: Mistakes) -> None:
    """Check that the runs exist that a run names beside its config."""
    run = study.runs[name]
    named = [("needs", other) for other in run.needs.values()]
    named += [] if run.match is None else [(MATCH, run.match.run)]
    for key, other in named:
        with mistakes:
            check_known(other, study.runs, ("runs", name, key))


def _check_match(study: Study, name: str) -> None:
    """Check what can be checked of a run's match before its points are known."""
    run = study.runs[name]
    if run.match is None:
        return
    path, program = ("runs", name, MATCH), program_of(study, name)
    if (extent := program.extent) is None:
        raise SpecError(path, f"{program.name} has no examples_seen to solve for: drop it")
    other = study.runs.get(run.match.run)
    if other is not None and other.match is not None:
        raise SpecError(path, f"{run.match.run!r} itself matches: name {other.match.run!r} instead")
    solved = f"conflicts with {'.'.join(path)}, which solves for it: drop one of them"
    if depth_of(run.overrides, extent) == len(extent):
        raise SpecError(("runs", name, *extent), solved)
    for index, axis in enumerate(study.axes):
        if name in axis.runs and ".".join(extent) in axis.keys:
            raise SpecError(("axes", str(index), *axis.place(".".join(extent), 0)), solved)


def check_known(name: str, known: Collection[str], path: Path) -> None:
    """Refuse the name of a run that is not known."""
    if name not in known:
        raise SpecError(path, f"no run {name!r}: {nearest(name, known)}")
