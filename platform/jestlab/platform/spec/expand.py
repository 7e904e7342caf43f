"""From a study to its members: every run at every point and seed, validated, dependencies first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from jestlab.analysis.names import compose, short_names
from jestlab.platform.errors import Mistakes, Path, SpecError, placed, shown, within
from jestlab.platform.spec.axes import AxisStep, Point, count, place_on, span
from jestlab.platform.spec.fields import NAMES_A_RUN, fields_of, marked, merge, unknown_keys, validated
from jestlab.platform.spec.order import order
from jestlab.platform.spec.program import Config
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import MATCH, STUDIES, depth_of, has, lookup, nested
from jestlab.platform.spec.variants import (
    Replicate,
    RunReference,
    Variant,
    check_display_names,
    check_references,
    check_run_name,
)

SEED = "seed"
"""The config key that the replicates of a run differ in."""

MAX_RUNS, MOST_RUNS = "JESTLAB_MAX_RUNS", 100_000
"""Environment variable for the largest number of runs of a study, and its default."""

_MATCH_ROLE = " match"  # never the role of a dependency, because of the space


def expand(study: StudySpec) -> tuple[Replicate, ...]:
    """List every run of a study at every point and seed, with a validated config.

    Dependencies come first; otherwise the order is that of the spec. All runs with one seed come before those
    with the next: runs that differ only in the seed compile the same functions, and should not start at the
    same time.

    Raises:
        SpecError: The study has mistakes.
    """
    if "members" not in study.derived:
        study.derived["members"] = _of_union(study) if study.studies else _of_study(study)
    members: tuple[Replicate, ...] = study.derived["members"]
    return members


def _of_study(study: StudySpec) -> tuple[Replicate, ...]:
    """List the members of an ordinary study."""
    variants = _checked(study)
    ordered = order([(v.name, v.label, v.point, (*v.references, *_matched(v))) for v in variants])
    matched = {index: needs.pop(_MATCH_ROLE) for index, needs in ordered if _MATCH_ROLE in needs}
    _check_seeds(study, variants, ordered)
    place = {index: place for place, (index, _) in enumerate(ordered)}
    in_all = len(ordered)
    return tuple(
        _replicate(
            variants[index],
            seed,
            {role: replicate * in_all + place[needed] for role, needed in needs.items()},
            replicate * in_all + place[matched[index]] if index in matched else None,
        )
        for replicate, seed in enumerate(study.replicates)
        for index, needs in ordered
    )


def _of_union(study: StudySpec) -> tuple[Replicate, ...]:
    """List the members of a union's parts in order, with the part's name before theirs: "part/run"."""
    together: list[Replicate] = []
    mistakes = Mistakes()
    for part_name, part in study.studies.items():
        with mistakes, within(STUDIES, part_name):
            expand(part)
    mistakes.check()
    for part_name, part in study.studies.items():
        start = len(together)
        own = expand(part)
        variants = {
            id(one): replace(
                one,
                name=f"{part_name}/{one.name}",
                label=f"{part_name}/{one.label}",
                references=tuple(ref._replace(name=f"{part_name}/{ref.name}") for ref in one.references),
            )
            for one in (member.variant for member in own)
        }
        together += (
            replace(
                member,
                variant=variants[id(member.variant)],
                needs={role: start + index for role, index in member.needs.items()},
                match=None if member.match is None else start + member.match,
            )
            for member in own
        )
    check_references(study, [member.variant for member in together])
    return tuple(together)


def written_at(run: str) -> str:
    """Return the place of a run: `runs.joint`, or `studies.part.runs.joint` for a union's `part/joint`."""
    part, slash, name = run.rpartition("/")
    return f"{STUDIES}.{part}.runs.{name}" if slash else f"runs.{run}"


def _matched(variant: Variant) -> tuple[RunReference, ...]:
    """Refer to the run that a variant matches, which is ordered before it but isn't a dependency."""
    place = ("runs", variant.name, MATCH)
    return () if variant.match is None else (RunReference(_MATCH_ROLE, variant.match.run, place),)


