"""From a study to its members: every run at every point and seed, validated, dependencies first."""

from __future__ import annotations

import heapq
import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ValidationError

from jestlab.analysis.names import compose, short_names
from jestlab.platform import programs
from jestlab.platform.errors import Path, SpecError, UserError, nearest, shown, within
from jestlab.platform.programs import Config, Program
from jestlab.platform.spec.axes import Point, Step, count, place_on, span
from jestlab.platform.spec.config_tree import (
    MATCH,
    STUDIES,
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
from jestlab.platform.spec.labels import check_shown, names_of
from jestlab.platform.spec.reports import LearnabilityReport, TableReport

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Match, Study

MAX_RUNS, MOST_RUNS = "JESTLAB_MAX_RUNS", 100_000
"""Environment variable that says how many runs a study may have, and what holds without it."""

SEED = "seed"
"""The config key that replicates differ in."""

_MATCH_ROLE = " match"  # cannot be the role of a dependency: no key begins with a space


class Reference(NamedTuple):
    """The name of another run, as it appears in a run."""

    role: str  # under which the program finds it: the config's dotted key, or the role given in `needs`
    name: str  # of the other run
    path: Path  # where it is written


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
    _check_size(study)
    _check_layers(study)
    _check_matches(study)
    variants = [variant for name in study.runs for variant in _Run(study, name).variants()]
    check_shown(study, variants)
    _check_reports(study, variants)
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
        for replicate, seed in enumerate(study.seeds)
        for index, needs in ordered
    )


def _check_size(study: Study) -> None:
    """Refuse a study of too many runs, which would take hours and all memory to list."""
    runs = len(study.seeds) * sum(count(study.axes, name) for name in study.runs)
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
    for part_name, part in study.studies.items():
        start = len(together)
        with within(STUDIES, part_name):
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
        remedy = "replicates are set by `seeds`; a run that they share may fix its own seed"
        raise SpecError(("base", SEED), remedy)
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
    place = ("runs", variant.name, MATCH)
    return () if variant.match is None else (Reference(_MATCH_ROLE, variant.match.run, place),)


def _check_shared(
    study: Study, variants: Sequence[Variant], ordered: Sequence[tuple[int, Mapping[str, int]]]
) -> None:
    """Check that a run that fixes its seed, and so is one run, needs runs that are one run too."""
    for index, needs in ordered:
        for needed in needs.values():
            if _fixes_seed(variants[index]) and not _fixes_seed(variants[needed]) and len(study.seeds) > 1:
                has = f"{variants[needed].name!r}, which has {len(study.seeds)} replicates"
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


