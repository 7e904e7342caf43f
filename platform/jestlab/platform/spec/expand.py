"""From a study to its members: every run at every point and seed, validated, dependencies first."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import BaseModel

from jestlab.analysis.names import compose, short_names
from jestlab.platform.errors import Mistakes, Path, SpecError, placed, within
from jestlab.platform.programs import Config, Program
from jestlab.platform.spec.axes import Point, Step, count, place_on, span
from jestlab.platform.spec.config_tree import (
    MATCH,
    NAMES_A_RUN,
    STUDIES,
    Tree,
    depth_of,
    fields_of,
    lookup,
    marked,
    merge,
    nested,
    validated,
)
from jestlab.platform.spec.labels import check_shown, names_of
from jestlab.platform.spec.layers import SEED, check_known, check_layers, program_of
from jestlab.platform.spec.options import LearnabilityOptions, TableOptions
from jestlab.platform.spec.order import Reference, order

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Match, Study

MAX_RUNS, MOST_RUNS = "JESTLAB_MAX_RUNS", 100_000
"""Environment variable that says how many runs a study may have, and what holds without it."""

_MATCH_ROLE = " match"  # cannot be the role of a dependency: no key begins with a space


@dataclass(frozen=True, slots=True)
class Variant:
    """A run at one point of its axes: what its replicates share.

    Attributes:
        label: Name and values on the axes, as tables and legends show it.
        point: Values on the axes, by dotted key.
        config: Validated; a plain dict where the program has no schema.
        references: The runs that it names, with the place of each name.
        match: Whose FLOPs or seconds it spends; None where the config says how long it trains.
    """

    name: str
    label: str
    point: Point
    program: Program
    config: Config
    references: tuple[Reference, ...]
    match: Match | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One replicate of a variant, with its seed in its config.

    Attributes:
        needs: Role → position, among the study's members, of the run that it needs; always before its own.
        match: Position of the run whose budget it spends, before its own as well; None for none.
    """

    variant: Variant
    seed: int
    config: Config
    needs: Mapping[str, int]
    match: int | None = None


def expand(study: Study) -> tuple[Member, ...]:
    """List all members of a study, dependencies first, otherwise in the order of the spec.

    One replicate of all runs comes after the other: runs that compute alike compile alike, and should not
    start together.

    Raises:
        SpecError: Something in the study is wrong; the place is named.
    """
    if study.studies:
        return _of_union(study)
    variants = checked(study)
    ordered = order([(v.name, v.label, v.point, (*v.references, *_matched(v))) for v in variants])
    matched = {index: needs.pop(_MATCH_ROLE) for index, needs in ordered if _MATCH_ROLE in needs}
    _check_shared(study, variants, ordered)
    place = {index: place for place, (index, _) in enumerate(ordered)}
    in_all = len(ordered)
    return tuple(
        _member(
            variants[index],
            seed,
            {role: replicate * in_all + place[needed] for role, needed in needs.items()},
            replicate * in_all + place[matched[index]] if index in matched else None,
        )
        for replicate, seed in enumerate(study.replicates)
        for index, needs in ordered
    )


def checked(study: Study, unsure: Collection[str] = ()) -> list[Variant]:
    """List the variants of all runs, if nothing is wrong in any of them.

    Args:
        study: Not a union.
        unsure: Runs of which something is known to be wrong: their configs are not looked into.

    Raises:
        SpecError: All that is wrong and does not follow from something else that is; the places are named.
    """
    _check_size(study)
    mistakes = Mistakes()
    unsure = {*unsure, *check_layers(study, unsure, mistakes)}
    variants: list[Variant] = []
    for name in study.runs:
        if name not in unsure:
            before = len(mistakes)
            with mistakes:
                variants += _Run(study, name).variants()
            if len(mistakes) > before:
                unsure.add(name)
    with mistakes:
        check_shown(study, variants)
    _check_named(study, variants, unsure, mistakes)
    mistakes.check()
    return variants


def _check_size(study: Study) -> None:
    """Refuse a study of too many runs, which would take hours and all memory to list."""
    runs = len(study.replicates) * sum(count(study.axes, name) for name in study.runs)
    given = os.environ.get(MAX_RUNS, str(MOST_RUNS))
    if not given.isdecimal():
        raise SpecError((), f"{MAX_RUNS} must be a whole number, not {given!r}")
    if runs > int(given):
        raise SpecError(
            ("axes",) if study.axes else ("seeds",),
            f"make {runs:,} runs, more than {int(given):,}: drop values, or allow it by {MAX_RUNS}={runs}",
        )


def _of_union(study: Study) -> tuple[Member, ...]:
    """List the members of a union's parts in order, with the part's name before theirs: "part/run"."""
    together: list[Member] = []
    mistakes = Mistakes()
    for part_name, part in study.studies.items():
        with mistakes, within(STUDIES, part_name):
            part.members  # noqa: B018 — reading validates
    mistakes.check()
    for part_name, part in study.studies.items():
        start = len(together)
        own = part.members
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
    _check_reports(study, [member.variant for member in together])
    return tuple(together)


def written_at(run: str) -> str:
    """Say where a run is written: `runs.joint`, or `studies.part.runs.joint` for a union's `part/joint`."""
    part, slash, name = run.rpartition("/")
    return f"{STUDIES}.{part}.runs.{name}" if slash else f"runs.{run}"


def _matched(variant: Variant) -> tuple[Reference, ...]:
    """Refer to the run that a variant matches: known before it, but not a dependency."""
    place = ("runs", variant.name, MATCH)
    return () if variant.match is None else (Reference(_MATCH_ROLE, variant.match.run, place),)


