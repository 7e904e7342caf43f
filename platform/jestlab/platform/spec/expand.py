"""Expand a study into its members, which are every run at every point and seed, with validated configs."""

import functools
import heapq
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from pydantic import BaseModel

from jestlab.analysis.names import compose, short_names
from jestlab.platform.errors import Mistakes, Path, SpecError, dotted, placed, shown, within
from jestlab.platform.spec.axes import AxisStep, Point, axis_path, count, span
from jestlab.platform.spec.fields import NAMES_A_RUN, marked, merge, unknown_keys, validated
from jestlab.platform.spec.program import Config
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import MATCH, STUDIES, Tree, depth_of, has, lookup, nested
from jestlab.platform.spec.variants import (
    Replicate,
    RunReference,
    Variant,
    name_errors,
    unknown_run,
)

SEED = "seed"
"""The only config key in which the replicates of a run differ."""

MAX_RUNS, MOST_RUNS = "JESTLAB_MAX_RUNS", 100_000
"""Environment variable for the largest number of runs of a study, and its default."""

_MATCH_ROLE = " match"  # never the role of a dependency, because of the space


def expand(study: StudySpec) -> tuple[Replicate, ...]:
    """List every run of a study at every point and seed, with a validated config.

    All runs with the first seed come before all runs with the second, and so on: runs that differ only in the
    seed compile the same functions, so they should not start at the same time. Within a seed, dependencies
    come first, and otherwise the order is that of the spec. In a union, the members of one part precede those
    of the next, and the names of runs start with that of the part: "part/run".

    Raises:
        SpecError: The study has mistakes.
    """
    if "members" not in study.derived:
        members: list[Replicate] = []
        mistakes = Mistakes()
        for name, part in study.studies.items():
            with mistakes, within(STUDIES, name):
                members += _members(part, f"{name}/", len(members))
        mistakes.check()
        if study.studies:
            mistakes.add(name_errors(study, [member.variant for member in members]))
            mistakes.check()
        study.derived["members"] = tuple(members if study.studies else _members(study))
    found: tuple[Replicate, ...] = study.derived["members"]
    return found


def spec_path(run: str) -> str:
    """Return the path of a run in the spec: `runs.joint`, or `studies.part.runs.joint` for `part/joint`."""
    part, slash, name = run.rpartition("/")
    return f"{STUDIES}.{part}.runs.{name}" if slash else f"runs.{run}"


def _members(study: StudySpec, prefix: str = "", start: int = 0) -> Iterator[Replicate]:
    """Yield the members of a study that isn't a union.

    Args:
        study: The study.
        prefix: Put before the names of its runs.
        start: Position of the first member; `needs` and `match` of a `Replicate` are positions.
    """
    variants = _variants(study)
    ordered = order([(v.name, v.label, v.point, (*v.references, *_match_reference(v))) for v in variants])
    _check_seeds(study, variants, ordered)
    place = {index: start + place for place, (index, _) in enumerate(ordered)}
    if prefix:
        variants = [_prefixed(variant, prefix) for variant in variants]
    for seed in study.replicates:
        for index, needs in ordered:
            variant, config = variants[index], variants[index].config
            places = {role: place[needed] for role, needed in needs.items()}
            # A run that fixes its own seed is a single run, which all replicates share.
            if isinstance(config, dict):
                config = {SEED: seed} | config
            elif not _fixes_seed(config):
                config = config.model_copy(update={SEED: seed})
            own = config[SEED] if isinstance(config, dict) else getattr(config, SEED)
            yield Replicate(variant, own, config, places, places.pop(_MATCH_ROLE, None))
        place = {index: one + len(ordered) for index, one in place.items()}


def _prefixed(variant: Variant, prefix: str) -> Variant:
    references = tuple(each._replace(name=f"{prefix}{each.name}") for each in variant.references)
    name, label = f"{prefix}{variant.name}", f"{prefix}{variant.label}"
    return replace(variant, name=name, label=label, references=references)


def _match_reference(variant: Variant) -> tuple[RunReference, ...]:
    """Return a reference to the run that a variant matches. It precedes the variant without being needed."""
    place = ("runs", variant.name, MATCH)
    return () if variant.match is None else (RunReference(_MATCH_ROLE, variant.match.run, place),)


def _fixes_seed(config: Config) -> bool:
    return SEED in (config.model_fields_set if isinstance(config, BaseModel) else config)


# ---- variants


def _variants(study: StudySpec) -> list[Variant]:
    """List the variants of all runs.

    Raises:
        SpecError: All mistakes of the study that aren't consequences of others.
    """
    _check_size(study)
    mistakes = Mistakes()
    with mistakes:
        mistakes.add(_shared_errors(study))
    variants: list[Variant] = []
    wrong: set[str] = set()
    for name in study.runs:
        before = len(mistakes)
        with mistakes:
            mistakes.add(_run_errors(study, name))
            variants += _variants_of(study, name)
        if len(mistakes) > before or SEED in study.base:
            wrong.add(name)
    variants = [variant for variant in variants if variant.name not in wrong]
    for variant in variants:
        for reference in variant.references:
            mistakes.add(unknown_run(reference.name, study.runs, reference.path))
    is_misnamed = any(name not in study.runs for axis in study.axes for name in axis.runs)
    mistakes.add(name_errors(study, variants, study.runs if is_misnamed else wrong))
    mistakes.check()
    return variants


