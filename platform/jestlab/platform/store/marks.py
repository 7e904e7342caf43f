"""What tells whether anything of a run has changed: as little as can be read of very many runs at a time.

Runs are counted and summed up by their states first, which a database does without handing them out. Only of
a state whose sums have changed are the runs themselves read: of ten thousand runs mostly those that go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, exists, func, select

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
        groups: State → its runs, summed up.
        states: State → fingerprint → mark of each of its runs.
        read: States whose runs have been read for these marks; of others they are as they were.
    """

    launched: object
    groups: Mapping[str, Group]
    states: Mapping[str, Mapping[str, Mark]]
    read: frozenset[str]

    def of(self, states: Iterable[RunState]) -> Iterator[str]:
        """Return the runs that are in some states."""
        for state in states:
            yield from self.states.get(state, ())


NOTHING = Marks(None, {}, {}, frozenset())
"""What is known before somebody has looked."""


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
        key, launched = connection.execute(
            select(Experiment.id, Experiment.updated_at).where(
                Experiment.id == of_experiment(connection, experiment, Experiment.id)
            )
        ).one()
        groups = _groups(connection, key)
        known = before.groups if launched == before.launched else {}
        changed = frozenset(state for state, group in groups.items() if group != known.get(state))
        states = {state: before.states.get(state, {}) for state in groups} | _marks(connection, key, changed)
    return Marks(launched, groups, states, changed)


def _groups(connection: Connection, experiment: int) -> dict[str, Group]:
    sums = (func.count(), func.sum(Run.id), func.sum(Run.step), func.max(Run.updated_at))
    rows = connection.execute(_of(experiment, select(Run.state, *sums)).group_by(Run.state)).all()
    return {
        state: Group(runs, int(ids), int(steps), updated_at) for state, runs, ids, steps, updated_at in rows
    }


def _marks(connection: Connection, experiment: int, states: frozenset[str]) -> dict[str, dict[str, Mark]]:
    if not states:
        return {}
    columns = (Run.fingerprint, *(getattr(Run, name) for name in Mark._fields))
    query = _of(experiment, select(*columns)).where(Run.state.in_(sorted(states)))
    # Ten thousand rows at a time: neither objects nor times are made of them.
    sql = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
    found: dict[str, dict[str, Mark]] = {state: {} for state in states}
    for fingerprint, *mark in connection.exec_driver_sql(sql).fetchall():
        found[mark[0]][fingerprint] = Mark._make(mark)
    return found


def _of(experiment: int, query: Any) -> Any:
    """Narrow a query of runs to an experiment's, so that it can be answered from the index by state."""
    return query.where(exists().where(Member.run_id == Run.id, Member.experiment_id == experiment))
