"""What runs were planned to cost, what they did cost, and how fast they were."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import func, select, text

from jestlab.platform.store.provenance import device
from jestlab.platform.store.records import Speed, Spending
from jestlab.platform.store.states import RunState
from jestlab.platform.store.tables import Attempt, Cost, Run

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store

_RECENT = 100  # runs of a program: enough for a median


def spending(store: Store, experiment: str) -> dict[str, Spending]:
    """What each run of an experiment was planned to cost and has cost, by fingerprint."""
    columns = ", ".join(Spending.__dataclass_fields__)
    query = text(f"SELECT fingerprint, {columns} FROM v_costs WHERE experiment = :experiment")
    with store.reading() as connection:
        rows = connection.execute(query, {"experiment": experiment}).all()
    return {row.fingerprint: Spending(*row[1:]) for row in rows}


def speeds(store: Store, programs: Iterable[str]) -> dict[str, Speed]:
    """How fast programs have been on machines like this one; those that never completed here are left out.

    A run counts if its first attempt completed it: what it computed is then its planned cost, all of it, and
    the time is its own. The machine is like this one if JAX, or else the processor, has the same name.
    """
    found = {}
    for program in sorted(set(programs)):
        rates = _rates(store, program)
        if rates:
            found[program] = Speed(statistics.median(rates), len(rates))
    return found


def _rates(store: Store, program: str) -> list[float]:
    """FLOP/s of the last runs of a program on the kind of device that this machine computes on."""
    alone = (Attempt.executor == "local", Attempt.number == 1, Attempt.state == RunState.COMPLETED)
    newest_first = (
        select(Run.id, Attempt.host, Attempt.device, Attempt.started_at, Attempt.ended_at)
        .join(Attempt, Attempt.run_id == Run.id)
        .where(Run.program == program, Run.state == RunState.COMPLETED, *alone)
        .order_by(Attempt.ended_at.desc())
    )
    with store.reading() as connection:
        # Which accelerator this machine has, only a program knows that has loaded JAX: ask the last one.
        last = connection.execute(newest_first.where(Attempt.host == socket.gethostname()).limit(1)).first()
        kind = last.device if last is not None else device()
        runs = connection.execute(newest_first.where(Attempt.device == kind).limit(_RECENT)).all()
        whole = select(Cost.run_id, func.sum(Cost.flops)).group_by(Cost.run_id)
        of_these = whole.where(Cost.run_id.in_([run.id for run in runs]))
        flops = dict(connection.execute(of_these).tuples().all())
    seconds = {run.id: (run.ended_at - run.started_at).total_seconds() for run in runs}
    return [flops[run] / taken for run, taken in seconds.items() if taken > 0 and flops.get(run)]