def _check_reports(study: Study, variants: Sequence[Variant]) -> None:
    """Check that a baseline, and what is shown or claimed, is the name of a run or the label of a point."""
    known = set(names_of(study, variants).known)
    for index, report in enumerate(study.reports):
        option = "run" if isinstance(report, LearnabilityReport) else "baseline"
        named: dict[Path, str | None] = {(option,): getattr(report, option)}
        of_runs = report.rows_of_runs if isinstance(report, TableReport) else getattr(report, "runs", None)
        option = "rows" if isinstance(report, TableReport) else "runs"
        named |= {(option, str(i)): name for i, name in enumerate(of_runs or ())}
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
        """Yield the run at each of its points, its config validated."""
        beneath = merge(self.base, self.spec.overrides, self.fields)
        points = span(self.axes, self.name)
        short = short_names({key: None for spanned in points for key in spanned.point})
        labels = set()
        for point, steps in points:
            tree = beneath
            for key, value in point.items():
                tree = merge(tree, nested(key.split("."), value), self.fields)
            label = compose(self.name, point, short)
            if label in labels:
                axis = ("axes", str(steps[-1].axis))
                raise SpecError(axis, f"duplicate point {label!r}: give each point once")
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

        A name without effect (the reference of a run that selects uniformly) is not in the config's identity.
        """
        for role, needed in self.spec.needs.items():
            yield Reference(role, needed, ("runs", self.name, "needs"))
        if self.program.schema is None:
            return
        identity = self.program.identity(config)
        for path in run_names(self.program.schema):
            if depth_of(identity, path) == len(path):
                yield Reference(".".join(path), str(lookup(identity, path)), self._place(path, steps))


# ---- dependencies

Node = tuple[str, str, Point, Sequence[Reference]]
"""A run at a point: name, label, values on its axes, references."""


def order(nodes: Sequence[Node]) -> list[tuple[int, dict[str, int]]]:
    """Resolve references and sort: dependencies first, else as given. Linear in nodes and references.

    A reference means the run of that name with equal values on all axis keys that both have.

    Returns:
        For each place in the new order, the node's index and its dependencies, role → index.

    Raises:
        SpecError: A reference to no run or to several, or a cycle.
    """
    resolver = _Resolver(nodes)
    needs = [
        {one.role: resolver.resolve(point, one) for one in references} for *_, point, references in nodes
    ]
    waiting = [len(set(needed.values())) for needed in needs]
    dependants: dict[int, list[int]] = defaultdict(list)
    for index, needed in enumerate(needs):
        for other in set(needed.values()):
            dependants[other].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        index = heapq.heappop(ready)
        ordered.append((index, needs[index]))
        for dependant in dependants[index]:
            waiting[dependant] -= 1
            if waiting[dependant] == 0:
                heapq.heappush(ready, dependant)
    if len(ordered) < len(nodes):
        _raise_cycle(nodes, needs, {index for index, count in enumerate(waiting) if count})
    return ordered


class _Resolver:
    """Finds the run that a reference means; looks through the runs of a name once per set of axis keys."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_name: dict[str, list[int]] = defaultdict(list)
        for index, (name, *_) in enumerate(nodes):
            self._by_name[name].append(index)
        self._tables: dict[tuple[str, frozenset[str]], dict[frozenset[str], dict[str, list[int]]]] = {}

    def resolve(self, point: Point, reference: Reference) -> int:
        """Return the index of the run that is meant by a run at a point."""
        name = reference.name
        if name not in self._by_name:
            raise SpecError(reference.path, f"no run {name!r}: {nearest(name, self._by_name)}")
        found = []
        for shared, table in self._table(name, frozenset(point)).items():
            found += table.get(_values(point, shared), [])
        if len(found) != 1:
            raise SpecError(reference.path, self._complaint(point, name, found))
        return found[0]

    def _table(self, name: str, keys: frozenset[str]) -> dict[frozenset[str], dict[str, list[int]]]:
        """Map the keys that runs of a name share with a point, then the values on these keys, to the runs."""
        if (name, keys) not in self._tables:
            tables: dict[frozenset[str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for index in self._by_name[name]:
                own = self._nodes[index][2]
                shared = keys.intersection(own)
                tables[shared][_values(own, shared)].append(index)
            self._tables[name, keys] = tables
        return self._tables[name, keys]

    def _complaint(self, point: Point, name: str, found: Sequence[int]) -> str:
        own = {key for index in self._by_name[name] for key in self._nodes[index][2]}
        if not found:
            where = ", ".join(f"{key}={point[key]}" for key in sorted(own & point.keys()))
            return f"no run {name!r} with {where}: give it the same values"
        missing = ", ".join(sorted(own - point.keys()))
        some = ", ".join(repr(self._nodes[index][1]) for index in found[:3])
        return (
            f"{name!r} is {len(found)} runs ({some}{', …' if len(found) > 3 else ''}): "
            f"put this run on their axis too ({missing}), or name a run without it"
        )


def _values(point: Point, keys: frozenset[str]) -> str:
    return json.dumps([point[key] for key in sorted(keys)], sort_keys=True)


def _raise_cycle(nodes: Sequence[Node], needs: Sequence[Mapping[str, int]], blocked: Collection[int]) -> None:
    """Raise for a cycle among runs whose dependencies cannot be met: each of them needs another of them."""
    index = min(blocked)
    path: dict[int, None] = {}  # in order
    while index not in path:
        path[index] = None
        index = next(other for other in needs[index].values() if other in blocked)
    cycle = list(path)[list(path).index(index) :]
    first = cycle.index(min(cycle))
    cycle = [*cycle[first:], *cycle[:first]]
    by_label = len({nodes[i][0] for i in cycle}) < len(cycle)
    names = [nodes[i][1] if by_label else nodes[i][0] for i in [*cycle, cycle[0]]]
    role = next(role for role, other in needs[cycle[0]].items() if other == cycle[1 % len(cycle)])
    reference = next(r for r in nodes[cycle[0]][3] if r.role == role)
    raise SpecError(reference.path, f"dependencies form a cycle: {' → '.join(names)}")
