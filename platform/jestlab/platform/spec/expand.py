"""From a study to its members: every run at every point and seed, its config whole and validated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from jestlab.platform import programs
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.spec import match as matches
from jestlab.platform.spec.axes import Point, Step, place_on, span
from jestlab.platform.spec.claims import check_claims
from jestlab.platform.spec.errors import Path, SpecError, shown
from jestlab.platform.spec.fields import check, fields_of, run_names
from jestlab.platform.spec.needs import Reference, order
from jestlab.platform.spec.reports import LearnabilityReport
from jestlab.platform.spec.translate import first_error
from jestlab.platform.spec.tree import Tree, depth_of, lookup, merge, nested

if TYPE_CHECKING:
    from jestlab.platform.programs import Config, Program
    from jestlab.platform.spec.schema import RunSpec, Study

SEED = "seed"
"""The config key that replicates differ in."""

_MATCH = " match"
"""No role of a need: no key begins with a space."""


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
    match: matches.Match | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One replicate of a variant.

    Attributes:
        variant: What it is.
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
    """All members of a study, needed runs first, else in the order of the spec.

    One replicate of all runs comes after the other: runs that compute alike compile alike, and should not
    start together.

    Raises:
        SpecError: Something in the study is wrong; the place is named.
    """
    _check_layers(study)
    matches.check(study, {name: program_of(study, name) for name in study.runs})
    variants = [variant for name in study.runs for variant in _Run(study, name).variants()]
    check_reports(study, variants)
    ordered = order([(v.name, v.label, v.point, (*v.references, *_matched(v))) for v in variants])
    matched = {index: needs.pop(_MATCH) for index, needs in ordered if _MATCH in needs}
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


def _matched(variant: Variant) -> tuple[Reference, ...]:
    """The run that a variant matches: known before it, but nothing that it needs."""
    if variant.match is None:
        return ()
    return (Reference(_MATCH, variant.match.run, ("runs", variant.name, matches.KEY)),)


def _check_shared(
    study: Study, variants: Sequence[Variant], ordered: Sequence[tuple[int, Mapping[str, int]]]
) -> None:
    """A run that fixes its seed is one run, so what it needs must be one run too."""
    for index, needs in ordered:
        for needed in needs.values():
            if _fixes_seed(variants[index]) and not _fixes_seed(variants[needed]) and len(study.seeds) > 1:
                raise SpecError(
                    ("runs", variants[index].name, SEED),
                    f"is fixed, but the run needs {variants[needed].name!r}, which has "
                    f"{len(study.seeds)} replicates: fix its seed too, or neither",
                )


def _fixes_seed(variant: Variant) -> bool:
    config = variant.config
    return SEED in (config.model_fields_set if isinstance(config, BaseModel) else config)


def _member(variant: Variant, seed: int, needs: Mapping[str, int], match: int | None) -> Member:
    """One replicate. A run that fixes its own seed is one run, which all replicates share."""
    config = variant.config
    if isinstance(config, BaseModel):
        if SEED not in config.model_fields_set:
            config = config.model_copy(update={SEED: seed})
        return Member(variant, getattr(config, SEED), config, needs, match)
    config = {SEED: seed} | config
    return Member(variant, config[SEED], config, needs, match)


def program_of(study: Study, name: str | None = None) -> Program:
    """What a run executes, or, without a name, what the study's runs execute unless they say otherwise.

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
        schema = program_of(study, name).schema
        if schema is not None:
            check(run.overrides, fields_of(schema), ("runs", name))
        elif not _is_seed(run.overrides.get(SEED, 0)):
            raise SpecError(("runs", name, SEED), f"must be a whole number, not {shown(run.overrides[SEED])}")
    for index, axis in enumerate(study.axes):
        path = ("axes", str(index))
        if SEED in axis.keys:
            raise SpecError((*path, axis.kind, SEED), "replicates are set by `seeds`")
        schemas = {program_of(study, name).schema for name in axis.runs} - {None}
        for schema in schemas:
            for key, value, number in axis.values():
                keys = key.split(".")
                place = (*path, *axis.place(key, number))
                check(nested(keys, value), fields_of(schema), place[: -len(keys)])


def _is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_reports(study: Study, variants: Sequence[Variant]) -> None:
    """A baseline, what is shown or claimed, is the name of a run or the label of one of its points."""
    known = {name for variant in variants for name in (variant.name, variant.label)}
    for index, report in enumerate(study.reports):
        option = "run" if isinstance(report, LearnabilityReport) else "baseline"
        named: dict[tuple[str, ...], str | None] = {(option,): getattr(report, option)}
        named |= {("runs", str(i)): name for i, name in enumerate(getattr(report, "runs", None) or ())}
        for place, name in named.items():
            if name is not None and name not in known:
                raise SpecError(("reports", str(index), *place), f"no run {name!r}: {nearest(name, known)}")
    check_claims(study.claims, known)


class _Run:
    """A run of a study on its way to variants."""

    def __init__(self, study: Study, name: str) -> None:
        self.axes = study.axes
        self.name = name
        self.spec: RunSpec = study.runs[name]
        self.program = program_of(study, name)
        self.fields = fields_of(self.program.schema) if self.program.schema is not None else None
        self.base: Tree = self.program.inherited(study.base, program_of(study))

    def variants(self) -> Iterator[Variant]:
        """The run at each of its points.

        Raises:
            SpecError: A config is not valid, or a point stands there twice.
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
                    ("axes", str(steps[-1].axis)), f"{label!r} is there twice: give each point once"
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
        """Where the value at a path of the config is written: on an axis, in the run or in the base."""
        on_axis = place_on(self.axes, steps, path)
        if on_axis is not None:
            return on_axis
        in_run, in_base = depth_of(self.spec.overrides, path), depth_of(self.base, path)
        return ("base", *path) if in_base > in_run else ("runs", self.name, *path)

    def _references(self, config: Config, steps: Sequence[Step]) -> Iterator[Reference]:
        """The runs that the config names and those that are needed besides.

        A name without effect (the reference of a run that selects uniformly) is no need: `identity` knows.
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
    """Each dotted key's shortest ending that no other of the keys has."""
    endings: dict[str, list[str]] = {}
    for key in keys:
        parts = key.split(".")
        endings[key] = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
    uses = Counter(ending for own in endings.values() for ending in own)
    return {key: next((e for e in own if uses[e] == 1), key) for key, own in endings.items()}


def _text(value: Any) -> str:
    """A value in a label: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
