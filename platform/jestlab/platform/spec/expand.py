"""From a study to its members: every run at every point and seed, its config complete and validated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from jestlab.platform import programs
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.programs import Config, Program
from jestlab.platform.spec.axes import Point, Step, place_on, span
from jestlab.platform.spec.config_tree import (
    Tree,
    check,
    depth_of,
    fields_of,
    first_error,
    lookup,
    merge,
    nested,
    run_names,
)
from jestlab.platform.spec.dependencies import Reference, order
from jestlab.platform.spec.errors import Path, SpecError, shown, within
from jestlab.platform.spec.reports import LearnabilityReport
from jestlab.platform.spec.schema import MATCH, STUDIES, Match, Study

SEED = "seed"
"""The config key that replicates differ in."""

_MATCH_ROLE = " match"  # cannot be the role of a dependency: no key begins with a space


@dataclass(frozen=True, slots=True)
class Variant:
    """A run at one point of its axes: what its replicates share.

    Attributes:
        name: Of the run.
        label: Name and values on the axes, as tables and legends show it.
        point: Values on the axes, by dotted key.
        program: What it executes.
        config: Validated; a plain dict where the program has no schema.
        references: The runs that it names, with the place of each name.
        match: Whose FLOPs it spends; None where the config says how long it trains.
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
    """One replicate of a variant.

    Attributes:
        variant: What it replicates.
        seed: Its seed.
        config: The variant's config with the seed in it.
        needs: Role → position, among the study's members, of the run that it needs; always before its own.
        match: Position of the run whose FLOPs it spends, before its own as well; None for none.
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
    _check_layers(study)
    _check_matches(study)
    variants = [variant for name in study.runs for variant in _Run(study, name).variants()]
    _check_reports(study, variants)
    ordered = order([(v.name, v.label, v.point, (*v.references, *_matched(v))) for v in variants])
    matched = {index: needs.pop(_MATCH_ROLE) for index, needs in ordered if _MATCH_ROLE in needs}
    _check_shared(study, variants, ordered)
    place = {index: place for place, (index, _) in enumerate(ordered)}
    count = len(ordered)
    return tuple(
        _member(
            variants[index],
            seed,
            {role: replicate * count + place[needed] for role, needed in needs.items()},
            replicate * count + place[matched[index]] if index in matched else None,
        )
        for replicate, seed in enumerate(study.seeds)
        for index, needs in ordered
    )


def _of_union(study: Study) -> tuple[Member, ...]:
    """List the members of a union's parts in order, with the part's name before theirs: "part/run"."""
    together: list[Member] = []
    for part_name, part in study.studies.items():
        start = len(together)
        with within(STUDIES, part_name):
            own = part.members
        variants = {id(member.variant): _renamed(part_name, member.variant) for member in own}
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


def _renamed(part: str, variant: Variant) -> Variant:
    return replace(
        variant,
        name=f"{part}/{variant.name}",
        label=f"{part}/{variant.label}",
        references=tuple(one._replace(name=f"{part}/{one.name}") for one in variant.references),
    )


def written_at(run: str) -> str:
    """Say where a run is written: `runs.joint`, or `studies.part.runs.joint` for a union's `part/joint`."""
    part, slash, name = run.rpartition("/")
    return f"{STUDIES}.{part}.runs.{name}" if slash else f"runs.{run}"


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


def _check_layers(study: Study) -> None:
    """Check each part of the spec where it is written, before anything is laid over anything."""
    schema = program_of(study).schema
    if schema is not None:
        check(study.base, fields_of(schema), ("base",))
    if SEED in study.base:
        raise SpecError(
            ("base", SEED), "replicates are set by `seeds`; a run that they share may fix its own seed"
        )
    for name, run in study.runs.items():
        schema, seed = program_of(study, name).schema, run.overrides.get(SEED, 0)
        if schema is not None:
            check(run.overrides, fields_of(schema), ("runs", name))
        elif not isinstance(seed, int) or isinstance(seed, bool):
            raise SpecError(("runs", name, SEED), f"must be a whole number, not {shown(seed)}")
    for index, axis in enumerate(study.axes):
        path = ("axes", str(index))
        if SEED in axis.keys:
            raise SpecError((*path, axis.kind, SEED), "replicates are set by `seeds`")
        for schema in {program_of(study, name).schema for name in axis.runs} - {None}:
            for key, value, number in axis.values():
                keys = key.split(".")
                place = (*path, *axis.place(key, number))
                check(nested(keys, value), fields_of(schema), place[: -len(keys)])


def _check_matches(study: Study) -> None:
    """Check what can be checked of a study's matches before its points are known."""
    for name, run in study.runs.items():
        if run.match is None:
            continue
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


def _matched(variant: Variant) -> tuple[Reference, ...]:
    """Refer to the run that a variant matches: known before it, but not a dependency."""
    if variant.match is None:
        return ()
    return (Reference(_MATCH_ROLE, variant.match.run, ("runs", variant.name, MATCH)),)


