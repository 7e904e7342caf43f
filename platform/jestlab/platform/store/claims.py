"""Claims: many runs at once get attempts that a launcher may start, and then the handles of their jobs.

A claim holds its run until the attempt ends: of several launchers one gets it. What launchers may hold
together, whoever they are, is looked at in the transaction that claims, one launcher at a time.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    Connection,
    RowMapping,
    Select,
    and_,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)

from jestlab.analysis import units
from jestlab.platform.store.engine import CLAIMING, one_at_a_time
from jestlab.platform.store.records import LIVE, Lease, RunState, check_move
from jestlab.platform.store.rows import chunks, execute_many, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Budget, Run

LIMIT = "the limit"
"""How the reason of a run begins that would exceed a limit."""

_ROUNDING = 1e-9  # of a sum


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


@dataclass(frozen=True)
class Terms:
    """What attempts are claimed for.

    Attributes:
        launcher: Name of the launcher that claims them.
        executor: Name of the executor that will run their jobs.
        chips: Number of accelerator chips that each job will occupy.
        lease_seconds: How long their workers may be silent.
        lab: The lab that they write to, by its id; None where that is unknown.
    """

    launcher: str
    executor: str
    chips: int
    lease_seconds: float = 90.0
    lab: str | None = None


@dataclass(frozen=True)
class Limits:
    """What the launchers of a store may hold together; without limits, all that they can.

    Attributes:
        slots: Most attempts at a time on the executor; None for any number.
        machine: The machine whose attempts count, by its name in those of launchers; None where jobs go
            elsewhere, and all of the executor do.
        chip_hours: Most chip-hours that may be held and planned since the launch began; hours where there are
            no chips. None for any number.
        since: When the launch began.
        dead: Attempts, by their ids, that hold no slot: whoever is to end them has died, too.
    """

    slots: int | None = None
    machine: str | None = None
    chip_hours: float | None = None
    since: datetime = datetime.min
    dead: frozenset[int] = frozenset()


class Found(NamedTuple):
    """What has been claimed, and what could not be.

    Attributes:
        claims: Fingerprint → claim, in the order of the runs.
        no_slot: Runs for which there is no slot.
        too_dear: Fingerprint → why a run would exceed the limit of chip-hours.
        taken: Slots that are taken now, these claims among them.
        by_others: How many of them by other launchers.
    """

    claims: dict[str, Claim]
    no_slot: list[str]
    too_dear: dict[str, str]
    taken: int = 0
    by_others: int = 0


_NO_LIMITS = Limits()


def claim_all(store: Store, logs: Mapping[str, str], terms: Terms, limits: Limits = _NO_LIMITS) -> Found:
    """Claim runs for new attempts, all in one transaction, as far as the limits allow.

    Args:
        store: The store.
        logs: Fingerprint of each run → its log, relative to the lab's root.
        terms: What for.
        limits: What all launchers may hold together.

    Returns:
        What has been claimed. Those runs are left out that another attempt holds, that are COMPLETED, or that
        their user wants to stop.
    """
    with store.writing() as connection:
        one_at_a_time(connection, CLAIMING)
        free = {run.fingerprint: run for run in _free(connection, logs)}
        wanted = [fingerprint for fingerprint in logs if fingerprint in free]
        holders = _holders(connection, terms.executor, limits) if limits.slots is not None else []
        slots = len(wanted) if limits.slots is None else max(limits.slots - len(holders), 0)
        too_dear = _too_dear(connection, wanted, limits, slots)
        fitting = [fingerprint for fingerprint in wanted if fingerprint not in too_dear]
        chosen = [free[fingerprint] for fingerprint in fitting[:slots]]
        _make_pending(connection, chosen)
        return Found(
            _insert(connection, chosen, logs, terms),
            fitting[slots:],
            too_dear,
            len(holders) + len(chosen),
            sum(launcher != terms.launcher for launcher in holders),
        )


def too_dear(store: Store, fingerprints: Sequence[str], limits: Limits) -> dict[str, str]:
    """Return the runs that would exceed the limit of chip-hours now, and why; the first ones come first."""
    with store.reading() as connection:
        return _too_dear(connection, fingerprints, limits, len(fingerprints))


def claim(
    store: Store,
    fingerprint: str,
    launcher: str,
    executor: str,
    chips: int,
    log: str,
    lease_seconds: float = 90.0,
) -> Claim | None:
    """Claim one run, as `claim_all` does; None if it cannot be claimed."""
    terms = Terms(launcher, executor, chips, lease_seconds)
    return claim_all(store, {fingerprint: log}, terms).claims.get(fingerprint)


def launched(store: Store, handles: Mapping[int, str]) -> None:
    """Store the handles of the jobs of attempts, by the attempts' ids, in one transaction."""
    with store.writing() as connection:
        rows = [{"attempt": attempt, "its_handle": handle} for attempt, handle in sorted(handles.items())]
        execute_many(connection, _LAUNCHED, rows)


