"""Rows for all tables of the store, and all rows of a database."""

import math
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, MetaData

from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.engine import create_file, writable

_EARLY, _LATE = datetime(2024, 5, 1, 12, 0, 0, 123456), datetime(2024, 5, 2)

_LAUNCHER = "here-17-2024"
_SOURCES = f'{{"ridge.py":"{64 * "e"}"}}'

ROWS: dict[str, list[dict[str, Any]]] = {
    "experiment": [{
        "name": "toy", "question": "Does it’s \"run\"?", "paper": None, "scale": "smoke",
        "spec": "{}", "created_at": _EARLY, "updated_at": _LATE, "origin": None,
        "owner": "me", "host": "h",
    }],
    "run": [
        {
            "id": number, "fingerprint": 64 * f"{number}", "program": "train", "config": '{"a":1}',
            "seed": 2**40 + number, "directory": f"runs/{number}", "state": state, "reason": reason,
            "step": 5, "total_steps": total, "failures": 0, "stop_reason": None, "created_at": _EARLY,
            "updated_at": _LATE,
        }
        for number, state, reason, total in (
            (1, "COMPLETED", None, 5), (2, "FAILED", "ValueError: λ", None), (7, "PENDING", None, 9),
        )
    ],
    "member": [
        {
            "experiment": "toy", "run_id": run, "name": f"run{run}", "label": f"run{run} f=0.5",
            "point": "{}", "needed": int(run == 1), "position": run,
        }
        for run in (1, 2, 7)
    ],
    "need": [{"run_id": 2, "role": "selection.reference", "needs_id": 1}],
    "lab": [{"uid": 32 * "a", "address": "/data/lab", "host": "h", "seen_at": _LATE}],
    "launcher": [{"name": _LAUNCHER, "heartbeat_at": _LATE, "lab": 32 * "a"}],
    "attempt": [
        {
            "id": number, "run_id": run, "number": go, "state": state, "reason": None,
            "launcher": launcher, "executor": "local", "handle": None, "token": "t", "first_step": 0,
            "chips": 0, "lease_seconds": 90.0, "claimed_at": _EARLY,
            "started_at": _EARLY, "environment": "{}", "heartbeat_at": _LATE,
            "ended_at": _LATE, "host": "h", "pid": 12, "exit_code": 0, "log": "l.txt",
            "git_commit": "abc", "git_patch": None, "versions": "{}", "device": "2 cores",
            "code_commit": "def", "code_patch": None, "sources": _SOURCES, "inputs": None,
            "startup_seconds": 2.5, "compilation_seconds": 4.0, "training_seconds": 9.5,
            "evaluation_seconds": 1.0, "checkpoint_seconds": 0.5, "winddown_seconds": None,
            "resumed_step": 2**40, "reached_step": 2**40 + 5, "saved_step": None, "saved_seconds": None,
            "lab": 32 * "a",
        }
        for number, run, go, state, launcher in (
            (1, 1, 1, "PREEMPTED", _LAUNCHER), (2, 1, 2, "COMPLETED", None), (5, 2, 1, "FAILED", None),
        )
    ],
    "metric_name": [{"id": 1, "name": "loss"}, {"id": 2, "name": "examples_seen"}],
    "metric": [
        {"run_id": run, "name_id": name, "step": step, "value": value}
        for run in (1, 2)
        for name in (1, 2)
        for step, value in ((1, 0.1), (2, None), (3, math.inf))
    ],
    "evaluation": [
        {
            "run_id": 1, "dataset": "shapes", "metric": metric, "step": step, "value": value,
            "examples_seen": seen, "flops_total": flops, "seconds": seconds, "attempt": 2,
        }
        for metric in ("zero_shot", "i2t_r1")
        for step, value, seen, flops, seconds in (
            (2, 0.25, None, None, None), (3, 0.5, 3 * 10**9, 1.5e21, 9.5),
        )
    ],
    "cost": [
        {"run_id": run, "component": component, "flops": 1e18 * run}
        for run in (1, 2)
        for component in ("learner", "scoring", "reference_scoring")
    ],
    "artifact": [{"run_id": 1, "name": "weights", "uri": "runs/1/w", "size": 2**33, "sha256": 64 * "f"}],
    "budget": [{"run_id": 1, "chip": "v5e", "chips": 4, "chip_hours": 2.5, "dollars": None}],
    "note": [
        {"id": 1, "experiment": None, "run_id": 1, "text": "λ", "author": "me", "created_at": _EARLY},
        {"id": 2, "experiment": "toy", "run_id": None, "text": "n", "author": "me", "created_at": _LATE},
    ],
    "source": [{"sha256": 64 * "e", "text": "print('λ')"}],
    "acceptance": [{
        "run_id": 1, "accepted": '{"code ridge.py":["a",null]}', "reason": "a comment",
        "author": "me", "created_at": _LATE,
    }],
    "retraction": [
        {"run_id": 1, "number": 2, "reason": "λ", "author": "me", "created_at": _LATE},
    ],
    "registration": [{
        "experiment": "toy", "content": '{"studies":{"toy":{"claims":[]}},"runs":{}}',
        "digest": 64 * "d", "git_commit": None, "author": "me", "created_at": _EARLY,
    }],
    "tag": [{
        "id": 1, "experiment": None, "run_id": 2, "name": "keep", "created_at": _EARLY,
        "author": None,
    }],
    "saved_query": [{"name": "λ", "sql": "SELECT 1", "author": "me", "updated_at": _LATE}],
    "published": [
        {
            "source": "Doe ’25", "table_name": "t", "position": number, "group_name": "B",
            "method": "JEST++", "variant": "B", "data": "", "citation": "", "citation_key": "", "ours": 1,
            "baseline": 0, "accounting": "jest", "quantity": "mean_delta", "printed": "−0.5", "value": -0.005,
            "unit": "percent", "bold": 0, "note": "λ", "updated_at": _LATE,
        }
        for number in (1, 2)
    ],
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
