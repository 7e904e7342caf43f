"""Leases: the attempt that holds a run, the launcher that looks after it, and changes of the run's state.

Each function is one transaction, except those that take a connection, which are part of one.

At most one attempt at a run is PENDING or RUNNING at any time: a launcher claims a run (see `claims.py`)
before it launches it. Clocks of different machines are never compared. A launcher that considers another
launcher or a worker dead ends or adopts the attempt as it read it, and fails if the attempt has changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, select, update
from sqlalchemy.orm import aliased

from jestlab.platform.store.engine import CLAIMING, one_at_a_time
from jestlab.platform.store.records import (
    LIVE,
    WAITING,
    AttemptLost,
    Lease,
    RunState,
    Standing,
    check_move,
)
from jestlab.platform.store.rows import execute_many, now, one_of, upsert
from jestlab.platform.store.store import Store, of_runs
from jestlab.platform.store.tables import AttemptRow, LauncherRow, RunRow, run_key

_LONG_GONE = timedelta(days=7)
_RUN: Any = RunRow.__table__
_OF_FREE = (RunRow.id, RunRow.fingerprint, RunRow.state, RunRow.step, RunRow.directory)

# ---- launchers


def enter_launcher(store: Store, name: str, lab: str | None = None) -> str:
    """Enter a launcher of a lab unless it exists, delete old ones, and return its name."""
    with store.writing() as connection:
        used = select(AttemptRow.launcher).where(AttemptRow.launcher.is_not(None), AttemptRow.state.in_(LIVE))
        long_gone = LauncherRow.heartbeat_at < now() - _LONG_GONE
        connection.execute(delete(LauncherRow).where(long_gone, LauncherRow.name.not_in(used)))
        row = {"name": name, "heartbeat_at": now(), "lab": lab}
        upsert(connection, LauncherRow, [row], ["name"], list(row))
    return name


def beat_launcher(store: Store, launcher: str) -> None:
    """Record a launcher's heartbeat."""
    with store.writing() as connection:
        connection.execute(update(LauncherRow).where(LauncherRow.name == launcher).values(heartbeat_at=now()))


def heartbeats(store: Store) -> dict[str, datetime]:
    """Return every launcher's last heartbeat by name; its clock may differ from this machine's."""
    return {row.name: row.heartbeat_at for row in store.rows(select(LauncherRow.__table__))}


def remove_launcher(store: Store, launcher: str) -> None:
    """Delete a launcher; others can adopt its attempts."""
    with store.writing() as connection:
        connection.execute(update(AttemptRow).where(AttemptRow.launcher == launcher).values(launcher=None))
        connection.execute(delete(LauncherRow).where(LauncherRow.name == launcher))


def adopt(store: Store, leases: Sequence[Lease], launcher: str) -> list[Lease]:
    """Adopt attempts whose launchers have gone; return those that no other launcher has adopted."""
    adopted = []
    with store.writing() as connection:
        for lease in leases:
            unchanged = AttemptRow.launcher.is_not_distinct_from(lease.launcher)
            attempt = update(AttemptRow).where(
                AttemptRow.id == lease.id, AttemptRow.state.in_(LIVE), unchanged
            )
            if connection.execute(attempt.values(launcher=launcher)).rowcount:
                adopted.append(lease)
    return adopted


# ---- the state of runs


def standings(store: Store, fingerprints: Iterable[str]) -> dict[str, Standing]:
    """Return the standings of runs, all at one moment."""
    past = aliased(AttemptRow)
    fruitless = (
        select(func.count())
        .where(past.run_id == RunRow.id, past.state == RunState.PREEMPTED, past.first_step == RunRow.step)
        .scalar_subquery()
    )
    newest = select(func.max(past.number)).where(past.run_id == RunRow.id).correlate(RunRow).scalar_subquery()
    these = of_runs(fingerprints)
    *names, _ = Standing.__dataclass_fields__
    columns = (fruitless if name == "fruitless" else getattr(RunRow, name) for name in names)
    with store.reading() as connection:
        last = {
            lease.fingerprint: lease for lease in attempts(connection, these, AttemptRow.number == newest)
        }
        return {
            row[0]: Standing(
                **dict(zip(names, row, strict=True))
                | {"state": RunState(row.state), "lease": last.get(row[0])}
            )
            for row in connection.execute(select(*columns).where(these))
        }


