"""Many rows in one statement: inserted, updated, or kept."""

import plans_support as plans
import pytest
import stores_support as stores
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from jestlab.platform.store.rows import Point, upsert, write_points
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import EvaluationRow, run_key

RUN = plans.run("uniform")


@pytest.fixture
def store(store: Store) -> Store:
    """Two attempts at a run, and two names of metrics."""
    plans.record(store, plans.plan(RUN))
    for number in (1, 2):
        stores.attempt(store, RUN, number=number)
    with store.writing() as connection:
        connection.execute(text("INSERT INTO metric_name (id, name) VALUES (1, 'loss'), (2, 'lr')"))
    return store


def put(store: Store, *points: Point, keep: bool = False) -> None:
    with store.writing() as connection:
        write_points(connection, run_key(RUN.fingerprint), points, keep=keep)


def kept(store: Store) -> dict[tuple[int, int], float | None]:
    with store.reading() as connection:
        found = connection.execute(text("SELECT name_id, step, value FROM metric"))
        return {(name, step): value for name, step, value in found}


def put_scores(store: Store, *rows: dict[str, object]) -> None:
    key = run_key(RUN.fingerprint)
    keys, changed = ("run_id", "dataset", "metric", "step"), ("value", "attempt")
    with store.writing() as connection:
        upsert(connection, EvaluationRow, [{"run_id": key, **row} for row in rows], keys, changed, "attempt")


POINTS = st.tuples(st.integers(1, 2), st.integers(0, 3), st.one_of(st.none(), st.floats(allow_nan=False)))


@pytest.mark.both_databases
@given(st.lists(st.tuples(st.booleans(), st.lists(POINTS, max_size=6)), max_size=5))
def test_the_last_write_counts_unless_existing_points_are_kept(store, batches):
    with store.writing() as connection:
        connection.execute(text("DELETE FROM metric"))
    expected: dict[tuple[int, int], float | None] = {}
    for keep, points in batches:
        put(store, *points, keep=keep)
        last = {(name, step): value for name, step, value in points}
        expected = last | expected if keep else expected | last
    assert kept(store) == expected


SCORES = st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.one_of(st.none(), st.floats(allow_nan=False)))


@pytest.mark.both_databases
@given(st.lists(st.tuples(st.integers(1, 2), st.lists(SCORES, max_size=6)), max_size=5))
def test_the_last_write_of_the_latest_attempt_counts(store, batches):
    with store.writing() as connection:
        connection.execute(text("DELETE FROM evaluation"))
    expected: dict[tuple[str, int], tuple[float | None, int]] = {}
    for attempt, scores in batches:
        columns = {"dataset": "d", "attempt": attempt}
        put_scores(store, *({"metric": m, "step": step, "value": v, **columns} for m, step, v in scores))
        for metric, step, value in scores:
            if expected.get((metric, step), (None, 0))[1] <= attempt:
                expected[metric, step] = (value, attempt)
    with store.reading() as connection:
        found = connection.execute(text("SELECT metric, step, value, attempt FROM evaluation"))
        assert {(metric, step): (value, attempt) for metric, step, value, attempt in found} == expected
