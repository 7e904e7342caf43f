"""Leases: which attempt holds a run, which launcher looks after it, and the states that runs move to.

Each function is one transaction, except `move` and `finish`, which are part of one.

At most one attempt at a run is PENDING or RUNNING at any time: a launcher claims a run here before it
launches it, and of several launchers one gets the claim. Nothing here compares clocks: a launcher that takes
another launcher, or a worker, for dead ends or adopts the attempt as it saw it, and is refused if the attempt
has changed since.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, delete, func, select, update
from sqlalchemy.orm import aliased

from jestlab.platform.store.records import LIVE, Lease, RunState, Standing, check_move
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Launcher, Run, chunks, insert, now

_LONG_GONE = timedelta(days=7)
_OF_RUN = tuple(name for name in Standing.__dataclass_fields__ if name not in ("fruitless", "lease"))
_OF_ATTEMPT = tuple(name for name in Lease.__dataclass_fields__ if name not in ("launcher", "fingerprint"))


class Claim(NamedTuple):
    """An attempt that a launcher may start.

    Attributes:
        attempt_id: The fencing token.
        number: 1, 2, … within the run.
        token: The secret that its job bears.
    """

    attempt_id: int
    number: int
    token: str


def enter_launcher(store: Store, name: str) -> int:
    """Enter a launcher, unless it is there, and return its id; forget launchers that are long gone."""
    with store.writing() as connection:
        watched = select(Attempt.launcher_id).where(Attempt.launcher_id.is_not(None), Attempt.state.in_(LIVE))
        long_gone = Launcher.heartbeat_at < now() - _LONG_GONE
        connection.execute(delete(Launcher).where(long_gone, Launcher.id.not_in(watched)))
        statement = insert(connection, Launcher).values(name=name, heartbeat_at=now())
        connection.execute(
            statement.on_conflict_do_update(index_elements=["name"], set_={"heartbeat_at": now()})
        )
        return int(connection.execute(select(Launcher.id).where(Launcher.name == name)).scalar_one())


def beat(store: Store, launcher_id: int) -> None:
    """Record the time of a launcher's heartbeat."""
    with store.writing() as connection:
        connection.execute(update(Launcher).where(Launcher.id == launcher_id).values(heartbeat_at=now()))


def heartbeats(store: Store) -> dict[str, datetime]:
    """Return every launcher's last heartbeat, by name; only a change of it has a meaning."""
    with store.reading() as connection:
        rows = connection.execute(select(Launcher.name, Launcher.heartbeat_at))
        return dict(rows.tuples().all())


def leave(store: Store, launcher_id: int) -> None:
    """Remove a launcher; attempts that it looked after can be adopted."""
    with store.writing() as connection:
        connection.execute(update(Attempt).where(Attempt.launcher_id == launcher_id).values(launcher_id=None))
        connection.execute(delete(Launcher).where(Launcher.id == launcher_id))


def standings(store: Store, fingerprints: Iterable[str]) -> dict[str, Standing]:
    """Return how runs stand, all at one moment."""
    last = aliased(Attempt)
    fruitless = (
        select(func.count())
        .where(last.run_id == Run.id, last.state == RunState.PREEMPTED, last.first_step == Run.step)
        .correlate(Run)
        .scalar_subquery()
    )
    newest = select(func.max(last.number)).where(last.run_id == Run.id).correlate(Run).scalar_subquery()
    query = (
        select(
            *(getattr(Run, name) for name in _OF_RUN),
            fruitless.label("fruitless"),
            *(getattr(Attempt, name).label(f"attempt_{name}") for name in _OF_ATTEMPT),
            Launcher.name.label("attempt_launcher"),
        )
        .select_from(Run)
        .outerjoin(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == newest))
        .outerjoin(Launcher, Launcher.id == Attempt.launcher_id)
    )
    with store.reading() as connection:
        return {
            row.fingerprint: _standing(row._mapping)
            for chunk in chunks(fingerprints)
            for row in connection.execute(query.where(Run.fingerprint.in_(chunk)))
        }


def _standing(row: RowMapping) -> Standing:
    lease = None
    if row["attempt_id"] is not None:
        values = {name: row[f"attempt_{name}"] for name in (*_OF_ATTEMPT, "launcher")}
        values |= {"state": RunState(values["state"]), "fingerprint": row["fingerprint"]}
        lease = Lease(**values)
    values = {name: row[name] for name in (*_OF_RUN, "fruitless")}
    return Standing(**{**values, "state": RunState(values["state"])}, lease=lease)