# Statements are built once: that takes several times as long as to execute them, and launchers do that often.

_RUNS: BindParameter[Any] = bindparam("runs", expanding=True)
_LAUNCHED = (
    update(Attempt.__table__)  # type: ignore[arg-type]
    .where(Attempt.__table__.c.id == bindparam("attempt"))
    .values(handle=bindparam("its_handle"))
)
_UNLOCKED = (
    select(Run.id, Run.fingerprint, Run.state, Run.step)
    .where(Run.fingerprint.in_(_RUNS), Run.state != RunState.COMPLETED, Run.stop_reason.is_(None))
    .order_by(Run.id)
    .with_for_update(key_share=True)
)
_ATTEMPTS = (
    select(Attempt.run_id, func.count().filter(Attempt.state.in_(LIVE)), func.max(Attempt.number))
    .where(Attempt.run_id.in_(_RUNS))
    .group_by(Attempt.run_id)
)
_PENDING = update(Run).where(Run.id.in_(_RUNS)).values(state=RunState.PENDING, reason=None)
_INSERTED = insert(Attempt).returning(Attempt.run_id, Attempt.id)


class _Free(NamedTuple):
    """A run that can be claimed; `number` is that of its last attempt, 0 before the first."""

    id: int
    fingerprint: str
    state: RunState
    step: int
    number: int


def _free(connection: Connection, fingerprints: Iterable[str]) -> Iterator[_Free]:
    """Lock runs, and find those that can be claimed."""
    for chunk in chunks(fingerprints):
        runs = connection.execute(_UNLOCKED, {"runs": chunk}).all()
        attempts = connection.execute(_ATTEMPTS, {"runs": [run.id for run in runs]})
        known = {run_id: (live, number) for run_id, live, number in attempts}
        for run in runs:
            live, number = known.get(run.id, (0, 0))
            if not live:
                yield _Free(run.id, run.fingerprint, RunState(run.state), run.step, number)


def _holders(connection: Connection, executor: str, limits: Limits) -> list[str | None]:
    """Return the launcher of each attempt that holds a slot."""
    rows = connection.execute(_holding(executor, limits.machine))
    return [row.launcher for row in rows if row.id not in limits.dead]


def holding(store: Store, executor: str, machine: str | None) -> list[Lease]:
    """Return the live attempts that hold a slot of an executor, on one machine or wherever they are."""
    with store.reading() as connection:
        rows = connection.execute(_holding(executor, machine)).mappings()
        return [_lease(row) for row in rows]


_OF_LEASE = tuple(Lease.__dataclass_fields__)


def _lease(row: RowMapping) -> Lease:
    return Lease(**{name: row[name] for name in _OF_LEASE} | {"state": RunState(row["state"])})


