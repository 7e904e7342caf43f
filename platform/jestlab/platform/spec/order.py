"""The order of the runs of a study: dependencies first, otherwise as in the spec."""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from jestlab.platform.errors import SpecError
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
        name, found = reference.name, []
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


def _cycle_error(
    nodes: Sequence[Node], needs: Sequence[Mapping[str, int]], cycle: Sequence[int]
) -> SpecError:
    """Describe a cycle, in which each run needs the next one, from its first run in the spec."""
    first = cycle.index(min(cycle))
    cycle = [*cycle[first:], *cycle[: first + 1]]
    by_label = len({nodes[i][0] for i in cycle}) < len(cycle) - 1
    names = [nodes[i][1] if by_label else nodes[i][0] for i in cycle]
    role = next(role for role, other in needs[cycle[0]].items() if other == cycle[1])
    reference = next(r for r in nodes[cycle[0]][3] if r.role == role)
    return SpecError(reference.path, f"dependencies form a cycle: {' → '.join(names)}")