def claim(
    store: Store,
    fingerprint: str,
    launcher_id: int,
    executor: str,
    chips: int,
    log: str,
    lease_seconds: float = 90.0,
) -> Claim | None:
    """Claim a run for a new attempt.

    Args:
        store: The store.
        fingerprint: The run.
        launcher_id: The launcher that claims it.
        executor: Name of the executor that will run its job.
        chips: Number of accelerator chips that the job will occupy.
        log: The run's log, relative to the lab's root.
        lease_seconds: How long its worker may be silent.

    Returns:
        The claim; None if another attempt holds the run, it is COMPLETED, or its user wants it to stop.
    """
    with store.writing() as connection:
        run = connection.execute(
            select(Run.id, Run.state, Run.stop_reason, Run.step)
            .where(Run.fingerprint == fingerprint)
            .with_for_update(key_share=True)
        ).one()
        if run.state == RunState.COMPLETED or run.stop_reason is not None:
            return None
        live, number = connection.execute(
            select(func.count().filter(Attempt.state.in_(LIVE)), func.max(Attempt.number)).where(
                Attempt.run_id == run.id
            )
        ).one()
        if live:
            return None
        if run.state not in LIVE:
            move(connection, fingerprint, RunState.PENDING, None)
        claimed = {
            "run_id": run.id,
            "number": (number or 0) + 1,
            "state": RunState.PENDING,
            "launcher_id": launcher_id,
            "executor": executor,
            "chips": chips,
            "lease_seconds": lease_seconds,
            "claimed_at": now(),
            "heartbeat_at": now(),
            "first_step": run.step,
            "log": log,
            "token": secrets.token_hex(16),
        }
        attempt_id = connection.execute(
            insert(connection, Attempt).values(**claimed).returning(Attempt.id)
        ).scalar_one()
        return Claim(attempt_id, claimed["number"], claimed["token"])


def launched(store: Store, attempt_id: int, handle: str) -> None:
    """Store the handle of an attempt's job."""
    with store.writing() as connection:
        connection.execute(update(Attempt).where(Attempt.id == attempt_id).values(handle=handle))


def waits(store: Store, lease: Lease, reason: str) -> None:
    """Store why the job of an attempt has not started yet, unless it has."""
    pending = select(Attempt.run_id).where(Attempt.id == lease.id, Attempt.state == RunState.PENDING)
    with store.writing() as connection:
        connection.execute(
            update(Run)
            .where(Run.id.in_(pending), Run.state == RunState.PENDING)
            .values(reason=reason, updated_at=now())
        )


def adopt(store: Store, lease: Lease, launcher_id: int) -> bool:
    """Look after an attempt whose launcher has gone; return False if another launcher does so already."""
    owner = select(Launcher.id).where(Launcher.name == lease.launcher).scalar_subquery()
    same = Attempt.launcher_id.is_(None) if lease.launcher is None else Attempt.launcher_id == owner
    with store.writing() as connection:
        return bool(
            connection.execute(
                update(Attempt)
                .where(Attempt.id == lease.id, Attempt.state.in_(LIVE), same)
                .values(launcher_id=launcher_id)
            ).rowcount
        )


def end(
    store: Store,
    fingerprint: str,
    attempt_id: int,
    state: RunState,
    reason: str,
    exit_code: int | None,
    heartbeat_at: datetime | None = None,
) -> bool:
    """End an attempt whose worker can no longer do so: later writes of its worker are refused.

    Args:
        store: The store.
        fingerprint: The run.
        attempt_id: Its attempt.
        state: New state of both.
        reason: Why.
        exit_code: Of the process, if it is known.
        heartbeat_at: Its last heartbeat, if it is ended because none has followed.

    Returns:
        Whether it was ended now: not if it is over already, or another heartbeat has followed.
    """
    with store.writing() as connection:
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
    connection.execute(
        update(Run).where(Run.fingerprint == fingerprint).values(state=state, reason=reason, updated_at=now())
    )


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
    ended = connection.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state.in_(LIVE))
        .values(state=state, reason=reason, exit_code=exit_code, ended_at=now(), **values)
    ).rowcount
    if not ended:
        return False
    # The attempt that holds the run decides its state, whatever others have entered meanwhile.
    failed = 1 if state == RunState.FAILED else 0
    connection.execute(
        update(Run)
        .where(Run.fingerprint == fingerprint, Run.state != RunState.COMPLETED)
        .values(state=state, reason=reason, failures=Run.failures + failed, updated_at=now())
    )
    return True


def enter(store: Store, seen: Standing, state: RunState, reason: str | None) -> bool:
    """Give a run that no attempt holds another state, unless it has changed since it was `seen`.

    Returns:
        Whether it has the state now.
    """
    with store.writing() as connection:
        free = _free(connection, [seen.fingerprint])
        now_seen = connection.execute(
            select(Run.state, func.max(Attempt.number))
            .outerjoin(Attempt, Attempt.run_id == Run.id)
            .where(Run.fingerprint == seen.fingerprint)
            .group_by(Run.state)
        ).one()
        number = seen.lease.number if seen.lease is not None else None
        if not free or tuple(now_seen) != (seen.state, number):
            return False
        move(connection, seen.fingerprint, state, reason)
        return True


def request_stop(store: Store, fingerprints: Sequence[str], reason: str) -> None:
    """Stop runs until they are launched again; runs that no attempt holds are CANCELLED now.

    Workers learn of it with their next heartbeat. FAILED and SKIPPED runs keep their state.
    """
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
                .where(Run.id.in_(free), Run.state.not_in((RunState.FAILED, RunState.SKIPPED)))
                .values(state=RunState.CANCELLED, reason=reason, updated_at=now())
            )


def reopen(store: Store, fingerprints: Sequence[str]) -> None:
    """Allow runs that ended early to run again, with all their retries."""
    with store.writing() as connection:
        for chunk in chunks(fingerprints):
            connection.execute(
                update(Run)
                .where(Run.id.in_(_free(connection, chunk)))
                .values(state=RunState.PENDING, reason=None, failures=0, stop_reason=None, updated_at=now())
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
