"""The views say the same on every database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import rows_support as rows
from sqlalchemy import text

from jestlab.platform.store import schema
from jestlab.platform.store.engine import reading, writable
from jestlab.platform.store.views import VIEWS


@pytest.fixture(scope="module")
def answers(tmp_path_factory, postgres_server) -> Callable[[str], list[list[dict[str, Any]]]]:
    """What SQL gives on each database, over the same rows."""
    path = tmp_path_factory.mktemp("views") / "results.db"
    engines = [rows.opened(f"sqlite:///{path}"), writable(postgres_server.new_store())]
    schema.migrate(engines[0], schema.HEAD)
    for engine in engines:
        rows.fill(engine, rows.ROWS)

    def ask(sql: str) -> list[list[dict[str, Any]]]:
        found = []
        for engine in engines:
            with reading(engine) as connection:
                found.append([dict(row) for row in connection.execute(text(sql)).mappings()])
        return found

    return ask


def test_each_view_says_the_same(answers):
    for name in VIEWS:
        on_sqlite, on_postgresql = answers(f"SELECT * FROM {name}")
        on_postgresql = [
            {key: _as_sqlite_has_it(value) for key, value in row.items()} for row in on_postgresql
        ]
        assert on_sqlite, name
        assert sorted(on_postgresql, key=repr) == sorted(on_sqlite, key=repr)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT label, name, AVG(value) AS mean FROM v_evaluations WHERE final = 1 GROUP BY 1, 2 ORDER BY 2",
        "SELECT state, COUNT(*) AS count FROM v_runs GROUP BY state ORDER BY state",
        "SELECT label, total_flops / 2 AS half FROM v_costs ORDER BY label",
        "SELECT name, step FROM v_metrics WHERE value IS NULL ORDER BY label, name",
    ],
)
def test_queries_say_the_same(answers, sql):
    on_sqlite, on_postgresql = answers(sql)
    assert on_sqlite == on_postgresql != []


def test_the_latest_are_the_last_of_each_curve(answers):
    curves, latest = (
        answers(f"SELECT label, seed, name, step, value FROM {v}") for v in ("v_metrics", "v_latest")
    )
    for points, found in zip(curves, latest, strict=True):
        last = {(p["label"], p["seed"], p["name"]): p for p in sorted(points, key=lambda p: p["step"])}
        assert sorted(found, key=repr) == sorted(last.values(), key=repr)
        assert len(points) > len(found) > 0


def _as_sqlite_has_it(value: Any) -> Any:
    """Times of a view are text there."""
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else value
