"""Claims: many runs at once get attempts that a launcher may start, and then the handles of their jobs.

A claim holds its run until the attempt ends: of several launchers one gets it. What launchers may hold
together, whoever they are, is looked at in the transaction that claims, one launcher at a time.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, func, select, update

from jestlab.platform.store.engine import CLAIMING, one_at_a_time
from jestlab.platform.store.records import LIVE, RunState, check_move
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Run, chunks, execute_many, insert, now

_ROWS = 500  # of one INSERT: SQLite takes 32,766 parameters


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
        launcher_id: The launcher that claims them.
        executor: Name of the executor that will run their jobs.
        chips: Number of accelerator chips that each job will occupy.
        lease_seconds: How long their workers may be silent.
    """

    launcher_id: int
    executor: str
    chips: int
    lease_seconds: float = 90.0


def claim_all(store: Store, logs: Mapping[str, str], terms: Terms) -> dict[str, Claim]:
    """Claim runs for new attempts, all in one transaction.

    Args:
        store: The store.
        logs: Fingerprint of each run → its log, relative to the lab's root.
        terms: What for.

    Returns:
        Fingerprint → claim, in the order of the runs. Those are left out that another attempt holds, that
        are COMPLETED, or that their user wants to stop.
    """
    with store.writing() as connection:
        one_at_a_time(connection, CLAIMING)
        found = list(_free(connection, logs))
        _make_pending(connection, found)
        made = _insert(connection, found, logs, terms)
        return {fingerprint: made[fingerprint] for fingerprint in logs if fingerprint in made}


def claim(
    store: Store,
    fingerprint: str,
    launcher_id: int,
    executor: str,
    chips: int,
    log: str,
    lease_seconds: float = 90.0,
) -> Claim | None:
    """Claim one run, as `claim_all` does; None if it cannot be claimed."""
    terms = Terms(launcher_id, executor, chips, lease_seconds)
    return claim_all(store, {fingerprint: log}, terms).get(fingerprint)


def launched(store: Store, handles: Mapping[int, str]) -> None:
    """Store the handles of the jobs of attempts, by the attempts' ids, in one transaction."""
    statement = (
        update(Attempt.__table__)  # type: ignore[arg-type]
        .where(Attempt.__table__.c.id == bindparam("attempt"))
        .values(handle=bindparam("its_handle"))
    )
    with store.writing() as connection:
        rows = [{"attempt": attempt, "its_handle": handle} for attempt, handle in sorted(handles.items())]
        execute_many(connection, statement, rows)


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
        runs = connection.execute(
            select(Run.id, Run.fingerprint, Run.state, Run.step)
            .where(Run.fingerprint.in_(chunk), Run.state != RunState.COMPLETED, Run.stop_reason.is_(None))
            .order_by(Run.id)
            .with_for_update(key_share=True)
        ).all()
        attempts = select(
            Attempt.run_id, func.count().filter(Attempt.state.in_(LIVE)), func.max(Attempt.number)
        ).group_by(Attempt.run_id)
        known = {
            run_id: (live, number)
            for run_id, live, number in connection.execute(
                attempts.where(Attempt.run_id.in_([run.id for run in runs]))
            )
        }
        for run in runs:
            live, number = known.get(run.id, (0, 0))
            if not live:
                yield _Free(run.id, run.fingerprint, RunState(run.state), run.step, number)


def _make_pending(connection: Connection, runs: Sequence[_Free]) -> None:
    """Give runs the state of those that are about to start; one whose process vanished stays RUNNING."""
    waiting = [run for run in runs if run.state != RunState.RUNNING]
    for run in waiting:
        check_move(run.fingerprint, run.state, RunState.PENDING)
    for chunk in chunks(run.id for run in waiting):
        values = {"state": RunState.PENDING, "reason": None, "updated_at": now()}
        connection.execute(update(Run).where(Run.id.in_(chunk)).values(**values))


def _insert(
    connection: Connection, runs: Sequence[_Free], logs: Mapping[str, str], terms: Terms
) -> dict[str, Claim]:
    """Insert an attempt at each run, and return it as a claim, by fingerprint."""
    made: dict[str, Claim] = {}
    for start in range(0, len(runs), _ROWS):
        some = runs[start : start + _ROWS]
        rows: list[dict[str, Any]] = [
            {
                "run_id": run.id,
                "number": run.number + 1,
                "state": RunState.PENDING,
                "launcher_id": terms.launcher_id,
                "executor": terms.executor,
                "chips": terms.chips,
                "lease_seconds": terms.lease_seconds,
                "claimed_at": now(),
                "heartbeat_at": now(),
                "first_step": run.step,
                "log": logs[run.fingerprint],
                "token": secrets.token_hex(16),
            }
            for run in some
        ]
        statement = insert(connection, Attempt).values(rows).returning(Attempt.run_id, Attempt.id)
        ids = dict(connection.execute(statement).tuples().all())
        for run, row in zip(some, rows, strict=True):
            made[run.fingerprint] = Claim(ids[run.id], row["number"], row["token"])
    return made
