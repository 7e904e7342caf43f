"""Leases: which attempt holds a run, which launcher looks after it, and the states that runs move to.

Each function is one transaction, except `move` and `finish`, which are part of one.

At most one attempt at a run is PENDING or RUNNING at any time: a launcher claims a run here before it
launches it (see `claims`). Nothing here compares clocks: a launcher that takes another launcher, or a worker,
for dead ends or adopts the attempt as it saw it, and is refused if the attempt has changed since.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Row, Select, Update, bindparam, delete, func, select, update
from sqlalchemy.orm import aliased

from jestlab.platform.store.records import LIVE, WAITING, Lease, RunState, Standing, check_move
from jestlab.platform.store.rows import chunks, insert, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Launcher, Run

Key = TypeVar("Key", int, str)

_LONG_GONE = timedelta(days=7)
_OF_RUN = tuple(name for name in Standing.__dataclass_fields__ if name not in ("fruitless", "lease"))
_OF_LEASE = tuple(name for name in Lease.__dataclass_fields__ if name != "fingerprint")
_OF_STANDING = (*_OF_RUN, "fruitless")


def enter_launcher(store: Store, name: str, lab: str | None = None) -> str:
    """Enter a launcher of a lab, unless it is there, and forget those that are long gone; return its name."""
    with store.writing() as connection:
        watched = select(Attempt.launcher).where(Attempt.launcher.is_not(None), Attempt.state.in_(LIVE))
        long_gone = Launcher.heartbeat_at < now() - _LONG_GONE
        connection.execute(delete(Launcher).where(long_gone, Launcher.name.not_in(watched)))
        statement = insert(connection, Launcher).values(name=name, heartbeat_at=now(), lab=lab)
        connection.execute(
            statement.on_conflict_do_update(index_elements=["name"], set_={"heartbeat_at": now(), "lab": lab})
        )
    return name


def beat(store: Store, launcher: str) -> None:
    """Record the time of a launcher's heartbeat."""
    with store.writing() as connection:
        connection.execute(update(Launcher).where(Launcher.name == launcher).values(heartbeat_at=now()))


def heartbeats(store: Store) -> dict[str, datetime]:
    """Return every launcher's last heartbeat, by name; only a change of it has a meaning."""
    with store.reading() as connection:
        rows = connection.execute(select(Launcher.name, Launcher.heartbeat_at))
        return dict(rows.tuples().all())


def leave(store: Store, launcher: str) -> None:
    """Remove a launcher; attempts that it looked after can be adopted."""
    with store.writing() as connection:
        connection.execute(update(Attempt).where(Attempt.launcher == launcher).values(launcher=None))
        connection.execute(delete(Launcher).where(Launcher.name == launcher))


def standings(store: Store, fingerprints: Iterable[str]) -> dict[str, Standing]:
    """Return how runs stand, all at one moment."""
    with store.reading() as connection:
        return {
            standing.fingerprint: standing
            for chunk in chunks(fingerprints)
            for standing in map(_standing, connection.execute(_standings(), {"runs": chunk}))
        }


@functools.cache  # to build it takes several times as long as to execute it, and launchers do that often
def _standings() -> Select[Any]:
    last = aliased(Attempt)
    fruitless = (
        select(func.count())
        .where(last.run_id == Run.id, last.state == RunState.PREEMPTED, last.first_step == Run.step)
        .correlate(Run)
        .scalar_subquery()
    )
    newest = select(func.max(last.number)).where(last.run_id == Run.id).correlate(Run).scalar_subquery()
    return (
        select(
            *(getattr(Run, name) for name in _OF_RUN),
            fruitless,
            *(getattr(Attempt, name) for name in _OF_LEASE),
        )
        .select_from(Run)
        .outerjoin(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == newest))
        .where(Run.fingerprint.in_(bindparam("runs", expanding=True)))
    )


def _standing(row: Row[Any]) -> Standing:
    count = len(_OF_STANDING)
    run = dict(zip(_OF_STANDING, row[:count], strict=True))
    its = dict(zip(_OF_LEASE, row[count:], strict=True))
    lease = None
    if its["id"] is not None:
        its |= {"state": RunState(its["state"]), "fingerprint": run["fingerprint"]}
        lease = Lease(**its)
    return Standing(**run | {"state": RunState(run["state"]), "lease": lease})


