"""Who works on what: claims of runs by launchers, their end, and the states that runs move to by them.

Each function is one transaction, but `move` and `finish`, which are part of one.

At most one attempt at a run is PENDING or RUNNING at any time: whoever wants to launch a run claims it here
first, and of several launchers one is given it. Nothing here judges by clocks: a launcher that thinks another
one dead, or a worker, says so by ending or adopting what it saw, and is refused if that has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.orm import aliased

from jestlab.platform.store.records import LIVE, Lease, RunState, Standing, check_move
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Launcher, Run, chunks, insert, now

_LONG_GONE = timedelta(days=7)


@dataclass(frozen=True)
class Claim:
    """A run that a launcher may start.

    Attributes:
        attempt_id: The fencing token.
        number: Of the attempt.
    """

    attempt_id: int
    number: int


def enter_launcher(store: Store, name: str) -> int:
    """Enter a launcher, or find it; its id."""
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
    """Say that a launcher lives."""
    with store.writing() as connection:
        connection.execute(update(Launcher).where(Launcher.id == launcher_id).values(heartbeat_at=now()))


def heartbeats(store: Store) -> dict[str, object]:
    """Every launcher's last sign of life, by name; only whether it changes means something."""
    with store.reading() as connection:
        rows = connection.execute(select(Launcher.name, Launcher.heartbeat_at))
        return dict(rows.tuples().all())


def leave(store: Store, launcher_id: int) -> None:
    """Take a launcher out; what it still looked after is free to be adopted."""
    with store.writing() as connection:
        connection.execute(update(Attempt).where(Attempt.launcher_id == launcher_id).values(launcher_id=None))
        connection.execute(delete(Launcher).where(Launcher.id == launcher_id))


def standings(store: Store, fingerprints: Iterable[str]) -> dict[str, Standing]:
    """How runs stand, at one moment."""
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
            Run.fingerprint,
            Run.state.label("run_state"),
            Run.reason.label("run_reason"),
            Run.failures,
            Run.stop_reason,
            fruitless.label("fruitless"),
            Run.step,
            Run.total_steps,
            Run.directory,
            Attempt.id,
            Attempt.number,
            Attempt.state,
            Attempt.reason,
            Launcher.name.label("launcher"),
            Attempt.executor,
            Attempt.handle,
            Attempt.lease_seconds,
            Attempt.heartbeat_at,
            Attempt.ended_at,
            Attempt.exit_code,
            Attempt.log,
        )
        .select_from(Run)
        .outerjoin(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == newest))
        .outerjoin(Launcher, Launcher.id == Attempt.launcher_id)
    )
    found = {}
    with store.reading() as connection:
        for chunk in chunks(fingerprints):
            for row in connection.execute(query.where(Run.fingerprint.in_(chunk))):
                found[row.fingerprint] = Standing(
                    fingerprint=row.fingerprint,
                    state=RunState(row.run_state),
                    reason=row.run_reason,
                    failures=row.failures,
                    stop_reason=row.stop_reason,
                    fruitless=row.fruitless,
                    step=row.step,
                    total_steps=row.total_steps,
                    directory=row.directory,
                    lease=None if row.id is None else _lease(row),
                )
    return found


def _lease(row: object) -> Lease:
    values = {name: getattr(row, name) for name in Lease.__dataclass_fields__}
    return Lease(**{**values, "state": RunState(values["state"])})


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
        store: Where.
        fingerprint: The run.
        launcher_id: Who claims it.
        executor: Where its job will run.
        chips: Accelerator chips that the job will occupy.
        log: Of the run, relative to the lab's root.
        lease_seconds: For how long its worker may be silent.

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
        }
        attempt_id = connection.execute(
            insert(connection, Attempt).values(**claimed).returning(Attempt.id)
        ).scalar_one()
        return Claim(attempt_id, claimed["number"])


def launched(store: Store, attempt_id: int, handle: str) -> None:
    """Keep the handle of an attempt's job."""
    with store.writing() as connection:
        connection.execute(update(Attempt).where(Attempt.id == attempt_id).values(handle=handle))


def waits(store: Store, lease: Lease, reason: str) -> None:
    """Keep why the job of an attempt has not begun yet; nothing if it has."""
    pending = select(Attempt.run_id).where(Attempt.id == lease.id, Attempt.state == RunState.PENDING)
    with store.writing() as connection:
        connection.execute(
            update(Run)
            .where(Run.id.in_(pending), Run.state == RunState.PENDING)
            .values(reason=reason, updated_at=now())
        )


def adopt(store: Store, lease: Lease, launcher_id: int) -> bool:
    """Look after an attempt whose launcher has gone; False if another one does by now."""
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
    """End an attempt whose worker can no longer do so.

    From here on whatever its worker still tries to write is refused.

    Args:
        store: Where.
        fingerprint: The run.
        attempt_id: Its attempt.
        state: What both become.
        reason: Why.
        exit_code: Of the process, where it is known.
        heartbeat_at: Its last sign of life, where that it gave none since is the reason.

    Returns:
        Whether it was ended now: not if it is over already, or has given a sign of life after all.
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
    """Change a run's state.

    Args:
        connection: In a write transaction.
        fingerprint: The run.
        state: Its new state.
        reason: Why.

    Raises:
        IllegalMove: The state cannot follow the run's present one.
    """
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
    """End a live attempt and give its run the state; False if the attempt was over already.

    Args:
        connection: In a write transaction.
        fingerprint: The run.
        attempt_id: Its attempt.
        state: What both become.
        reason: Why.
        exit_code: Of the process, where it is known.
        **values: Further columns of the attempt.
    """
    ended = connection.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state.in_(LIVE))
        .values(state=state, reason=reason, exit_code=exit_code, ended_at=now(), **values)
    ).rowcount
    if not ended:
        return False
    # Whoever holds the run says what becomes of it, whatever others have entered meanwhile.
    failed = 1 if state == RunState.FAILED else 0
    connection.execute(
        update(Run)
        .where(Run.fingerprint == fingerprint, Run.state != RunState.COMPLETED)
        .values(state=state, reason=reason, failures=Run.failures + failed, updated_at=now())
    )
    return True


def enter(store: Store, seen: Standing, state: RunState, reason: str | None) -> bool:
    """Give a run that nobody holds another state.

    Args:
        store: Where.
        seen: How the run stood when this was decided.
        state: What it becomes.
        reason: Why.

    Returns:
        Whether it has the state now: not if it stands otherwise by now.
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
    """Have runs stop and stay so until they are launched again; those that nobody holds are CANCELLED now.

    A worker hears of it with its next heartbeat. What failed, or was skipped, stays so.
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
    """Let runs that ended early run again, with all their retries."""
    with store.writing() as connection:
        for chunk in chunks(fingerprints):
            connection.execute(
                update(Run)
                .where(Run.id.in_(_free(connection, chunk)))
                .values(state=RunState.PENDING, reason=None, failures=0, stop_reason=None, updated_at=now())
            )


def _free(connection: Connection, fingerprints: Sequence[str]) -> list[int]:
    """Ids of those runs that are not COMPLETED and that nobody holds, nor can claim before this commits."""
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
