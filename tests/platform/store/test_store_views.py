"""The views have the same rows on both kinds of database."""

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
    """Executes SQL on each database, with the same rows."""
    path = tmp_path_factory.mktemp("views") / "results.db"
    engines = [rows.opened(f"sqlite:///{path}"), writable(postgres_server.new_store())]
    schema.ensure(engines[0], create=True)
    for engine in engines:
        rows.fill(engine, rows.ROWS)

    def ask(sql: str) -> list[list[dict[str, Any]]]:
        found = []
        for engine in engines:
            with reading(engine) as connection:
                found.append([dict(row) for row in connection.execute(text(sql)).mappings()])
        return found

    return ask


def test_views_have_the_same_rows_and_v_latest_the_last_points(answers):
    for name in VIEWS:
        on_sqlite, on_postgresql = answers(f"SELECT * FROM {name}")
        on_postgresql = [{key: _as_on_sqlite(value) for key, value in row.items()} for row in on_postgresql]
        assert on_sqlite, name
        assert sorted(on_postgresql, key=repr) == sorted(on_sqlite, key=repr)
    curves, latest = (
        answers(f"SELECT label, seed, name, step, value FROM {v}") for v in ("v_metrics", "v_latest")
    )
    for points, found in zip(curves, latest, strict=True):
        last = {(p["label"], p["seed"], p["name"]): p for p in sorted(points, key=lambda p: p["step"])}
        assert sorted(found, key=repr) == sorted(last.values(), key=repr)
        assert len(points) > len(found) > 0


def _as_on_sqlite(value: Any) -> Any:
    """SQLite has no times: views have their text."""
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else value