def _variants_of(study: StudySpec, name: str) -> list[Variant]:
    """List a run at each of its points, with validated configs."""
    run, program = study.runs[name], study.program_of(name)
    fields, names = program.fields, marked(program.schema, NAMES_A_RUN)
    base = program.inherited(study.base, study.program_of())
    beneath = merge(base, run.overrides, fields, ("runs", name))
    needs = [RunReference(role, needed, ("runs", name, "needs")) for role, needed in run.needs.items()]
    points = span(study.axes, name)
    short = short_names({key: None for point, _ in points for key in point})
    mistakes, labels, found = Mistakes(), set(), []
    for point, steps in points:
        place = functools.partial(_config_path, study, name, base, steps)
        label = compose(name, point, short)
        if label in labels:
            axis = ("axes", str(steps[-1].axis))
            mistakes.add([SpecError(axis, f"duplicate point {label!r}: give each point once")])
        labels.add(label)
        with mistakes:
            tree = beneath
            with placed(place):
                for key, value in point.items():
                    tree = merge(tree, nested(key.split("."), value), fields)
                config: Config = tree if program.schema is None else validated(program.schema, tree)
                if program.schema is None:
                    problems = Mistakes()
                    problems.add(SpecError(*problem) for problem in program.problems(tree, run.needs))
                    problems.check()
            # Only names in the identity count: the reference of a run that selects uniformly has no effect,
            # so it isn't a dependency.
            identity = program.identity(config) if names else {}
            own = [
                RunReference(dotted(path), str(lookup(identity, path)), place(path))
                for path in names
                if has(identity, path)
            ]
            found.append(Variant(name, label, point, program, config, (*needs, *own), run.match))
    mistakes.check()
    return found


def _config_path(study: StudySpec, name: str, base: Tree, steps: Sequence[AxisStep], path: Path) -> Path:
    """Return where a spec sets a value of a run's config: on an axis, in the run, or in the base."""
    if (on_axis := axis_path(study.axes, steps, path)) is not None:
        return on_axis
    in_base = depth_of(base, path) > depth_of(study.runs[name].overrides, path)
    return ("base", *path) if in_base else ("runs", name, *path)


def replaced_values(study: StudySpec) -> Iterator[str]:
    """Yield a line for each value in a run that has no effect, since every point of an axis replaces it."""
    for part, each in {"": study, **study.studies}.items():
        for index, axis in enumerate(each.axes):
            path = dotted((STUDIES, part, "axes", str(index))) if part else f"axes.{index}"
            for name, key in itertools.product(axis.runs, axis.keys):
                own, keys = each.runs[name].overrides, key.split(".")
                if not has(own, keys) or isinstance(value := lookup(own, keys), dict):
                    continue
                if all(key in point for point in axis.points()):
                    yield f"{path} replaces {key}={shown(value)} of the run {name}, which has no effect"


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
            f"make {runs:,} runs, more than {int(given):,}: drop values, or set {MAX_RUNS}={runs}",
        )


def _shared_errors(study: StudySpec) -> Iterator[SpecError]:
    """Check the names and keys of axes; also the keys of the base if no run uses the study's program."""
    if SEED in study.base:
        remedy = "replicates are set by `seeds`; a run that they share may fix its own seed"
        yield SpecError(("base", SEED), remedy)
    for index, axis in enumerate(study.axes):
        for name in axis.runs:
            yield from unknown_run(name, study.runs, ("axes", str(index), "runs"))
        if SEED in axis.keys:
            yield SpecError(("axes", str(index), *axis.place(SEED, 0)), "replicates are set by `seeds`")
    fields = study.program_of().fields
    if fields is not None and all(run.program not in (None, study.program) for run in study.runs.values()):
        yield from unknown_keys(study.base, fields, ("base",))


def _run_errors(study: StudySpec, name: str) -> Iterator[SpecError]:
    """Check the seed of a free-form config, and the runs that `needs` and `match` refer to."""
    run, program = study.runs[name], study.program_of(name)
    seed = run.overrides.get(SEED, 0)
    if program.schema is None and (not isinstance(seed, int) or isinstance(seed, bool)):
        yield SpecError(("runs", name, SEED), f"must be a whole number, not {shown(seed)}")
    for needed in run.needs.values():
        yield from unknown_run(needed, study.runs, ("runs", name, "needs"))
    if run.match is None:
        return
    path, other = ("runs", name, MATCH), study.runs.get(run.match.run)
    if other is None:
        yield from unknown_run(run.match.run, study.runs, path)
    elif (extent := program.extent) is None:
        yield SpecError(path, f"{program.name} has no examples_seen to solve for: drop it")
    elif other.match is not None:
        yield SpecError(path, f"{run.match.run!r} has a match itself: name {other.match.run!r} instead")
    else:
        solved = f"conflicts with {dotted(path)}, which solves for it: drop one of them"
        if has(run.overrides, extent):
            yield SpecError(("runs", name, *extent), solved)
        for index, axis in enumerate(study.axes):
            if name in axis.runs and dotted(extent) in axis.keys:
                yield SpecError(("axes", str(index), *axis.place(dotted(extent), 0)), solved)