def _check_shared(
    study: Study, variants: Sequence[Variant], ordered: Sequence[tuple[int, Mapping[str, int]]]
) -> None:
    """Check that a run that fixes its seed, and so is one run, needs runs that are one run too."""
    for index, needs in ordered:
        for needed in needs.values():
            if (
                _fixes_seed(variants[index])
                and not _fixes_seed(variants[needed])
                and len(study.replicates) > 1
            ):
                has = f"{variants[needed].name!r}, which has {len(study.replicates)} replicates"
                place = ("runs", variants[index].name, SEED)
                raise SpecError(place, f"is fixed, but the run needs {has}: fix both seeds, or neither")


def _fixes_seed(variant: Variant) -> bool:
    config = variant.config
    return SEED in (config.model_fields_set if isinstance(config, BaseModel) else config)


def _member(variant: Variant, seed: int, needs: Mapping[str, int], match: int | None) -> Member:
    """Make one replicate. A run that fixes its own seed is one run, which all replicates share."""
    config = variant.config
    if isinstance(config, BaseModel):
        if SEED not in config.model_fields_set:
            config = config.model_copy(update={SEED: seed})
        return Member(variant, getattr(config, SEED), config, needs, match)
    config = {SEED: seed} | config
    return Member(variant, config[SEED], config, needs, match)


def _check_named(
    study: Study, variants: Sequence[Variant], unsure: Collection[str], mistakes: Mistakes
) -> None:
    """Check that the runs exist that configs, reports and claims name."""
    for variant in variants:
        for reference in variant.references:
            with mistakes:
                check_known(reference.name, study.runs, reference.path)
    with mistakes:
        _check_reports(study, variants, unsure)


def _check_reports(study: Study, variants: Sequence[Variant], unsure: Collection[str] = ()) -> None:
    """Check that a baseline, and what is shown or claimed, is the name of a run or the label of a point.

    Args:
        study: The study.
        variants: Of its runs.
        unsure: Runs whose points are not known, because something is wrong with them.
    """
    known = {*names_of(study, variants).known, *study.runs, *study.adopted}
    points = tuple(f"{name} " for name in (*unsure, *study.adopted))  # labels say what they are adopted from
    mistakes = Mistakes()
    for path, name in _shown_runs(study):
        if not name.startswith(points):
            with mistakes:
                check_known(name, known, path)
    mistakes.check()


def _shown_runs(study: Study) -> Iterator[tuple[Path, str]]:
    """Yield the names and labels of runs in reports and claims, each with its place."""
    for index, report in enumerate(study.reports):
        option = "run" if isinstance(report, LearnabilityOptions) else "baseline"
        named: dict[Path, str | None] = {(option,): getattr(report, option, None)}
        of_runs = report.rows_of_runs if isinstance(report, TableOptions) else getattr(report, "runs", None)
        option = "rows" if isinstance(report, TableOptions) else "runs"
        named |= {(option, str(i)): name for i, name in enumerate(of_runs or ())}
        yield from (
            (("reports", str(index), *place), name) for place, name in named.items() if name is not None
        )
    for index, claim in enumerate(study.claims):
        for key, side in (("of", claim.of), (claim.comparison, claim.other)):
            yield from ((("claims", str(index), key, *below), name) for below, name in side.named())


class _Run:
    """A run of a study, to be expanded into its variants."""

    def __init__(self, study: Study, name: str) -> None:
        self.axes = study.axes
        self.name = name
        self.spec = study.runs[name]
        self.program = program_of(study, name)
        self.fields = fields_of(self.program.schema) if self.program.schema is not None else None
        self.base: Tree = self.program.inherited(study.base, program_of(study))

    def variants(self) -> list[Variant]:
        """List the run at each of its points, its config validated."""
        mistakes, found = Mistakes(), []
        beneath = merge(self.base, self.spec.overrides, self.fields, ("runs", self.name))
        points = span(self.axes, self.name)
        short = short_names({key: None for spanned in points for key in spanned.point})
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

    def _config(self, point: Point, tree: Tree, steps: Sequence[Step]) -> Config:
        """Lay the values of a point over a config, and validate it."""
        with placed(lambda path: self._place(path, steps)):
            for key, value in point.items():
                tree = merge(tree, nested(key.split("."), value), self.fields)
            if self.program.schema is not None:
                return validated(self.program.schema, tree)
            mistakes = Mistakes()
            mistakes.add(SpecError(*problem) for problem in self.program.problems(tree, self.spec.needs))
            mistakes.check()
        return tree

    def _place(self, path: Path, steps: Sequence[Step]) -> Path:
        """Find where the value at a path of the config is written: on an axis, in the run or in the base."""
        on_axis = place_on(self.axes, steps, path)
        if on_axis is not None:
            return on_axis
        in_run, in_base = depth_of(self.spec.overrides, path), depth_of(self.base, path)
        return ("base", *path) if in_base > in_run else ("runs", self.name, *path)

    def _references(self, config: Config, steps: Sequence[Step]) -> Iterator[Reference]:
        """Yield the runs that the config names, after those that `needs` adds.

        A name without effect (the reference of a run that selects uniformly) is not in the config's identity.
        """
        for role, needed in self.spec.needs.items():
            yield Reference(role, needed, ("runs", self.name, "needs"))
        if self.program.schema is None:
            return
        identity = self.program.identity(config)
        for path in marked(self.program.schema, NAMES_A_RUN):
            if depth_of(identity, path) == len(path):
                yield Reference(".".join(path), str(lookup(identity, path)), self._place(path, steps))
