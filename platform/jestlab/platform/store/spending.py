"""Planned and actual costs of runs, and the speed of programs."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, column, func, select, table, text, true

from jestlab.analysis.goodput import QUERY, AttemptTime
from jestlab.platform.store.provenance import device
from jestlab.platform.store.records import RunState, Speed, Spending
from jestlab.platform.store.rows import one_of
from jestlab.platform.store.tables import AttemptRow, CostRow, RunRow

if TYPE_CHECKING:
    from jestlab.platform.spec.resources import ExecutorName
    from jestlab.platform.store.store import Store

_RECENT = 100  # runs of a program: enough for a median
_APART = 1.5  # smallest ratio of FLOPs between runs whose times are compared
_LEAST_COMPUTED = 0.1  # smallest share of a run's time that counts as computing


def spending(
    store: Store, experiment: str, fingerprints: Collection[str] | None = None
) -> dict[str, Spending]:
    """Return planned and actual costs of runs of an experiment, by default of all, by fingerprint."""
    columns: list[Any] = [column(name) for name in ("fingerprint", *Spending.__dataclass_fields__)]
    query: Any = select(*columns).select_from(table("v_costs")).where(column("experiment") == experiment)
    if fingerprints is not None:
        query = query.where(one_of(column("fingerprint", Text), fingerprints))
    return {run: Spending(*costs) for run, *costs in store.rows(query)}


def attempt_times(store: Store, experiment: str) -> list[AttemptTime]:
    """Return how the time of every attempt at the runs of an experiment was spent."""
    rows = store.rows(text(QUERY).bindparams(experiment=experiment))
    return [AttemptTime(*row) for row in rows]


def speeds(
    store: Store, programs: Iterable[str], place: ExecutorName = "local", chips: int | None = None
) -> dict[str, Speed]:
    """Return the speed of programs on the device on which runs would start; unknown ones are left out.

    Only runs count that their first attempt completed, so that their time is the time of their planned FLOPs.
    On this machine, runs on any machine with the same device count. On other executors, runs with the same
    device as the last one count. `place` is the executor, `chips` the number of chips of each run, if any.
    """
    measured = {program: _taken(store, program, place, chips) for program in sorted(set(programs))}
    return {program: _speed(runs) for program, runs in measured.items() if runs}


def _speed(runs: Sequence[tuple[float, float]]) -> Speed:
    """Fit start-up seconds and FLOP/s to runs by the Theil–Sen estimator.

    The slope is the median over pairs of runs, which is robust against a few slow ones. Short runs mostly
    start up and compile, so their mean rate would overestimate longer runs. If all runs have similar FLOPs,
    all their time counts as computing, which overestimates longer runs rather than underestimating them. For
    the same reason, at least a tenth of the time counts as computing.

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
    """Return FLOPs and seconds of a program's last runs on the kind of device of the next one."""
    first = [AttemptRow.executor == place, AttemptRow.number == 1, AttemptRow.state == RunState.COMPLETED]
    if chips is not None:
        first.append(AttemptRow.chips == chips)
    newest_first = (
        select(RunRow.id, AttemptRow.device, AttemptRow.started_at, AttemptRow.ended_at)
        .join(AttemptRow, AttemptRow.run_id == RunRow.id)
        .where(RunRow.program == program, RunRow.state == RunState.COMPLETED, *first)
        .order_by(AttemptRow.ended_at.desc())
    )
    here = AttemptRow.host == socket.gethostname() if place == "local" else true()
    with store.reading() as connection:
        # Only a program that has loaded JAX knows the accelerator of its machine, so the last one counts.
        last = connection.execute(newest_first.where(here).limit(1)).first()
        if last is None and place != "local":
            return []
        kind = last.device if last is not None else device()
        runs = connection.execute(newest_first.where(AttemptRow.device == kind).limit(_RECENT)).all()
        total = select(CostRow.run_id, func.sum(CostRow.flops)).group_by(CostRow.run_id)
        of_these = total.where(CostRow.run_id.in_([run.id for run in runs]))
        flops = dict(connection.execute(of_these).tuples().all())
    seconds = {run.id: (run.ended_at - run.started_at).total_seconds() for run in runs}
    return [(flops[run], time) for run, time in seconds.items() if time > 0 and flops.get(run)]
