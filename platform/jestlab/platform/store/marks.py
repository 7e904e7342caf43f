"""What tells whether anything of a run has changed: as little as can be read of very many runs at a time.

Runs are counted and summed up by their states first, which a database does without handing them out: those of
the whole store, which an index answers alone, and where that has changed those of the experiment. Only of a
state whose sums have changed are the runs themselves read: of ten thousand runs mostly those that go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Executable, String, exists, func, select, type_coerce

from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import Experiment, Member, Run


class Mark(NamedTuple):
    """A run as it was when somebody looked; `updated_at` is text or a time, as the database has it."""

    state: str
    step: int
    total_steps: int | None
    updated_at: object
    stop_reason: str | None
    reason: str | None


class Group(NamedTuple):
    """The runs of one state, summed up: other runs, or a run that has gone on, make another sum."""

    runs: int
    ids: int
    steps: int
    updated_at: object


class Marks(NamedTuple):
    """An experiment as it was when somebody looked.

    Attributes:
        launched: When it was last launched, which may have changed what belongs to it.
        everywhere: State → its runs in the whole store, summed up.
        groups: State → its runs, summed up.
        states: State → fingerprint → mark of each of its runs.
        read: States whose runs have been read for these marks; of others they are as they were.
    """

    launched: object
    everywhere: Mapping[str, Group]
    groups: Mapping[str, Group]
    states: Mapping[str, Mapping[str, Mark]]
    read: frozenset[str]

    def of(self, states: Iterable[RunState]) -> Iterator[str]:
        """Return the runs that are in some states."""
        for state in states:
            yield from self.states.get(state, ())


NOTHING = Marks(None, {}, {}, {}, frozenset())
"""What is known before somebody has looked."""

_SUMS = select(
    Run.state, func.count(), func.sum(Run.id % 1_000_000_007), func.sum(Run.step), func.max(Run.updated_at)
).group_by(Run.state)
_MARKS = select(
    Run.fingerprint,
    *(
        type_coerce(Run.updated_at, String) if name == "updated_at" else getattr(Run, name)
        for name in Mark._fields
    ),
)
"""Of ten thousand runs, of whose times nothing is made: they are only compared."""


def marks(store: Store, experiment: str, before: Marks = NOTHING) -> Marks:
    """Read the marks of an experiment's runs, at one moment.

    Args:
        store: The store.
        experiment: The experiment's name.
        before: What is known already.

    Raises:
        UserError: No such experiment.
    """
    with store.reading() as connection:
        key, launched = experiment, of_experiment(connection, experiment, Experiment.updated_at)
        known = before if launched == before.launched else NOTHING
        everywhere = _groups(connection, _SUMS)
        doubted = [state for state in RunState if everywhere.get(state) != known.everywhere.get(state)]
        groups = {state: group for state, group in known.groups.items() if state not in doubted}
        groups |= _groups(connection, _of(key, _SUMS).where(Run.state.in_(doubted))) if doubted else {}
        changed = frozenset(state for state, group in groups.items() if group != known.groups.get(state))
        states = {state: before.states.get(state, {}) for state in groups} | _marks(connection, key, changed)
    return Marks(launched, everywhere, groups, states, changed)


def _groups(connection: Connection, sums: Executable) -> dict[str, Group]:
    rows = connection.execute(sums).all()
    return {
        state: Group(runs, int(ids), int(steps), updated_at) for state, runs, ids, steps, updated_at in rows
    }


def _marks(connection: Connection, experiment: str, states: frozenset[str]) -> dict[str, dict[str, Mark]]:
    if not states:
        return {}
    query = _of(experiment, _MARKS).where(Run.state.in_(sorted(states)))
    found: dict[str, dict[str, Mark]] = {state: {} for state in states}
    for fingerprint, *mark in connection.execute(query):
        found[mark[0]][fingerprint] = Mark._make(mark)
    return found


def _of(experiment: str, query: Any) -> Any:
    """Narrow a query of runs to an experiment's, so that it can be answered from the index by state."""
    return query.where(exists().where(Member.run_id == Run.id, Member.experiment == experiment))
