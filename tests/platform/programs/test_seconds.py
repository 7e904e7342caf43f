"""Seconds of training of a user's own program: since it began, and before that of earlier attempts."""

import math
from pathlib import Path
from types import SimpleNamespace

import plans_support as plans
import pytest

from jestlab.platform.programs import context
from jestlab.platform.programs.context import RunContext
from jestlab.platform.store.store import Store


@pytest.fixture
def begun(monkeypatch):
    """Starts a context, whose clock `wait` moves, and keeps the seconds of each evaluation."""
    now = [1_000.0]
    monkeypatch.setattr(context, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def wait(seconds):
        now[0] += seconds

    def begin(earlier_seconds=None):
        kept = {}

        def evaluation(step, examples_seen, flops_total, scores, *, seconds=None):
            kept[step] = seconds

        recorder = SimpleNamespace(evaluation=evaluation, log=lambda *_: None, progress=lambda *_: None)
        made = RunContext(
            directory=Path(), cache=Path(), seed=0, needs={}, recorder=recorder,
            record_artifact=lambda name, path: None, should_stop=lambda: False,
            earlier_seconds=earlier_seconds or {},
        )  # fmt: skip
        return made, kept, wait

    return begin


def test_it_counts_from_the_beginning(begun):
    made, kept, wait = begun()
    wait(3.0)
    made.evaluation(1, scores={"toy/x": 1.0})
    wait(4.0)
    made.evaluation(2, scores={"toy/x": 1.0})
    made.evaluation(3, scores={"toy/x": 1.0}, seconds=0.5)  # what the program measured itself
    assert kept == {1: 3.0, 2: 7.0, 3: 0.5}


def test_it_goes_on_where_an_earlier_attempt_was(begun):
    earlier = {3: 30.0, 5: 50.0, 6: 60.0, 9: 90.0}  # it went on after step 5, from a checkpoint
    for report in (
        lambda made: made.log(6, {"loss": 1.0}),  # after doing step 6
        lambda made: made.progress(5, 10),  # after 5 steps
        lambda made: made.evaluation(6, scores={}),
    ):
        made, kept, wait = begun(earlier)
        made.log(0, {"size": 3.0})  # holds for the whole run
        report(made)
        wait(2.0)
        made.evaluation(7, scores={"toy/x": 1.0})
        made.evaluation(8, scores={"toy/x": 1.0})
        assert (kept[7], kept[8]) == (52.0, 52.0)
    made, kept, _ = begun({6: math.nan})  # unknown stays unknown
    made.evaluation(7, scores={"toy/x": 1.0})
    assert math.isnan(kept[7] or 0.0)


def test_an_attempt_that_starts_over_adds_nothing_of_earlier_ones(begun):
    earlier = {0: 300.0, 50: 350.0, 100: 400.0}  # step 0 was evaluated, after a long start
    for steps in ((0, 1, 2), (100, 200), (0, 100, 200)):
        made, kept, wait = begun(earlier)
        made.clock.resumed.finds_nothing()
        for step in steps:
            wait(1.0)
            made.evaluation(step, scores={"toy/x": 1.0})
        assert kept == {step: float(place) for place, step in enumerate(steps, 1)}
    made, kept, wait = begun(earlier)
    wait(1.0)
    for step in (0, 60, 70):
        made.evaluation(step, scores={"toy/x": 1.0})
    assert kept == {0: 1.0, 60: 351.0, 70: 351.0}  # it resumed after step 50


def test_the_store_knows_the_seconds_of_each_evaluation(store_url, tmp_path):
    store = Store.open(store_url)
    planned = plans.run("alone")
    plans.record(store, plans.plan(planned))
    attempt = plans.begun(store, planned, tmp_path)
    for step, seconds in ((2, 1.5), (4, 3.0), (6, None)):
        attempt.evaluation(step, None, None, {"toy/x": 0.5, "toy/y": 0.5}, seconds=seconds)
    attempt.flush()
    found = store.seconds_by_step(planned.fingerprint)
    assert math.isnan(found.pop(6))
    assert found == {2: 1.5, 4: 3.0}
    store.close()
