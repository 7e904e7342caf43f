"""What runs were planned to cost, what they did cost, and how fast they were."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from sqlalchemy import func, select, text, true

from jestlab.analysis.costs.goodput import QUERY, AttemptTime
from jestlab.platform.store.provenance import device
from jestlab.platform.store.records import RunState, Speed, Spending
from jestlab.platform.store.tables import Attempt, Cost, Run

if TYPE_CHECKING:
    from jestlab.platform.spec.resources import ExecutorName
    from jestlab.platform.store.store import Store

_RECENT = 100  # runs of a program: enough for a median
_APART = 1.5  # times as many FLOPs: what runs that differ by less took says nothing of their FLOPs
_LEAST_COMPUTED = 0.1  # of a run's time: less cannot be told from how much runs that are alike differ


def spending(store: Store, experiment: str) -> dict[str, Spending]:
    """What each run of an experiment was planned to cost and has cost, by fingerprint."""
    columns = ", ".join(Spending.__dataclass_fields__)
    query = text(f"SELECT fingerprint, {columns} FROM v_costs WHERE experiment = :experiment")
    with store.reading() as connection:
        rows = connection.execute(query, {"experiment": experiment}).all()
    return {row.fingerprint: Spending(*row[1:]) for row in rows}


def attempt_times(store: Store, experiment: str) -> list[AttemptTime]:
    """Where the time of every attempt at the runs of an experiment went, as far as it is known."""
    with store.reading() as connection:
        rows = connection.execute(text(QUERY), {"experiment": experiment}).mappings().all()
    return [AttemptTime.of(row) for row in rows]


def speeds(
    store: Store, programs: Iterable[str], place: ExecutorName = "local", chips: int | None = None
) -> dict[str, Speed]:
    """How fast programs have been where runs are about to go; those that never completed there are left out.

    A run counts if its first attempt completed it: what it computed is then its planned cost, all of it, and
    the time is its own. On this machine those count, too, that ran on one like it: JAX, or else the
    processor, has the same name. Elsewhere those count that had the same device as the last one.

    Args:
        store: Where earlier runs are.
        programs: The programs.
        place: Name of the executor.
        chips: How many chips each run has; None for any number.
    """
    found = {}
    for program in sorted(set(programs)):
        if runs := _taken(store, program, place, chips):
            found[program] = _speed(runs)
    return found


def _speed(runs: Sequence[tuple[float, float]]) -> Speed:
    """The line through runs: seconds to start, and FLOP/s from then on.

    A short run mostly starts and compiles. A longer one does so once, too: by the mean rate of short ones it
    would seem to take many times what it does. So the slope of the line counts, after Theil and Sen: the
    median over pairs of runs, which a few that were slow for another reason do not move. Where the line is
    not to be had from the runs, it stays between two that are. Runs that are all alike say nothing of other
    lengths, and then all their time counts as computing, which is right for more of the same and for runs
    that are long already, and too much rather than too little for longer ones. And at least a tenth of their
    time does, even if longer ones happened to take no more: else they would promise any length for nothing.

    Args:
        runs: FLOPs and seconds of each, both above 0.
    """
    whole = statistics.median(seconds / flops for flops, seconds in runs)
    pairs = (pair for pair in combinations(sorted(runs), 2) if pair[1][0] >= _APART * pair[0][0])
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs]
    slope = statistics.median(slopes) if slopes else whole
    slope = min(max(slope, _LEAST_COMPUTED * whole), whole)
    start = statistics.median(seconds - slope * flops for flops, seconds in runs)
    return Speed(1 / slope, len(runs), max(0.0, start))


def _taken(store: Store, program: str, place: ExecutorName, chips: int | None) -> list[tuple[float, float]]:
    """FLOPs and seconds of the last runs of a program on the kind of device that the next one will have."""
    alone = [Attempt.executor == place, Attempt.number == 1, Attempt.state == RunState.COMPLETED]
    if chips is not None:
        alone.append(Attempt.chips == chips)
    newest_first = (
        select(Run.id, Attempt.host, Attempt.device, Attempt.started_at, Attempt.ended_at)
        .join(Attempt, Attempt.run_id == Run.id)
        .where(Run.program == program, Run.state == RunState.COMPLETED, *alone)
        .order_by(Attempt.ended_at.desc())
    )
    with store.reading() as connection:
        # Which accelerator a machine has, only a program knows that has loaded JAX: ask the last one.
        on_it = Attempt.host == socket.gethostname() if place == "local" else true()
        last = connection.execute(newest_first.where(on_it).limit(1)).first()
        if last is None and place != "local":
            return []
        kind = last.device if last is not None else device()
        runs = connection.execute(newest_first.where(Attempt.device == kind).limit(_RECENT)).all()
        whole = select(Cost.run_id, func.sum(Cost.flops)).group_by(Cost.run_id)
        of_these = whole.where(Cost.run_id.in_([run.id for run in runs]))
        flops = dict(connection.execute(of_these).tuples().all())
    seconds = {run.id: (run.ended_at - run.started_at).total_seconds() for run in runs}
    return [(flops[run], taken) for run, taken in seconds.items() if taken > 0 and flops.get(run)]