def waits(store: Store, reasons: Mapping[int, str]) -> None:
    """Store why the jobs of attempts have not started yet, by the attempts' ids, unless they have."""
    with store.writing() as connection:
        for reason, attempts in _grouped(reasons).items():
            pending = select(Attempt.run_id).where(
                Attempt.id.in_(attempts), Attempt.state == RunState.PENDING
            )
            connection.execute(
                update(Run).where(Run.id.in_(pending), Run.state == RunState.PENDING).values(reason=reason)
            )


def wait(store: Store, reasons: Mapping[str, str]) -> None:
    """Store why runs that no attempt holds are not started, by their fingerprints."""
    live = select(Attempt.id).where(Attempt.run_id == Run.id, Attempt.state.in_(LIVE))
    with store.writing() as connection:
        for reason, runs in _grouped(reasons).items():
            for chunk in chunks(runs):
                connection.execute(
                    update(Run)
                    .where(Run.fingerprint.in_(chunk), Run.state.in_(WAITING), ~live.exists())
                    .values(reason=reason)
                )


def adopt(store: Store, leases: Sequence[Lease], launcher: str) -> list[Lease]:
    """Look after attempts whose launchers have gone.

    Returns:
        Those that are looked after now; another launcher may have been faster.
    """
    with store.writing() as connection:
        return [lease for lease in leases if _adopt(connection, lease, launcher)]


def _adopt(connection: Connection, lease: Lease, launcher: str) -> bool:
    unchanged = Attempt.launcher.is_not_distinct_from(lease.launcher)
    return bool(
        connection.execute(
            update(Attempt)
            .where(Attempt.id == lease.id, Attempt.state.in_(LIVE), unchanged)
            .values(launcher=launcher)
        ).rowcount
    )


class Ending(NamedTuple):
    """How an attempt ends whose worker can no longer say so.

    Attributes:
        fingerprint: The run.
        attempt_id: Its attempt.
        state: New state of both.
        reason: Why.
        exit_code: Of the process, if it is known.
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

    Returns:
        Those that were ended now: not what is over already, nor what another heartbeat has followed.
    """
    with store.writing() as connection:
        in_order = sorted(endings, key=lambda ending: ending.attempt_id)
        return [ending for ending in in_order if _end(connection, ending)]


def end(
    store: Store,
    fingerprint: str,
    attempt_id: int,
    state: RunState,
    reason: str,
    exit_code: int | None,
    heartbeat_at: datetime | None = None,
) -> bool:
    """End one attempt, as `end_all` does; return whether it was ended now."""
    return bool(end_all(store, [Ending(fingerprint, attempt_id, state, reason, exit_code, heartbeat_at)]))


def _end(connection: Connection, ending: Ending) -> bool:
    fingerprint, attempt_id, state, reason, exit_code, heartbeat_at = ending
    if heartbeat_at is not None:
        seen = connection.scalar(
            select(Attempt.heartbeat_at).where(Attempt.id == attempt_id).with_for_update()
        )
        if seen != heartbeat_at:
            return False
    return finish(connection, fingerprint, attempt_id, state, reason, exit_code)


def move(connection: Connection, fingerprint: str, state: RunState, reason: str | None = None) -> None:
    """Change a run's state, within a write transaction; IllegalMove if it cannot follow the present one."""
    current = connection.execute(
        select(Run.state).where(Run.fingerprint == fingerprint).with_for_update()
    ).scalar_one()
    check_move(fingerprint, RunState(current), state)
    connection.execute(update(Run).where(Run.fingerprint == fingerprint).values(state=state, reason=reason))


def finish(
    connection: Connection,
    fingerprint: str,
    attempt_id: int,
    state: RunState,
    reason: str | None,
    exit_code: int | None,
    **values: Any,
) -> bool:
    """End a live attempt and give its run the same state, within a write transaction.

    `values` are further columns of the attempt. Returns False if the attempt was over already.
    """
    new = {"state": state, "reason": reason, "exit_code": exit_code, "ended_at": now(), **values}
    its_values = {f"new_{name}": value for name, value in new.items()}
    if not connection.execute(_finish_attempt(tuple(new)), {"its_id": attempt_id, **its_values}).rowcount:
        return False
    failed = 1 if state == RunState.FAILED else 0
    how = {"new_state": state, "new_reason": reason, "failed": failed}
    connection.execute(_FINISH_RUN, {"run": fingerprint, **how})
    return True