@functools.lru_cache(maxsize=8)
def _holding(executor: str, machine: str | None) -> Select[Any]:
    """Select the attempts that hold a slot of an executor, on this machine where it has a name."""
    of_attempt = (getattr(Attempt, name) for name in _OF_LEASE if name != "fingerprint")
    query = (
        select(*of_attempt, Run.fingerprint)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state.in_(LIVE), Attempt.executor == executor)
    )
    if machine is None:
        return query
    by_launcher = Attempt.launcher.startswith(f"{machine}:", autoescape=True)
    if executor != "local":
        return query.where(by_launcher)
    by_handle = Attempt.handle.startswith(f"{machine}:", autoescape=True)
    # An attempt may have been adopted by a launcher of another machine.
    return query.where(or_(by_handle, and_(Attempt.handle.is_(None), by_launcher)))


def _too_dear(
    connection: Connection, fingerprints: Sequence[str], limits: Limits, slots: int
) -> dict[str, str]:
    """Return the runs that would exceed the limit beside those before them that start now, and why."""
    most = limits.chip_hours
    if most is None:
        return {}
    planned: dict[str, float] = {}
    for chunk in chunks(fingerprints):
        budgets = select(Run.fingerprint, Budget.chip_hours).join(Budget, Budget.run_id == Run.id)
        planned |= dict(connection.execute(budgets.where(Run.fingerprint.in_(chunk))).tuples().all())
    held = _held_hours(connection, limits.since)
    found: dict[str, str] = {}
    for fingerprint in fingerprints:
        its = planned.get(fingerprint, 0.0)
        if held + its > most * (1 + _ROUNDING):
            found[fingerprint] = (
                f"{LIMIT} of {most:g} chip-hours is reached: {units.hours(held)} held, {units.hours(its)} "
                "planned for this run"
            )
        elif slots > 0:
            held, slots = held + its, slots - 1
    return found


def _held_hours(connection: Connection, since: datetime) -> float:
    """Return the chip-hours that attempts have held since a time; live ones at least what was planned."""
    query = (
        select(Attempt.state, Attempt.chips, Attempt.started_at, Attempt.ended_at, Budget.chip_hours)
        .outerjoin(Budget, Budget.run_id == Attempt.run_id)
        .where(or_(Attempt.state.in_(LIVE), Attempt.ended_at > since))
    )
    held = 0.0
    for state, chips, started_at, ended_at, planned in connection.execute(query):
        hours = 0.0
        if started_at is not None:
            hours = ((ended_at or now()) - max(started_at, since)).total_seconds() / 3600 * max(chips, 1)
        held += max(hours, planned or 0.0) if state in LIVE else max(hours, 0.0)
    return held


def _make_pending(connection: Connection, runs: Sequence[_Free]) -> None:
    """Give runs the state of those that are about to start; one whose process vanished stays RUNNING."""
    waiting = [run for run in runs if run.state != RunState.RUNNING]
    for run in waiting:
        check_move(run.fingerprint, run.state, RunState.PENDING)
    for chunk in chunks(run.id for run in waiting):
        connection.execute(_PENDING, {"runs": chunk})


def _insert(
    connection: Connection, runs: Sequence[_Free], logs: Mapping[str, str], terms: Terms
) -> dict[str, Claim]:
    """Insert an attempt at each run, and return it as a claim, by fingerprint."""
    rows: list[dict[str, Any]] = [
        {
            "run_id": run.id,
            "number": run.number + 1,
            "state": RunState.PENDING,
            "launcher": terms.launcher,
            "executor": terms.executor,
            "chips": terms.chips,
            "lease_seconds": terms.lease_seconds,
            "claimed_at": now(),
            "heartbeat_at": now(),
            "first_step": run.step,
            "log": logs[run.fingerprint],
            "token": secrets.token_hex(16),
            "lab": terms.lab,
        }
        for run in runs
    ]
    if not rows:
        return {}
    ids = dict(connection.execute(_INSERTED, rows).tuples().all())
    return {
        run.fingerprint: Claim(ids[run.id], row["number"], row["token"])
        for run, row in zip(runs, rows, strict=True)
    }
