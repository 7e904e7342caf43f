"""Claims: launchers claim many runs at once for new attempts, and store the handles of their jobs.

A claim holds its run until the attempt ends; only one of several launchers gets it. Limits that apply to all
launchers together are checked in the transaction that claims, one launcher at a time.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, insert, or_, select, update

from jestlab.analysis import units
from jestlab.platform.store.leases import attempts, free_runs, is_one_of
from jestlab.platform.store.records import LIVE, Lease, RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store, of_runs
from jestlab.platform.store.tables import AttemptRow, BudgetRow, RunRow

LIMIT = "the limit"
"""First words of the reason of a run that would exceed a limit."""

_ROUNDING = 1e-9  # relative


class ClaimedAttempt(NamedTuple):
    """An attempt that a launcher may start.

    Attributes:
        attempt_id: The fencing token.
        number: 1, 2, … within the run.
        token: The secret of its job.
    """

    attempt_id: int
    number: int
    token: str


@dataclass(frozen=True)
class ClaimTerms:
    """Properties of the attempts to claim.

    Attributes:
        launcher: Name of the launcher.
        executor: Name of the executor that will run their jobs.
        chips: Number of accelerator chips that each job will occupy.
        lease_seconds: Silence after which a worker counts as lost.
        lab: ID of the lab that will have their files; None if unknown.
    """

    launcher: str
    executor: str
    chips: int
    lease_seconds: float = 90.0
    lab: str | None = None


@dataclass(frozen=True)
class ClaimLimits:
    """Limits that apply to all launchers of a store together.

    Attributes:
        slots: Maximum number of attempts on the executor at a time; None for any number.
        machine: The machine whose attempts count, by its name in handles and names of launchers; None to
            count all attempts of the executor.
        chip_hours: Maximum of chip-hours used and planned since the launch began; hours without chips. None
            for any number.
        since: When the launch began.
        dead: IDs of attempts that occupy no slot: the launcher that should end them died, too.
    """

    slots: int | None = None
    machine: str | None = None
    chip_hours: float | None = None
    since: datetime = datetime.min
    dead: frozenset[int] = frozenset()


class ClaimResult(NamedTuple):
    """The result of claiming runs.

    Attributes:
        claims: Fingerprint → claim, in the order of the runs.
        no_slot: Runs without a free slot.
        over_budget: Fingerprint → why the run would exceed the limit of chip-hours.
        taken: Number of occupied slots, including these claims.
        by_others: How many of them other launchers occupy.
    """

    claims: dict[str, ClaimedAttempt]
    no_slot: list[str]
    over_budget: dict[str, str]
    taken: int = 0
    by_others: int = 0


_NO_LIMITS = ClaimLimits()


def claim_all(
    store: Store, logs: Mapping[str, str], terms: ClaimTerms, limits: ClaimLimits = _NO_LIMITS
) -> ClaimResult:
    """Claim runs for new attempts, all in one transaction, as far as the limits allow.

    Runs that an attempt holds, that are COMPLETED, or that their user wants to stop are left out. `logs`
    maps the fingerprint of each run to its log, relative to the lab's root.
    """
    with store.writing() as connection:
        startable = (RunRow.state != RunState.COMPLETED, RunRow.stop_reason.is_(None))
        free = {run.fingerprint: run for run in free_runs(connection, logs, *startable)}
        wanted = [fingerprint for fingerprint in logs if fingerprint in free]
        holders = []
        if limits.slots is not None:
            held = holding(connection, terms.executor, limits.machine)
            holders = [lease.launcher for lease in held if lease.id not in limits.dead]
        slots = len(wanted) if limits.slots is None else max(limits.slots - len(holders), 0)
        beyond = over_budget(connection, wanted, limits, slots)
        fitting = [fingerprint for fingerprint in wanted if fingerprint not in beyond]
        chosen = [free[fingerprint] for fingerprint in fitting[:slots]]
        # A run whose process vanished stays RUNNING.
        idle = (is_one_of(chosen), RunRow.state != RunState.RUNNING)
        connection.execute(update(RunRow).where(*idle).values(state=RunState.PENDING, reason=None))
        return ClaimResult(
            _insert(connection, chosen, logs, terms),
            fitting[slots:],
            beyond,
            len(holders) + len(chosen),
            sum(launcher != terms.launcher for launcher in holders),
        )


def claim(store: Store, fingerprint: str, log: str, terms: ClaimTerms) -> ClaimedAttempt | None:
    """Claim one run, as `claim_all` does; None if it can't be claimed."""
    return claim_all(store, {fingerprint: log}, terms).claims.get(fingerprint)