@functools.cache
def _finish_attempt(columns: tuple[str, ...]) -> Update:
    return (
        update(Attempt)
        .where(Attempt.id == bindparam("its_id"), Attempt.state.in_(LIVE))
        .values({name: bindparam(f"new_{name}") for name in columns})
    )


_FINISH_RUN = (
    update(Run)
    .where(Run.fingerprint == bindparam("run"), Run.state != RunState.COMPLETED)
    .values(
        state=bindparam("new_state"),
        reason=bindparam("new_reason"),
        failures=Run.failures + bindparam("failed"),
    )
)
"""The attempt that holds the run decides its state, whatever others have entered meanwhile."""


def enter(store: Store, entries: Sequence[tuple[Standing, RunState, str | None]]) -> int:
    """Give runs that no attempt holds other states, unless they have changed since they were seen.

    Args:
        store: The store.
        entries: Each run as it was seen, its new state, and why.

    Returns:
        How many have theirs now.
    """
    with store.writing() as connection:
        seen = {run.fingerprint: run for run, _, _ in entries}
        free: set[int] = set()
        present: dict[str, tuple[int, str, int | None]] = {}
        query = (
            select(Run.fingerprint, Run.id, Run.state, func.max(Attempt.number))
            .outerjoin(Attempt, Attempt.run_id == Run.id)
            .group_by(Run.fingerprint, Run.id, Run.state)
        )
        for chunk in chunks(seen):
            free |= set(_free(connection, chunk))
            for fingerprint, found_id, seen_state, last in connection.execute(
                query.where(Run.fingerprint.in_(chunk))
            ):
                present[fingerprint] = (found_id, seen_state, last)
        wanted: dict[tuple[RunState, str | None], list[int]] = defaultdict(list)
        for run, entered, reason in entries:
            if run.fingerprint not in present:
                continue
            run_id, current, number = present[run.fingerprint]
            as_seen = (run.state, run.lease.number if run.lease is not None else None)
            if run_id in free and (current, number) == as_seen:
                check_move(run.fingerprint, RunState(current), entered)
                wanted[entered, reason].append(run_id)
        for (entered, reason), runs in wanted.items():
            for some in chunks(runs):
                connection.execute(update(Run).where(Run.id.in_(some)).values(state=entered, reason=reason))
        return sum(map(len, wanted.values()))


def _grouped(reasons: Mapping[Key, str]) -> dict[str, list[Key]]:
    """Return the attempts or runs that have each reason: one statement for all of them."""
    found: dict[str, list[Key]] = defaultdict(list)
    for one, reason in reasons.items():
        found[reason].append(one)
    return found


def request_stop(store: Store, fingerprints: Sequence[str], reason: str) -> None:
    """Stop runs until they are launched again; runs that no attempt holds are CANCELLED now.

    Workers learn of it with their next heartbeat. Runs that have ended keep their state and its reason.
    """
    over = (RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED)
    with store.writing() as connection:
        for chunk in chunks(fingerprints):
            free = _free(connection, chunk)
            connection.execute(
                update(Run)
                .where(Run.fingerprint.in_(chunk), Run.state != RunState.COMPLETED)
                .values(stop_reason=reason)
            )
            connection.execute(
                update(Run)
                .where(Run.id.in_(free), Run.state.not_in(over))
                .values(state=RunState.CANCELLED, reason=reason)
            )


def reopen(store: Store, fingerprints: Sequence[str]) -> None:
    """Allow runs that ended early to run again, with all their retries."""
    with store.writing() as connection:
        for chunk in chunks(fingerprints):
            connection.execute(
                update(Run)
                .where(Run.id.in_(_free(connection, chunk)))
                .values(state=RunState.PENDING, reason=None, failures=0, stop_reason=None)
            )


def _free(connection: Connection, fingerprints: Sequence[str]) -> list[int]:
    """Lock runs; return the ids of those that are neither COMPLETED nor held by an attempt."""
    runs = list(
        connection.scalars(
            select(Run.id)
            .where(Run.fingerprint.in_(fingerprints), Run.state != RunState.COMPLETED)
            .order_by(Run.id)
            .with_for_update(key_share=True)
        )
    )
    held = set(
        connection.scalars(select(Attempt.run_id).where(Attempt.run_id.in_(runs), Attempt.state.in_(LIVE)))
    )
    return [run_id for run_id in runs if run_id not in held]
