"""Stores filled by hand, for tests of what reads them: no worker, no process."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, select, update

from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store import tables
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

START = datetime(2026, 11, 20, 12, 0, 0)


def run_id(store: Store, run: PlannedRun) -> int:
    with store.reading() as connection:
        return int(
            connection.execute(
                select(tables.Run.id).where(tables.Run.fingerprint == run.fingerprint)
            ).scalar_one()
        )


def attempt(
    store: Store,
    run: PlannedRun,
    state: RunState = RunState.COMPLETED,
    *,
    number: int = 1,
    scores: dict[str, float] | None = None,
    loss: tuple[float, ...] = (),
    started: datetime = START,
    **columns: Any,
) -> int:
    """Enter an attempt, what it measured, and the state that it left its run in."""
    over = state not in (RunState.PENDING, RunState.RUNNING)
    its_run = run_id(store, run)
    with store.writing() as connection:
        values = {
            "run_id": its_run,
            "number": number,
            "state": state,
            "executor": "local",
            "chips": 0,
            "claimed_at": started,
            "started_at": started,
            "heartbeat_at": started,
            "ended_at": started + timedelta(minutes=2) if over else None,
            "host": "host",
            "pid": 17,
            "exit_code": 0 if over else None,
            "log": f"{run.directory}/log.txt",
            "versions": json.dumps({"python": "3.11.7"}),
            "device": "2 cores",
        }
        made = connection.execute(insert(tables.Attempt).values(**(values | columns)))
        assert made.inserted_primary_key is not None
        attempt_id = int(made.inserted_primary_key[0])
        connection.execute(
            update(tables.Run)
            .where(tables.Run.id == its_run)
            .values(
                state=state,
                reason=columns.get("reason"),
                step=len(loss),
                updated_at=started + timedelta(minutes=2),
            )
        )
        if scores is not None:  # the last write wins
            connection.execute(delete(tables.Evaluation).where(tables.Evaluation.run_id == its_run))
        for name, value in (scores or {}).items():
            dataset, _, metric = name.rpartition("/")
            connection.execute(
                insert(tables.Evaluation).values(
                    run_id=its_run, dataset=dataset, metric=metric, step=10, value=value,
                    examples_seen=640, flops_total=1e9, attempt_id=attempt_id,
                )
            )  # fmt: skip
        if loss:
            name_id = connection.scalar(
                select(tables.MetricName.id).where(tables.MetricName.name == "loss")
            ) or _first(connection.execute(insert(tables.MetricName).values(name="loss")))
            for step, value in enumerate(loss, start=1):
                connection.execute(
                    insert(tables.Metric).values(run_id=its_run, name_id=name_id, step=step, value=value)
                )
    return attempt_id


def _first(result: Any) -> int:
    return int(result.inserted_primary_key[0])


def folder(lab: Lab, run: PlannedRun, size: int = 1000) -> Path:
    """The run's folder, with a log and a checkpoint in it."""
    path = lab.root / run.directory
    (path / "checkpoints" / "10").mkdir(parents=True)
    (path / "checkpoints" / "10" / "state").write_bytes(b"x" * size)
    (path / "log.txt").write_text(f"--- attempt 1\n{run.label} {run.seed}\n")
    return path
