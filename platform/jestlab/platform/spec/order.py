"""The order of the runs of a study: dependencies first, otherwise as in the spec."""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from jestlab.platform.errors import SpecError, nearest
from jestlab.platform.spec.axes import Point
from jestlab.platform.spec.variants import RunReference

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
    """Resolves references, with one table per name and set of axis keys."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_name: dict[str, list[int]] = defaultdict(list)
        for index, (name, *_) in enumerate(nodes):
            self._by_name[name].append(index)
        self._tables: dict[tuple[str, frozenset[str]], dict[frozenset[str], dict[str, list[int]]]] = {}

    def resolve(self, point: Point, reference: RunReference) -> int:
        """Return the index of the run that a run at a point refers to."""
        name = reference.name
        if name not in self._by_name:
            raise SpecError(reference.path, f"no run {name!r}: {nearest(name, self._by_name)}")
        found = []
        for shared, table in self._table(name, frozenset(point)).items():
            found += table.get(_values(point, shared), [])
        if len(found) != 1:
            raise SpecError(reference.path, self._problem(point, name, found))
        return found[0]

    def _table(self, name: str, keys: frozenset[str]) -> dict[frozenset[str], dict[str, list[int]]]:
        """Group the runs of a name by the keys that they share with a point, and by their values."""
        if (name, keys) not in self._tables:
            tables: dict[frozenset[str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for index in self._by_name[name]:
                own = self._nodes[index][2]
                shared = keys.intersection(own)
                tables[shared][_values(own, shared)].append(index)
            self._tables[name, keys] = tables
        return self._tables[name, keys]

    def _problem(self, point: Point, name: str, found: Sequence[int]) -> str:
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
    """Raise an error with a cycle among runs that block each other."""
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
