"""What a run's results are after several attempts: those of the history that survived."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from itertools import count
from math import inf

import plans_support as plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores_support import Unreliable, rows

from jestlab.models.training.phases import Spent
from jestlab.platform.store.attempt import WorkerAttempt
from jestlab.platform.store.leases import finish
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

RUN = plans.run("a")


def report(attempt: WorkerAttempt, step: int, value: float) -> None:
    attempt.log(step, {"loss": value})
    attempt.evaluation(step, 10 * step, 1e3 * step, {"toy/top1": value}, seconds=value)


def curve(store: Store) -> dict[int, float]:
    return dict(rows(store, "SELECT step, value FROM v_metrics ORDER BY step"))


@pytest.fixture
def store(store):
    plans.record(store, plans.plan(RUN))
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


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    """A store for many runs, and numbers for them."""
    with closing(Store.open(f"sqlite:///{tmp_path_factory.mktemp('store')}/results.db")) as store:
        yield store, count()


@pytest.mark.both_databases
@pytest.mark.parametrize("resumed", [5, 0])
def test_values_that_are_found_late_count_until_a_later_attempt_went_on(store, tmp_path, resumed):
    """The first attempt's lab is away, with what it could not write, while another lab has the second one."""
    away = Unreliable(store)
    started_over = Spent(0.0, 0.0, 1.0, 0.0, 0.0, None, 0, 8, None, None)
    first = plans.begun(away, RUN, tmp_path, spent=started_over)  # type: ignore[arg-type]
    away.refusals = inf
    for step in range(1, 11):
        report(first, step, 1.0)
    first.flush()
    with store.writing() as connection:
        finish(connection, RUN.fingerprint, first._id, RunState.FAILED, "lost", 1)
    spent = Spent(0.0, 0.0, 1.0, 0.0, 0.0, None, resumed, 8, None, None)
    second = plans.begun(store, RUN, spent=spent, may_resume=True)
    second.progress(resumed, 10)
    for step in (7, 8):
        report(second, step, 2.0)
    second.fail("killed")
    plans.begun(store, RUN, spent=replace(spent, resumed_step=8), may_resume=True).fail("killed")
    plans.begun(store, RUN, tmp_path).complete()
    assert curve(store) == dict.fromkeys(range(1, resumed + 1), 1.0) | {7: 2.0, 8: 2.0}
    assert [step for (step,) in rows(store, "SELECT step FROM v_evaluations ORDER BY step")] == [
        *curve(store)
    ]


@given(data=st.data())
@settings(deadline=None)
def test_results_are_those_of_the_surviving_history(data, tmp_path_factory, histories):
    """For any attempts: each starts over, or resumes at a step that earlier ones have reached."""
    store, number = histories
    run, folder = plans.run("a", seed=next(number)), tmp_path_factory.mktemp("run")
    plans.record(store, plans.plan(run, name=f"toy{run.seed}"))
    (folder / "model").touch()
    surviving: dict[int, float] = {}
    early: set[str] = set()  # attempts whose artifacts and values at step 0 count
    values = count(1)
    for attempted in map(str, range(data.draw(st.integers(1, 4), "attempts"))):
        away = Unreliable(store)
        found = data.draw(st.booleans(), "something is in the folder")
        attempt = plans.begun(away, run, folder, may_resume=found)  # type: ignore[arg-type]
        resumed = data.draw(st.integers(0, max(surviving, default=0)), "resumed")
        states = data.draw(st.booleans(), "states it")
        steps = sorted(data.draw(st.sets(st.integers(resumed + 1, resumed + 9)), "steps until it is killed"))
        away_from = data.draw(st.integers(0, len(steps)), "reports until the store is away")
        progress_first = data.draw(st.booleans(), "reports progress after a step, and then values")
        after = None
        if attempted == "0" or (steps and not (found or states or progress_first)):
            after = 0
        elif states or steps:
            after = resumed if states else steps[0] - (not progress_first)
        attempt.log(0, {attempted: 1.0})
        attempt.artifact(attempted, folder / "model")
        if data.draw(st.booleans(), "writes at once"):
            attempt.flush()
        if states:
            attempt.progress(resumed, 40)
        early = {*early, attempted} if after != 0 or attempted == "0" else {attempted}
        surviving = {step: v for step, v in surviving.items() if after is None or step <= after}
        for place, step in enumerate(steps):
            away.refusals = inf if place >= away_from else 0
            surviving[step] = float(next(values))
            if progress_first:
                attempt.progress(step, 40)
            report(attempt, step, surviving[step])
        attempt.flush()
        away.refusals = 0
        attempt.interrupt("killed")
    last = plans.begun(store, run, folder)
    if data.draw(st.booleans(), "the last attempt reports values of the whole run only"):
        last.log(0, {"last": 1.0})
        last.artifact("last", folder / "model")
        surviving, early = {}, {"last"}
    last.complete()
    where = f"WHERE fingerprint = '{run.fingerprint}'"
    assert dict(rows(store, f"SELECT step, value FROM v_metrics {where} AND name = 'loss'")) == surviving
    scores = rows(store, f"SELECT step, value, seconds, final FROM v_evaluations {where}")
    assert sorted(scores) == [(s, v, v, int(s == max(surviving))) for s, v in sorted(surviving.items())]
    assert {name for (name,) in rows(store, f"SELECT name FROM v_metrics {where} AND step = 0")} == early
    join = "JOIN run ON run.id = run_id"
    assert {name for (name,) in rows(store, f"SELECT name FROM artifact {join} {where}")} == early
