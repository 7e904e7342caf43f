"""Rows for all tables of the store, and all rows of a database."""

import math
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, MetaData

from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.engine import create_file, writable
from jestlab.platform.store.tables import Base

_EARLY, _LATE = datetime(2024, 5, 1, 12, 0, 0, 123456), datetime(2024, 5, 2)
_VALUES: dict[type, Any] = {int: 1, float: 0.5, str: 'λ’"', datetime: _EARLY}
"""Type → a value of columns whose value doesn't matter."""

_JSON = {"spec", "config", "point", "environment", "versions", "inputs", "accepted", "content"}
_LAUNCHER, _LAB, _SOURCE = "here-17-2024", 32 * "a", 64 * "e"


def _row(table: str, **given: Any) -> dict[str, Any]:
    """Return a row with a value in every column."""
    columns = Base.metadata.tables[table].columns
    values = {c.name: "{}" if c.name in _JSON else _VALUES[c.type.python_type] for c in columns}
    return values | given


def _rows(table: str, *of_rows: dict[str, Any], **given: Any) -> list[dict[str, Any]]:
    return [_row(table, **given, **row) for row in of_rows or ({},)]


ROWS: dict[str, list[dict[str, Any]]] = {
    "experiment": _rows("experiment", name="toy", origin=None),
    "run": [
        _row("run", id=n, fingerprint=64 * f"{n}", directory=f"runs/{n}", state=state, reason=reason,
             stop_reason=None, total_steps=total, seed=2**40 + n)
        for n, state, reason, total in (
            (1, "COMPLETED", None, 5), (2, "FAILED", "ValueError: λ", None), (7, "PENDING", None, 9),
        )
    ],
    "member": [
        _row("member", experiment="toy", run_id=n, name=f"run{n}", label=f"run{n} f=0.5") for n in (1, 2, 7)
    ],
    "need": _rows("need", run_id=2, needs_id=1),
    "lab": _rows("lab", uid=_LAB),
    "launcher": _rows("launcher", name=_LAUNCHER, lab=_LAB),
    "attempt": [
        _row("attempt", id=n, run_id=run, number=number, state=state, launcher=launcher, lab=_LAB,
             sources=f'{{"ridge.py":"{_SOURCE}"}}', heartbeat_at=_LATE, ended_at=_LATE,
             winddown_seconds=None, reached_step=2**40)
        for n, run, number, state, launcher in (
            (1, 1, 1, "PREEMPTED", _LAUNCHER), (2, 1, 2, "COMPLETED", None), (5, 2, 1, "FAILED", None),
        )
    ],
    "metric_name": _rows("metric_name", {"id": 1, "name": "loss"}, {"id": 2, "name": "examples_seen"}),
    "metric": [
        {"run_id": run, "name_id": name, "step": step, "value": value}
        for run in (1, 2)
        for name in (1, 2)
        for step, value in ((1, 0.1), (2, None), (3, math.inf))
    ],
    "evaluation": [
        _row("evaluation", run_id=1, metric=metric, step=step, attempt=2, flops_total=flops, seconds=seconds)
        for metric in ("zero_shot", "i2t_r1")
        for step, flops, seconds in ((2, None, None), (3, 1.5e21, 9.5))
    ],
    "cost": [
        _row("cost", run_id=run, component=component, flops=1e18 * run)
        for run in (1, 2)
        for component in ("learner", "scoring", "reference_scoring")
    ],
    "artifact": _rows("artifact", run_id=1, size=2**33),
    "budget": _rows("budget", run_id=1, chips=4, dollars=None),
    "note": _rows(
        "note", {"id": 1, "experiment": None, "run_id": 1}, {"id": 2, "experiment": "toy", "run_id": None}
    ),
    "source": _rows("source", sha256=_SOURCE),
    "acceptance": _rows("acceptance", run_id=1),
    "retraction": _rows("retraction", run_id=1, number=2),
    "registration": _rows("registration", experiment="toy"),
    "tag": _rows("tag", experiment=None, run_id=2),
    "saved_query": _rows("saved_query"),
    "published": _rows("published", {"position": 1}, {"position": 2}),
}  # fmt: skip
"""Table → rows, in an order in which they can be inserted."""


def fill(engine: Engine, rows: dict[str, list[dict[str, Any]]]) -> None:
    tables = _tables(engine)
    with engine.begin() as connection:
        for name, of_table in rows.items():
            connection.execute(tables[name].insert(), of_table)


def everything(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Return table → sorted rows, without Alembic's own table and the store's ID."""
    found = {}
    with engine.connect() as connection:
        for name, table in _tables(engine).items():
            rows = [dict(row) for row in connection.execute(table.select()).mappings()]
            found[name] = sorted(rows, key=repr)
    for name in ("alembic_version", "identity"):
        found.pop(name, None)
    return found


def copied(everything: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a copy of a store, which can't find the jobs of the original."""
    unknown = {"handle": None, "token": None}
    return everything | {"attempt": [{**row, **unknown} for row in everything["attempt"]]}


def _tables(engine: Engine) -> dict[str, Any]:
    metadata = MetaData()
    metadata.reflect(engine)
    return dict(metadata.tables)


def opened(url: str) -> Engine:
    """Open a database without checking its schema; a missing file is created."""
    if (path := sqlite_file(parse_url(url))) is not None:
        create_file(path)
    return writable(url)