def _fixes_seed(variant: Variant) -> bool:
    config = variant.config
    return SEED in (config.model_fields_set if isinstance(config, BaseModel) else config)


def _replicate(variant: Variant, seed: int, needs: Mapping[str, int], match: int | None) -> Replicate:
    """Create one replicate. A run that fixes its own seed is a single run, which all replicates share."""
    config = variant.config
    if isinstance(config, BaseModel):
        if SEED not in config.model_fields_set:
            config = config.model_copy(update={SEED: seed})
        return Replicate(variant, getattr(config, SEED), config, needs, match)
    config = {SEED: seed} | config
    return Replicate(variant, config[SEED], config, needs, match)


# ---- variants


def _checked(study: StudySpec) -> list[Variant]:
    """List the variants of all runs.

    Raises:
        SpecError: All mistakes of the study that aren't consequences of others.
    """
    _check_size(study)
    mistakes = Mistakes()
    _check_shared(study, mistakes)
    variants: list[Variant] = []
    wrong: set[str] = set()
    for name in study.runs:
        before = len(mistakes)
        with mistakes:
            _check_run(study, name, mistakes)
            variants += _Run(study, name).variants()
        if len(mistakes) > before or SEED in study.base:
            wrong.add(name)
    variants = [variant for variant in variants if variant.name not in wrong]
    for variant in variants:
        for reference in variant.references:
            with mistakes:
                check_run_name(reference.name, study.runs, reference.path)
    with mistakes:
        check_display_names(study, variants)
    with mistakes:
        is_misnamed = any(name not in study.runs for axis in study.axes for name in axis.runs)
        check_references(study, variants, study.runs if is_misnamed else wrong)
    mistakes.check()
    return variants


class _Run:
    """A run of a study, which expands into its variants."""

    def __init__(self, study: StudySpec, name: str) -> None:
        self.axes = study.axes
        self.name = name
        self.spec = study.runs[name]
        self.program = study.program_of(name)
        self.fields = fields_of(self.program.schema) if self.program.schema is not None else None
        self.base = self.program.inherited(study.base, study.program_of())

    def variants(self) -> list[Variant]:
        """List the run at each of its points, with validated configs."""
        mistakes, found = Mistakes(), []
        beneath = merge(self.base, self.spec.overrides, self.fields, ("runs", self.name))
        points = span(self.axes, self.name)
        short = short_names({key: None for point, _ in points for key in point})
        labels = set()
        for point, steps in points:
            label = compose(self.name, point, short)
            if label in labels:
                axis = ("axes", str(steps[-1].axis))
                mistakes.add([SpecError(axis, f"duplicate point {label!r}: give each point once")])
            labels.add(label)
            with mistakes:
                config = self._config(point, beneath, steps)
                references = tuple(self._references(config, steps))
                found.append(
                    Variant(self.name, label, point, self.program, config, references, self.spec.match)
                )
        mistakes.check()
        return found

    def _config(self, point: Point, tree: dict[str, Any], steps: Sequence[AxisStep]) -> Config:
        """Merge the values of a point over a config, and validate it."""
        with placed(lambda path: self._place(path, steps)):
            for key, value in point.items():
                tree = merge(tree, nested(key.split("."), value), self.fields)
            if self.program.schema is not None:
                return validated(self.program.schema, tree)
            mistakes = Mistakes()
            mistakes.add(SpecError(*problem) for problem in self.program.problems(tree, self.spec.needs))
            mistakes.check()
        return tree

    def _place(self, path: Path, steps: Sequence[AxisStep]) -> Path:
        """Return the place of a config's value: on an axis, in the run, or in the base."""
        on_axis = place_on(self.axes, steps, path)
        if on_axis is not None:
            return on_axis
        in_run, in_base = depth_of(self.spec.overrides, path), depth_of(self.base, path)
        return ("base", *path) if in_base > in_run else ("runs", self.name, *path)

    def _references(self, config: Config, steps: Sequence[AxisStep]) -> Iterator[RunReference]:
        """Yield the runs that the config refers to, after those of `needs`.

        A name without effect, such as the reference of a run that selects uniformly, isn't part of the
        config's identity.
        """
        for role, needed in self.spec.needs.items():
            yield RunReference(role, needed, ("runs", self.name, "needs"))
        if self.program.schema is None:
            return
        identity = self.program.identity(config)
        for path in marked(self.program.schema, NAMES_A_RUN):
            if has(identity, path):
                yield RunReference(".".join(path), str(lookup(identity, path)), self._place(path, steps))