def attempts(connection: Connection, *conditions: ColumnElement[bool]) -> list[Lease]:
    """Return the attempts that meet these conditions."""
    columns = (
        RunRow.fingerprint if name == "fingerprint" else getattr(AttemptRow, name)
        for name in Lease.__dataclass_fields__
    )
    query = select(*columns).join(RunRow, RunRow.id == AttemptRow.run_id).where(*conditions)
    return [
        Lease(attempt, run, number, RunState(state), *others)
        for attempt, run, number, state, *others in connection.execute(query)
    ]


def set_reasons(store: Store, reasons: Mapping[str, str], *, claimed: bool) -> None:
    """Store why runs haven't started, by fingerprint.

    With `claimed`, these are runs whose jobs wait, otherwise runs that no attempt holds. Others are left out.
    """
    live = select(AttemptRow.id).where(AttemptRow.run_id == RunRow.id, AttemptRow.state.in_(LIVE)).exists()
    this = (RunRow.id == bindparam("key"), RunRow.state.in_(WAITING), live if claimed else ~live)
    change = update(_RUN).where(*this).values(reason=bindparam("why"))
    with store.writing() as connection:
        for run, reason in reasons.items():
            connection.execute(change, {"key": run_key(run), "why": reason})


def request_stop(store: Store, fingerprints: Sequence[str], reason: str) -> None:
    """Stop runs until they are launched again; runs that no attempt holds become CANCELLED now.

    Workers read the request with their next heartbeat. Runs that have ended keep their state and reason.
    """
    ended = (RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED)
    with store.writing() as connection:
        free = free_runs(connection, fingerprints)
        unfinished = update(RunRow).where(of_runs(fingerprints), RunRow.state != RunState.COMPLETED)
        connection.execute(unfinished.values(stop_reason=reason))
        idle = update(RunRow).where(is_one_of(free), RunRow.state.not_in(ended))
        connection.execute(idle.values(state=RunState.CANCELLED, reason=reason))


def reopen(store: Store, fingerprints: Sequence[str]) -> None:
    """Allow runs that ended early to run again, with all their retries."""
    values = {"state": RunState.PENDING, "reason": None, "failures": 0, "stop_reason": None}
    with store.writing() as connection:
        free = is_one_of(free_runs(connection, fingerprints))
        connection.execute(update(RunRow).where(free).values(**values))


def change_states(store: Store, entries: Sequence[tuple[Standing, RunState, str | None]]) -> int:
    """Change the state of runs that no attempt holds, unless they have changed since they were read.

    `entries` are runs as they were read, with the new state and its reason. Returns how many were changed.
    """
    fingerprints = [run.fingerprint for run, _, _ in entries]
    with store.writing() as connection:
        free = free_runs(connection, fingerprints)
        present = {run.fingerprint: (run.state, run.number) for run in free}
        rows = []
        for run, state, reason in entries:
            if present.get(run.fingerprint) == (run.state, run.lease.number if run.lease else 0):
                check_move(run.fingerprint, run.state, state)
                rows.append({"key": run_key(run.fingerprint), "new": state, "why": reason})
        change = update(_RUN).where(_RUN.c.id == bindparam("key"))
        execute_many(connection, change.values(state=bindparam("new"), reason=bindparam("why")), rows)
        return len(rows)


def free_runs(
    connection: Connection, fingerprints: Iterable[str], *conditions: ColumnElement[bool]
) -> Sequence[Any]:
    """Lock the runs that no attempt holds and that meet conditions, by default those not COMPLETED.

    Only claims make attempts, and they wait for this lock, so none can start meanwhile.

    Returns:
        Columns of the runs, and the number of the last attempt at each, 0 before any.
    """
    one_at_a_time(connection, CLAIMING)
    of_run = AttemptRow.run_id == RunRow.id
    number = select(func.coalesce(func.max(AttemptRow.number), 0)).where(of_run).scalar_subquery()
    live = select(AttemptRow.id).where(of_run, AttemptRow.state.in_(LIVE)).exists()
    query = select(*_OF_FREE, number.label("number")).where(of_runs(fingerprints), ~live)
    query = query.where(*(conditions or (RunRow.state != RunState.COMPLETED,)))
    return connection.execute(query.order_by(RunRow.id).with_for_update(key_share=True)).all()


def is_one_of(runs: Iterable[Any]) -> ColumnElement[bool]:
    """Return the condition that a run is one of these rows."""
    return one_of(RunRow.id, [run.id for run in runs])