def store_handles(store: Store, handles: Mapping[int, str]) -> None:
    """Store the handles of the jobs of attempts, by attempt ID, in one transaction."""
    with store.writing() as connection:
        for attempt, handle in sorted(handles.items()):
            connection.execute(update(AttemptRow).where(AttemptRow.id == attempt).values(handle=handle))


def holding(connection: Connection, executor: str, machine: str | None) -> list[Lease]:
    """Return the live attempts that occupy a slot of an executor, on one machine or on all."""
    conditions = [AttemptRow.state.in_(LIVE), AttemptRow.executor == executor]
    if machine is not None:
        here = AttemptRow.launcher.startswith(f"{machine}:", autoescape=True)
        if executor == "local":  # a launcher of another machine may have adopted an attempt
            by_handle = AttemptRow.handle.startswith(f"{machine}:", autoescape=True)
            here = or_(by_handle, and_(AttemptRow.handle.is_(None), here))
        conditions.append(here)
    return attempts(connection, *conditions)


def over_budget(
    connection: Connection, fingerprints: Sequence[str], limits: ClaimLimits, slots: int
) -> dict[str, str]:
    """Return the runs that would exceed the limit, together with earlier runs that start now, and why."""
    if (most := limits.chip_hours) is None:
        return {}
    budgets = select(RunRow.fingerprint, BudgetRow.chip_hours).join(BudgetRow, BudgetRow.run_id == RunRow.id)
    planned = dict(connection.execute(budgets.where(of_runs(fingerprints))).tuples().all())
    held = _held_hours(connection, limits.since)
    reasons: dict[str, str] = {}
    for fingerprint in fingerprints:
        hours = planned.get(fingerprint, 0.0)
        if held + hours > most * (1 + _ROUNDING):
            reasons[fingerprint] = (
                f"{LIMIT} of {most:g} chip-hours is reached: {units.hours(held)} held, {units.hours(hours)} "
                "planned for this run"
            )
        elif slots > 0:
            held, slots = held + hours, slots - 1
    return reasons


def _held_hours(connection: Connection, since: datetime) -> float:
    """Return the chip-hours of attempts since a time; live attempts count at least as planned."""
    query = (
        select(
            AttemptRow.state,
            AttemptRow.chips,
            AttemptRow.started_at,
            AttemptRow.ended_at,
            BudgetRow.chip_hours,
        )
        .outerjoin(BudgetRow, BudgetRow.run_id == AttemptRow.run_id)
        .where(or_(AttemptRow.state.in_(LIVE), AttemptRow.ended_at > since))
    )
    held = 0.0
    for state, chips, started_at, ended_at, planned in connection.execute(query):
        hours = 0.0
        if started_at is not None:
            hours = ((ended_at or now()) - max(started_at, since)).total_seconds() / 3600 * max(chips, 1)
        held += max(hours, planned or 0.0) if state in LIVE else max(hours, 0.0)
    return held


def _insert(
    connection: Connection, runs: Sequence[Any], logs: Mapping[str, str], terms: ClaimTerms
) -> dict[str, ClaimedAttempt]:
    """Insert an attempt at each run; return the claims by fingerprint."""
    rows: list[dict[str, Any]] = [
        {
            "run_id": run.id,
            "number": run.number + 1,
            "state": RunState.PENDING,
            "claimed_at": now(),
            "heartbeat_at": now(),
            "first_step": run.step,
            "log": logs[run.fingerprint],
            "token": secrets.token_hex(16),
            **vars(terms),
        }
        for run in runs
    ]
    if not rows:
        return {}
    inserted = insert(AttemptRow).returning(AttemptRow.run_id, AttemptRow.id)
    ids = dict(connection.execute(inserted, rows).tuples().all())
    return {
        run.fingerprint: ClaimedAttempt(ids[run.id], row["number"], row["token"])
        for run, row in zip(runs, rows, strict=True)
    }
