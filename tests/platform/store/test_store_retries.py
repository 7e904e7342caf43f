"""What a run's results are after several attempts: those of the history that survived."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import count
from typing import Any

import plans_support as plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.store.attempt import Attempt
from jestlab.platform.store.store import Store

RUN = plans.run("a")


def report(attempt: Attempt, step: int, value: float) -> None:
    attempt.log(step, {"loss": value})
    attempt.evaluation(step, 10 * step, 1e3 * step, {"toy/top1": value}, seconds=value)


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.reading() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def curve(store: Store, name: str = "loss") -> dict[int, float]:
    return dict(rows(store, f"SELECT step, value FROM v_metrics WHERE name = '{name}' ORDER BY step"))


@pytest.fixture
def store(store):
    store.record(plans.plan(RUN))
    return store


@pytest.mark.both_databases
@pytest.mark.parametrize("steps", [(100, 200, 300, 400, 500), (50, 150, 250), (250, 500)])
def test_a_retry_that_starts_over_replaces_all_of_the_failed_attempt(store, tmp_path, capsys, steps):
    failed = plans.begun(store, RUN, tmp_path)
    for step in range(100, 1_001, 100):
        report(failed, step, 5.0 + step / 100)
    failed.fail("killed")
    retry = plans.begun(store, RUN, tmp_path)
    for step in steps:
        report(retry, step, 100 / step)
    retry.complete()
    assert curve(store) == {step: 100 / step for step in steps}
    scores = rows(store, "SELECT step, value, examples_seen, flops_total, seconds, final FROM v_evaluations")
    last = steps[-1]
    assert sorted(scores)[-1] == (last, 100 / last, 10 * last, 1e3 * last, 100 / last, 1)
    assert len(scores) == len(steps)
    assert rows(store, "SELECT step, value FROM v_latest") == [(last, 100 / last)]
    assert rows(store, "SELECT actual_flops FROM v_costs") == [(1e3 * last,)]
    assert re.search(r"jestlab: replaces \d+ values that earlier attempts", capsys.readouterr().err)


def test_a_retry_that_resumes_keeps_what_came_before(store, tmp_path):
    failed = plans.begun(store, RUN, tmp_path)
    failed.log(0, {"size": 3.0})
    for step in range(1, 10):
        report(failed, step, 1.0)
    failed.fail("killed")
    retry = plans.begun(store, RUN, tmp_path)
    retry.log(0, {"size": 3.0})  # holds for the whole run
    retry.progress(5, 8)
    for step in (7, 8):
        report(retry, step, 2.0)
    retry.complete()
    assert curve(store) == {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0, 7: 2.0, 8: 2.0}
    assert curve(store, "size") == {0: 3.0}


def test_values_far_apart_remove_nothing_where_an_attempt_may_have_resumed(store, tmp_path):
    failed = plans.begun(store, RUN, tmp_path)
    for step in (100, 200, 300):
        report(failed, step, 1.0)
    failed.fail("killed")
    retry = plans.begun(store, RUN, tmp_path, may_resume=True)
    for step in (300, 600):
        report(retry, step, 2.0)
    retry.complete()
    assert curve(store) == {100: 1.0, 200: 1.0, 300: 2.0, 600: 2.0}


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    """A store for many runs, and numbers for them."""
    with closing(Store.open(f"sqlite:///{tmp_path_factory.mktemp('store')}/results.db")) as store:
        yield store, count()


class Away:
    """A store whose transactions fail while it's away."""

    def __init__(self, store: Store) -> None:
        self._store, self.away = store, False

    def __getattr__(self, name: str) -> Any:
        if self.away and name in ("reading", "writing"):
            raise StoreUnreachable("no answer")
        return getattr(self._store, name)


@given(data=st.data())
@settings(deadline=None)
def test_results_are_those_of_the_surviving_history(data, tmp_path_factory, histories):
    """For any attempts: each starts over, or resumes at a step that earlier ones have reached."""
    store, number = histories
    run, folder = plans.run("a", seed=next(number)), tmp_path_factory.mktemp("run")
    store.record(plans.plan(run, name=f"toy{run.seed}"))
    interval = data.draw(st.integers(1, 3), "interval")
    surviving: dict[int, float] = {}
    reached, values = 0, count(1)
    for _ in range(data.draw(st.integers(1, 4), "attempts")):
        away = Away(store)
        attempt = plans.begun(away, run, folder)  # type: ignore[arg-type]
        resumed = data.draw(st.integers(0, reached), "resumed")
        if resumed:
            attempt.progress(resumed, 40)
            surviving = {step: value for step, value in surviving.items() if step <= resumed}
        reported = range(resumed + interval - resumed % interval, resumed + 9, interval)
        reported = reported[: data.draw(st.integers(0, len(reported)), "reports until it is killed")]
        away_from = data.draw(st.integers(0, len(reported)), "reports until the store is away")
        for place, step in enumerate(reported):
            away.away = place >= away_from
            if not place and not resumed:
                surviving = {}
            surviving[step] = float(next(values))
            report(attempt, step, surviving[step])
        attempt.flush()
        reached = max(reported, default=resumed)
        away.away = False
        attempt.interrupt("killed")
    plans.begun(store, run, folder).complete()
    where = f"WHERE fingerprint = '{run.fingerprint}'"
    assert dict(rows(store, f"SELECT step, value FROM v_metrics {where}")) == surviving
    scores = rows(store, f"SELECT step, value, seconds, final FROM v_evaluations {where}")
    assert sorted(scores) == [(s, v, v, int(s == max(surviving))) for s, v in sorted(surviving.items())]