def move(connection: Connection, fingerprint: str, state: RunState, reason: str | None = None) -> None:
    """Change a run's state, within a write transaction; IllegalMove if it can't follow the present one."""
    its = RunRow.id == run_key(fingerprint)
    current = connection.execute(select(RunRow.state).where(its).with_for_update()).scalar_one()
    check_move(fingerprint, RunState(current), state)
    connection.execute(update(RunRow).where(its).values(state=state, reason=reason))


# ---- attempts: start, heartbeat, end


def start(
    connection: Connection, fingerprint: str, number: int, again: bool, handle: str, values: dict[str, Any]
) -> Any:
    """Start a PENDING attempt, within a write transaction; AttemptLost if it can't be started.

    Args:
        connection: In a write transaction.
        fingerprint: The run.
        number: Number of the attempt, whose row is returned.
        again: Whether the same process may have started it already.
        handle: Handle of a local job.
        values: Columns of the attempt.
    """
    this = (AttemptRow.run_id == run_key(fingerprint), AttemptRow.number == number)
    row = connection.execute(select(AttemptRow.__table__).where(*this).with_for_update()).one_or_none()
    own = again and row is not None and (row.host, row.pid) == (values["host"], values["pid"])
    if row is None or not (row.state == RunState.PENDING or (own and row.state == RunState.RUNNING)):
        state = "unknown" if row is None else row.state
        raise AttemptLost(f"attempt {number} at run {fingerprint[:8]} is {state}: not started")
    move(connection, fingerprint, RunState.RUNNING, None)
    handle_now = row.handle or (handle if row.executor == "local" else None)
    started = {"state": RunState.RUNNING, "handle": handle_now, "heartbeat_at": now()}
    connection.execute(update(AttemptRow).where(*this).values(**started, **values))
    return row


def heartbeat(connection: Connection, attempt_id: int) -> bool:
    """Record the heartbeat of a worker, within a write transaction.

    Returns whether the attempt is RUNNING; otherwise its worker must not write.
    """
    running = update(AttemptRow).where(AttemptRow.id == attempt_id, AttemptRow.state == RunState.RUNNING)
    return bool(connection.execute(running.values(heartbeat_at=now())).rowcount)


class Ending(NamedTuple):
    """The end of an attempt whose worker can no longer report it.

    Attributes:
        fingerprint: The run.
        attempt_id: The attempt.
        state: New state of both.
        reason: Reason for the state.
        exit_code: Exit code of the process, if known.
        heartbeat_at: Its last heartbeat, if it is ended because none has followed.
    """

    fingerprint: str
    attempt_id: int
    state: RunState
    reason: str
    exit_code: int | None = None
    heartbeat_at: datetime | None = None


def end_all(store: Store, endings: Iterable[Ending]) -> list[Ending]:
    """End attempts, all in one transaction: later writes of their workers are refused.

    Returns those that were ended, without those that had ended already or had a new heartbeat.
    """
    with store.writing() as connection:
        in_order = sorted(endings, key=lambda ending: ending.attempt_id)
        return [ending for ending in in_order if _end(connection, ending)]


def _end(connection: Connection, ending: Ending) -> bool:
    if ending.heartbeat_at is not None:
        last = select(AttemptRow.heartbeat_at).where(AttemptRow.id == ending.attempt_id)
        if connection.scalar(last.with_for_update()) != ending.heartbeat_at:
            return False
    return finish(connection, *ending[:5])


def finish(
    connection: Connection,
    fingerprint: str,
    attempt_id: int,
    state: str,
    reason: str | None,
    exit_code: int | None,
    **values: Any,
) -> bool:
    """End a live attempt and give its run the same state, within a write transaction.

    `values` are further columns of the attempt. Returns False if the attempt had ended already.
    """
    ended = {"state": state, "reason": reason}
    live = update(AttemptRow).where(AttemptRow.id == attempt_id, AttemptRow.state.in_(LIVE))
    columns = {**ended, "exit_code": exit_code, "ended_at": now(), **values}
    if not connection.execute(live.values(**columns)).rowcount:
        return False
    # The attempt that holds the run decides its state, even if others have changed the state meanwhile.
    run = update(RunRow).where(RunRow.id == run_key(fingerprint), RunRow.state != RunState.COMPLETED)
    failures = RunRow.failures + int(state == RunState.FAILED)
    connection.execute(run.values(**ended, failures=failures))
    return True