# ---- checks


def _check_size(study: StudySpec) -> None:
    """Check the number of runs before listing them, which could take hours and all memory."""
    runs = len(study.replicates) * sum(count(study.axes, name) for name in study.runs)
    given = os.environ.get(MAX_RUNS, str(MOST_RUNS))
    if not given.isdecimal():
        raise SpecError((), f"{MAX_RUNS} must be a whole number, not {given!r}")
    if runs > int(given):
        raise SpecError(
            ("axes",) if study.axes else ("seeds",),
            f"make {runs:,} runs, more than {int(given):,}: drop values, or allow it by {MAX_RUNS}={runs}",
        )


def _check_shared(study: StudySpec, mistakes: Mistakes) -> None:
    """Check the base if each run has another program, and the names and keys of axes."""
    with mistakes:
        schema = study.program_of().schema
        if schema is not None and all(
            run.program not in (None, study.program) for run in study.runs.values()
        ):
            mistakes.add(unknown_keys(study.base, fields_of(schema), ("base",)))
    if SEED in study.base:
        remedy = "replicates are set by `seeds`; a run that they share may fix its own seed"
        mistakes.add([SpecError(("base", SEED), remedy)])
    for index, axis in enumerate(study.axes):
        for name in axis.runs:
            with mistakes:
                check_run_name(name, study.runs, ("axes", str(index), "runs"))
        if SEED in axis.keys:
            place = ("axes", str(index), *axis.place(SEED, 0))
            mistakes.add([SpecError(place, "replicates are set by `seeds`")])


def _check_run(study: StudySpec, name: str, mistakes: Mistakes) -> None:
    """Check the seed of a free-form config, and the runs that `needs` and `match` refer to."""
    run = study.runs[name]
    seed = run.overrides.get(SEED, 0)
    if study.program_of(name).schema is None and (not isinstance(seed, int) or isinstance(seed, bool)):
        mistakes.add([SpecError(("runs", name, SEED), f"must be a whole number, not {shown(seed)}")])
    for needed in run.needs.values():
        with mistakes:
            check_run_name(needed, study.runs, ("runs", name, "needs"))
    with mistakes:
        _check_match(study, name)


def _check_match(study: StudySpec, name: str) -> None:
    """Check the part of a run's match that doesn't depend on its points."""
    run = study.runs[name]
    if run.match is None:
        return
    path, program = ("runs", name, MATCH), study.program_of(name)
    check_run_name(run.match.run, study.runs, path)
    if (extent := program.extent) is None:
        raise SpecError(path, f"{program.name} has no examples_seen to solve for: drop it")
    other = study.runs[run.match.run]
    if other.match is not None:
        raise SpecError(path, f"{run.match.run!r} itself matches: name {other.match.run!r} instead")
    solved = f"conflicts with {'.'.join(path)}, which solves for it: drop one of them"
    if has(run.overrides, extent):
        raise SpecError(("runs", name, *extent), solved)
    for index, axis in enumerate(study.axes):
        if name in axis.runs and ".".join(extent) in axis.keys:
            raise SpecError(("axes", str(index), *axis.place(".".join(extent), 0)), solved)


def _check_seeds(
    study: StudySpec, variants: Sequence[Variant], ordered: Sequence[tuple[int, Mapping[str, int]]]
) -> None:
    """Check that a run with a fixed seed, which is a single run, depends only on single runs."""
    for index, needs in ordered:
        for needed in needs.values():
            if (
                _fixes_seed(variants[index])
                and not _fixes_seed(variants[needed])
                and len(study.replicates) > 1
            ):
                other = f"{variants[needed].name!r}, which has {len(study.replicates)} replicates"
                problem = f"is fixed, but the run needs {other}: fix both seeds, or neither"
                raise SpecError(("runs", variants[index].name, SEED), problem)
