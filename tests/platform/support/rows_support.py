"""A small store of the first schema, with rows in every table; and everything that a database holds."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, MetaData

_EARLY, _LATE = datetime(2024, 5, 1, 12, 0, 0, 123456), datetime(2024, 5, 2)

FIRST: dict[str, list[dict[str, Any]]] = {
    "experiment": [
        {
            "id": 1, "name": "toy", "question": "Does it’s \"run\"?", "paper": None, "scale": "smoke",
            "spec": "{}", "created_at": _EARLY, "updated_at": _LATE,
        },
    ],
    "run": [
        {
            "id": number, "fingerprint": 64 * f"{number}", "program": "train", "config": '{"a":1}',
            "seed": 2**40 + number, "directory": f"runs/{number}", "state": state, "reason": reason,
            "step": 5, "total_steps": total, "created_at": _EARLY, "updated_at": _LATE,
        }
        for number, state, reason, total in (
            (1, "COMPLETED", None, 5), (2, "FAILED", "ValueError: λ", None), (7, "PENDING", None, 9),
        )
    ],
    "member": [
        {
            "experiment_id": 1, "run_id": run, "name": f"run{run}", "label": f"run{run} f=0.5", "point": "{}",
            "needed": int(run == 1), "position": run,
        }
        for run in (1, 2, 7)
    ],
    "need": [{"run_id": 2, "role": "selection.reference", "needs_id": 1}],
    "attempt": [
        {
            "id": number, "run_id": run, "number": go, "state": state, "reason": None, "started_at": _EARLY,
            "heartbeat_at": _LATE, "ended_at": _LATE, "host": "h", "pid": 12, "exit_code": 0, "log": "l.txt",
            "git_commit": "abc", "git_patch": None, "versions": "{}", "device": "2 cores",
        }
        for number, run, go, state in ((1, 1, 1, "PREEMPTED"), (2, 1, 2, "COMPLETED"), (5, 2, 1, "FAILED"))
    ],
    "metric_name": [{"id": 1, "name": "loss"}, {"id": 2, "name": "examples_seen"}],
    "metric": [
        {"run_id": run, "name_id": name, "step": step, "value": value, "attempt_id": attempt}
        for run, attempt in ((1, 2), (2, 5))
        for name in (1, 2)
        for step, value in ((1, 0.1), (2, None), (3, math.inf))
    ],
    "evaluation": [
        {
            "run_id": 1, "dataset": "shapes", "metric": metric, "step": step, "value": value,
            "examples_seen": 3 * 10**9, "flops_total": 1.5e21, "attempt_id": 2,
        }
        for metric in ("zero_shot", "i2t_r1")
        for step, value in ((2, 0.25), (3, 0.5))
    ],
    "cost": [
        {"run_id": run, "component": component, "flops": 1e18 * run}
        for run in (1, 2)
        for component in ("learner", "scoring", "reference_scoring")
    ],
    "artifact": [{"run_id": 1, "name": "weights", "uri": "runs/1/w", "size": 2**33, "sha256": 64 * "f"}],
}  # fmt: skip
"""Table → rows of the schema 0001, in an order in which they can be inserted."""

PUBLISHED: dict[str, list[dict[str, Any]]] = {
    "published": [
        {
            "id": number, "source": "Doe ’25", "table_name": "t", "position": number, "group_name": "B",
            "method": "JEST++", "variant": "B", "data": "", "citation": "", "citation_key": "", "ours": 1,
            "baseline": 0, "accounting": "jest", "quantity": "mean_delta", "printed": "−0.5", "value": -0.005,
            "unit": "percent", "bold": 0, "note": "λ", "updated_at": _LATE,
        }
        for number in (1, 2)
    ],
}  # fmt: skip
"""The same of what came with the schema 0003."""


def fill(engine: Engine, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Insert rows."""
    tables = _tables(engine)
    with engine.begin() as connection:
        for name, its_rows in rows.items():
            connection.execute(tables[name].insert(), its_rows)


def everything(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Table → its rows, in the order of their text; without Alembic's own table and the store's id."""
    found = {}
    with engine.connect() as connection:
        for name, table in _tables(engine).items():
            rows = [dict(row) for row in connection.execute(table.select()).mappings()]
            found[name] = sorted(rows, key=repr)
    for name in ("alembic_version", "identity"):
        found.pop(name, None)
    return found


def _tables(engine: Engine) -> dict[str, Any]:
    metadata = MetaData()
    metadata.reflect(engine)
    return dict(metadata.tables)