def _check_seeds(
    study: StudySpec, variants: Sequence[Variant], ordered: Sequence[tuple[int, Mapping[str, int]]]
) -> None:
    """Check that a run with a fixed seed, which is a single run, depends only on single runs."""
    fixed = [_fixes_seed(variant.config) for variant in variants]
    for index, needs in ordered if len(study.replicates) > 1 else ():
        for role, needed in needs.items():
            if fixed[index] and not fixed[needed] and role != _MATCH_ROLE:
                other = f"{variants[needed].name!r}, which has {len(study.replicates)} replicates"
                problem = f"is fixed, but the run needs {other}: fix both seeds, or neither"
                raise SpecError(("runs", variants[index].name, SEED), problem)


# ---- order

Node = tuple[str, str, Point, Sequence[RunReference]]
"""A run at a point: name, label, values on its axes, references."""


def order(nodes: Sequence[Node]) -> list[tuple[int, dict[str, int]]]:
    """Resolve references and sort: dependencies first, otherwise in the given order, in linear time.

    A reference is resolved to the run of that name with equal values on all axis keys that both runs have.

    Returns:
        For each place in the new order, the node's index and its dependencies, role → index.

    Raises:
        SpecError: A reference matches no run or several runs, or there is a cycle.
    """
    by_name: dict[str, list[int]] = defaultdict(list)
    for index, (name, *_) in enumerate(nodes):
        by_name[name].append(index)

    @functools.cache
    def table(name: str, keys: frozenset[str]) -> dict[frozenset[str], dict[str, list[int]]]:
        """Group the runs with a name by which of these keys they have, then by the values of those keys."""
        groups: dict[frozenset[str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for index in by_name[name]:
            shared = keys.intersection(nodes[index][2])
            groups[shared][_values(nodes[index][2], shared)].append(index)
        return groups

    def resolve(point: Point, reference: RunReference) -> int:
        groups = table(reference.name, frozenset(point)).items()
        found = [index for shared, runs in groups for index in runs.get(_values(point, shared), ())]
        if len(found) != 1:
            named = [nodes[index] for index in found or by_name[reference.name]]
            raise _ambiguous(point, reference, named, bool(found))
        return found[0]

    needs = [{one.role: resolve(point, one) for one in references} for *_, point, references in nodes]
    sorter = TopologicalSorter({index: needed.values() for index, needed in enumerate(needs)})
    try:
        sorter.prepare()
    except CycleError as error:
        raise _cycle_error(nodes, needs, error.args[1][:0:-1]) from None
    ready: list[int] = []
    ordered = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, index)
        index = heapq.heappop(ready)
        sorter.done(index)
        ordered.append((index, needs[index]))
    return ordered


def _values(point: Point, keys: frozenset[str]) -> str:
    return json.dumps([point[key] for key in sorted(keys)], sort_keys=True)


def _ambiguous(point: Point, reference: RunReference, named: Sequence[Node], is_found: bool) -> SpecError:
    """Describe a reference that matches several runs, or none of the runs of that name."""
    own = {key for _, _, values, _ in named for key in values}
    if not is_found:
        where = ", ".join(f"{key}={point[key]}" for key in sorted(own & point.keys()))
        problem = f"no run {reference.name!r} with {where}: give it the same values"
        return SpecError(reference.path, problem)
    missing = ", ".join(sorted(own - point.keys()))
    some = ", ".join(repr(label) for _, label, _, _ in named[:3]) + (", …" if len(named) > 3 else "")
    problem = f"put this run on the same axis ({missing}), or name a run without that axis"
    return SpecError(reference.path, f"{reference.name!r} is {len(named)} runs ({some}): {problem}")


def _cycle_error(
    nodes: Sequence[Node], needs: Sequence[Mapping[str, int]], cycle: Sequence[int]
) -> SpecError:
    """Describe a cycle of runs, each of which needs the next, starting with the first one in the spec."""
    first = cycle.index(min(cycle))
    cycle = [*cycle[first:], *cycle[: first + 1]]
    role = next(role for role, other in needs[cycle[0]].items() if other == cycle[1])
    reference = next(r for r in nodes[cycle[0]][3] if r.role == role)
    return SpecError(
        reference.path, f"dependencies form a cycle: {' → '.join(nodes[index][1] for index in cycle)}"
    )
