"""Find the runs that have changed since an earlier look, however many runs there are.

Every change to a run gives it a new number, `run.change`, whether its state, reason, or progress changed.
In SQLite, whose writers take turns, that is the next greater number. In PostgreSQL it is the number of the
writer's transaction. There, writers can commit in any order, so a reader starts again at the oldest
transaction that was still open at its last look: a change can be reported twice, but is never missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, exists, func, select, text

from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import Experiment, Member, Run


class ChangedRun(NamedTuple):
    """The present state of a run."""

    fingerprint: str
    state: RunState
    reason: str | None
    step: int
    total_steps: int | None
    stop_reason: str | None


class RunChanges(NamedTuple):
    """The changes to an experiment since a cursor.

    Attributes:
        cursor: To pass to the next call.
        launched_at: When the experiment was last launched. If this differs from the last call, other runs may
            belong to it.
        runs: The runs that have changed.
    """

    cursor: int
    launched_at: datetime
    runs: Sequence[ChangedRun]


def changes_since(store: Store, experiment: str, cursor: int = 0) -> RunChanges:
    """Return the runs of an experiment that have changed since a cursor; all of them since cursor 0.

    Raises:
        UserError: No such experiment.
    """
    member = exists().where(Member.run_id == Run.id, Member.experiment == experiment)
    columns = [getattr(Run, name) for name in ChangedRun._fields]
    with store.reading() as connection:
        launched_at = of_experiment(connection, experiment, Experiment.updated_at)
        rows = connection.execute(select(*columns).where(Run.change >= cursor, member)).all()
        runs = [ChangedRun(row[0], RunState(row[1]), *row[2:]) for row in rows]
        return RunChanges(_next_cursor(connection), launched_at, runs)


def _next_cursor(connection: Connection) -> int:
    """Return a number that no change visible to this transaction has, but every later one will reach."""
    if connection.dialect.name == "postgresql":
        oldest = connection.scalar(text("SELECT txid_snapshot_xmin(txid_current_snapshot())"))
        return int(oldest or 0)
    return int(connection.scalar(select(func.max(Run.change))) or 0) + 1