def _check_shared(
    study: Study, variants: Sequence[Variant], ordered: Sequence[tuple[int, Mapping[str, int]]]
) -> None:
    """Check that a run that fixes its seed, and so is one run, needs runs that are one run too."""
    for index, needs in ordered:
        for needed in needs.values():
            if _fixes_seed(variants[index]) and not _fixes_seed(variants[needed]) and len(study.seeds) > 1:
                raise SpecError(
                    ("runs", variants[index].name, SEED),
                    f"is fixed, but the run needs {variants[needed].name!r}, which has "
                    f"{len(study.seeds)} replicates: fix both seeds, or neither",
                )


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


def _check_reports(study: Study, variants: Sequence[Variant]) -> None:
    """Check that a baseline, and what is shown or claimed, is the name of a run or the label of a point."""
    known = {name for variant in variants for name in (variant.name, variant.label)}
    for index, report in enumerate(study.reports):
        option = "run" if isinstance(report, LearnabilityReport) else "baseline"
        named: dict[Path, str | None] = {(option,): getattr(report, option)}
        named |= {("runs", str(i)): name for i, name in enumerate(getattr(report, "runs", None) or ())}
        for place, name in named.items():
            if name is not None and name not in known:
                raise SpecError(("reports", str(index), *place), f"no run {name!r}: {nearest(name, known)}")
    for index, claim in enumerate(study.claims):
        for key, side in (("of", claim.of), (claim.comparison, claim.other)):
            for below, name in side.named():
                if name not in known:
                    path = ("claims", str(index), key, *below)
                    raise SpecError(path, f"no run {name!r}: {nearest(name, known)}")


class _Run:
    """A run of a study, to be expanded into its variants."""

    def __init__(self, study: Study, name: str) -> None:
        self.axes = study.axes
        self.name = name
        self.spec = study.runs[name]
        self.program = program_of(study, name)
        self.fields = fields_of(self.program.schema) if self.program.schema is not None else None
        self.base: Tree = self.program.inherited(study.base, program_of(study))

    def variants(self) -> Iterator[Variant]:
        """Yield the run at each of its points.

        Raises:
            SpecError: A config is not valid, or a point is given twice.
        """
        beneath = merge(self.base, self.spec.overrides, self.fields)
        points = span(self.axes, self.name)
        short = _short_names({key: None for spanned in points for key in spanned.point})
        labels = set()
        for point, steps in points:
            tree = beneath
            for key, value in point.items():
                tree = merge(tree, nested(key.split("."), value), self.fields)
            label = " ".join([self.name, *(f"{short[key]}={_text(value)}" for key, value in point.items())])
            if label in labels:
                raise SpecError(
                    ("axes", str(steps[-1].axis)), f"duplicate point {label!r}: give each point once"
                )
            labels.add(label)
            config = self._validated(tree, steps)
            references = tuple(self._references(config, steps))
            yield Variant(self.name, label, point, self.program, config, references, self.spec.match)

    def _validated(self, tree: Tree, steps: Sequence[Step]) -> Config:
        if self.program.schema is None or self.fields is None:
            for path, message in self.program.problems(tree, self.spec.needs):
                raise SpecError(self._place(path, steps), message)
            return tree
        try:
            return self.program.schema.model_validate(tree)
        except ValidationError as error:
            path, message = first_error(error, self.fields)
            raise SpecError(self._place(path, steps), message) from None

    def _place(self, path: Path, steps: Sequence[Step]) -> Path:
        """Find where the value at a path of the config is written: on an axis, in the run or in the base."""
        on_axis = place_on(self.axes, steps, path)
        if on_axis is not None:
            return on_axis
        in_run, in_base = depth_of(self.spec.overrides, path), depth_of(self.base, path)
        return ("base", *path) if in_base > in_run else ("runs", self.name, *path)

    def _references(self, config: Config, steps: Sequence[Step]) -> Iterator[Reference]:
        """Yield the runs that the config names, after those that `needs` adds.

        A name without effect (the reference of a run that selects uniformly) is not a dependency: `identity`
        leaves it out.
        """
        for role, needed in self.spec.needs.items():
            yield Reference(role, needed, ("runs", self.name, "needs"))
        if self.program.schema is None:
            return
        identity = self.program.identity(config)
        for path in run_names(self.program.schema):
            if depth_of(identity, path) == len(path):
                yield Reference(".".join(path), str(lookup(identity, path)), self._place(path, steps))


def _short_names(keys: Iterable[str]) -> dict[str, str]:
    """Map each dotted key to its shortest ending that no other of the keys has."""
    endings: dict[str, list[str]] = {}
    for key in keys:
        parts = key.split(".")
        endings[key] = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
    uses = Counter(ending for own in endings.values() for ending in own)
    return {key: next((e for e in own if uses[e] == 1), key) for key, own in endings.items()}


def _text(value: Any) -> str:
    """Write a value in a label: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
