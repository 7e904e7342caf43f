"""What was planned and what was spent, on both databases."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import text

from jestlab.analysis.costs import Cost
from jestlab.platform.planning.plan import Budget, PlannedRun
from jestlab.platform.programs import Price
from jestlab.platform.store import provenance
from jestlab.platform.store.records import RunState, Speed
from jestlab.platform.store.spending import speeds, spending
from jestlab.platform.store.store import Store

PODS = Budget("v5e", 16, 8.0, 9.6)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = Store.open(store_url)
    yield store
    store.close()


def with_budget(run: PlannedRun, budget: Budget | None) -> PlannedRun:
    return replace(run, budget=budget)


def costs(store: Store) -> dict[str, dict[str, Any]]:
    with store.reading() as connection:
        rows = connection.execute(text("SELECT * FROM v_costs")).mappings()
        return {row["run"]: dict(row) for row in rows}


def planned(store: Store, run: str = "a") -> tuple[Any, ...]:
    row = costs(store)[run]
    return tuple(row[name] for name in ("chip", "chips", "planned_chip_hours", "planned_dollars"))


def test_a_later_launch_replaces_the_budget_until_the_run_is_completed(store):
    run = plans.run("a")
    store.record(plans.plan(with_budget(run, PODS)))
    assert planned(store) == ("v5e", 16, 8.0, 9.6)
    store.record(plans.plan(with_budget(run, Budget("v6e", 4, 1.5))))
    assert planned(store) == ("v6e", 4, 1.5, None)
    store.record(plans.plan(run))
    assert planned(store) == (None, None, None, None)
    store.record(plans.plan(with_budget(run, PODS)))
    plans.begun(store, run).complete()
    store.record(plans.plan(with_budget(run, Budget("v6e", 4, 1.5))))
    assert planned(store) == ("v5e", 16, 8.0, 9.6)


@plans.ON_SQLITE
def test_no_prediction_is_made_of_what_is_over(store):
    run = plans.run("a")
    store.record(plans.plan(run))
    plans.begun(store, run).complete()
    store.record(plans.plan(with_budget(run, PODS)))
    assert planned(store) == (None, None, None, None)


def test_budgets_of_other_runs_stay(store):
    store.record(plans.plan(with_budget(plans.run("a"), PODS)))
    store.record(plans.plan(plans.run("b", seed=1), name="other"))
    assert planned(store, "a") == ("v5e", 16, 8.0, 9.6)


def test_chip_hours_are_of_all_attempts_and_flops_of_useful_work(store):
    """What was preempted after half an hour, and failed after a quarter, was paid for."""
    run = with_budget(plans.run("a"), PODS)
    store.record(plans.plan(run))
    took = {1: (RunState.PREEMPTED, 30), 2: (RunState.FAILED, 15), 3: (RunState.COMPLETED, 60)}
    for number, (state, minutes) in took.items():
        begin = stores.START + timedelta(hours=2 * number, microseconds=123_456)
        end = begin + timedelta(minutes=minutes)
        stores.attempt(store, run, state, number=number, chips=16, started=begin, ended_at=end)
    row = costs(store)["a"]
    assert row["actual_hours"] == 1.75
    assert row["actual_chip_hours"] == 28.0
    [spent] = spending(store, "toy").values()
    assert spent.actual_chip_hours == 28.0
    assert spent.actual_dollars == pytest.approx(28 * 9.6 / 8)


def test_a_running_attempt_counts_until_its_last_heartbeat_and_a_waiting_one_not_at_all(store):
    run, waiting, untouched = (plans.run(name, seed=seed) for seed, name in enumerate("abc"))
    store.record(plans.plan(run, waiting, untouched))
    heard = stores.START + timedelta(minutes=90)
    stores.attempt(store, run, RunState.RUNNING, chips=4, heartbeat_at=heard)
    stores.attempt(store, waiting, RunState.PENDING, chips=4, started_at=None)
    found = costs(store)
    assert (found["a"]["actual_hours"], found["a"]["actual_chip_hours"]) == (1.5, 6.0)
    assert (found["b"]["actual_hours"], found["b"]["actual_chip_hours"]) == (None, None)
    assert found["c"]["actual_flops"] is None


def test_a_process_without_chips_counts_as_one(store):
    run = plans.run("a")
    store.record(plans.plan(run))
    stores.attempt(store, run, chips=0, ended_at=stores.START + timedelta(minutes=45))
    assert costs(store)["a"]["actual_chip_hours"] == 0.75


def test_actual_flops_are_the_last_that_a_run_said(store):
    logs, evaluates, both = (
        plans.run(name, seed=seed) for seed, name in enumerate(("logs", "evals", "both"))
    )
    store.record(plans.plan(logs, evaluates, both))
    attempt = plans.begun(store, logs)
    attempt.log(9, {"flops_total": 9e6, "loss": 7e9})
    attempt.log(10, {"flops_total": 10e6})
    attempt.log(11, {"flops_total": float("nan")})
    attempt.complete()
    attempt = plans.begun(store, evaluates)
    attempt.evaluation(3, 30, 3e6, {"toy/score": 0.5})
    attempt.evaluation(5, 50, 5e6, {"toy/score": 0.5})
    attempt.evaluation(6, None, None, {"toy/score": 0.5})
    attempt.complete()
    attempt = plans.begun(store, both)
    attempt.evaluation(5, 50, 5e6, {"toy/score": 0.5})
    attempt.log(4, {"flops_total": 4e6})
    attempt.complete()
    found = {run: row["actual_flops"] for run, row in costs(store).items()}
    assert found == {"logs": 10e6, "evals": 5e6, "both": 5e6}


def test_the_training_of_references_counts_through_what_stands_between(store):
    reference = plans.run("reference")
    cache = plans.run("cache", needs={"reference": reference.fingerprint}, price=plans.CACHE)
    learner = plans.run("learner", needs={"selection.reference": cache.fingerprint})
    store.record(plans.plan(reference, cache, learner))
    found = {run: row["reference_training_flops"] for run, row in costs(store).items()}
    assert found == {"reference": 0, "cache": 4.5e6, "learner": 4.5e6 + 1.5e6}


def shares(store: Store) -> dict[str, tuple[int | None, float]]:
    """How many share what a run needs, and the run's own share in millions."""
    return {
        run: (row["reference_shared_by"], row["reference_training_share_flops"] / 1e6)
        for run, row in costs(store).items()
    }


def test_a_reference_is_shared_by_the_runs_of_all_studies_that_train_by_it(store):
    reference = plans.run("reference")
    needs = {"selection.reference": reference.fingerprint}
    a, b, c = (plans.run(name, seed=seed, needs=needs) for seed, name in enumerate("abc"))
    store.record(plans.plan(reference, a))
    assert shares(store) == {"reference": (None, 0), "a": (1, 4.5)}  # a lone run pays all
    store.record(plans.plan(reference, b, c, name="other"))
    store.record(plans.plan(reference, b, name="again"))
    found = shares(store)
    assert {run: found[run] for run in "abc"} == dict.fromkeys("abc", (3, 1.5))


def test_each_needed_run_is_divided_by_its_own_sharers_and_what_trains_nothing_shares_nothing(store):
    """Two learn by a cache, a third by its reference itself; a diagnosis looks into two runs."""
    reference = plans.run("reference")
    cache = plans.run("cache", needs={"reference": reference.fingerprint}, price=plans.CACHE)
    cached = {"selection.reference": cache.fingerprint}
    a, b = (plans.run(name, seed=seed, needs=cached) for seed, name in enumerate("ab"))
    online = plans.run("online", needs={"selection.reference": reference.fingerprint})
    diagnosis = plans.run(
        "diagnosis",
        needs={"learner": a.fingerprint, "reference": reference.fingerprint},
        price=plans.CACHE,
    )
    store.record(plans.plan(reference, cache, a, b, online, diagnosis))
    found = shares(store)
    by_cache = (2, 1.5 / 2 + 4.5 / 3)
    expected = {"online": (3, 1.5), "a": by_cache, "b": by_cache, "cache": (3, 0), "diagnosis": (0, 0)}
    assert found == {"reference": (None, 0), **expected}
    paid = sum(share for _, share in found.values())
    assert paid == pytest.approx(4.5 + 1.5)  # the reference and the cache, once


def test_a_reference_that_learned_by_another_pays_its_share_too(store):
    first = plans.run("first")
    second = plans.run("second", needs={"selection.reference": first.fingerprint})
    last = plans.run("last", needs={"selection.reference": second.fingerprint})
    store.record(plans.plan(first, second, last))
    found = shares(store)
    assert found["second"] == (2, 2.25)
    assert found["last"] == (1, 4.5 + 2.25)


def test_a_run_without_a_price_shares_a_reference_and_its_own_cost_is_unknown(store):
    reference = plans.run("reference")
    needs = {"selection.reference": reference.fingerprint}
    own, priced = plans.run("own", needs=needs, price=None), plans.run("priced", seed=1, needs=needs)
    store.record(plans.plan(reference, own, priced))
    assert costs(store)["own"]["total_flops"] is None
    assert shares(store)["own"] == shares(store)["priced"] == (2, 2.25)


def test_costs_of_older_code_count_until_they_are_recorded_anew(store):
    run = plans.run("a")
    store.record(plans.plan(run))
    older = {"learner": 3e6, "scoring": 1e6, "reference_scoring": 5e5}
    with store.writing() as connection:
        connection.execute(text("DELETE FROM cost"))
        for component, flops in older.items():
            connection.execute(
                text("INSERT INTO cost SELECT id, :component, :flops FROM run"),
                {"component": component, "flops": flops},
            )
    row = costs(store)["a"]
    assert (row["learner_flops"], row["total_flops"]) == (3e6, 4e6)
    assert (row["image_tower_flops"], row["loss_flops"], row["selection_flops"]) == (None, None, None)
    store.record(plans.plan(run))
    row = costs(store)["a"]
    assert (row["learner_flops"], row["total_flops"], row["image_tower_flops"]) == (3e6, 4e6, 2e6)


@plans.ON_SQLITE
def test_speed_is_by_the_median_of_runs_that_completed_at_once_on_the_same_device(store):
    names = ("a", "b", "c", "slow", "resumed", "elsewhere", "failed", "pod", "other")
    runs = {
        name: plans.run(name, "toy_programs:flood" if name == "other" else "toy_programs:loop", seed=seed)
        for seed, name in enumerate(names)
    }
    store.record(plans.plan(*runs.values()))
    here = provenance.device()
    for name, seconds in {"a": 1.0, "b": 2.0, "c": 4.0, "slow": 100.0}.items():
        end = stores.START + timedelta(seconds=seconds)
        stores.attempt(store, runs[name], ended_at=end, device=here)
    stores.attempt(store, runs["resumed"], RunState.PREEMPTED, device=here)
    stores.attempt(store, runs["resumed"], number=2, device=here)
    stores.attempt(store, runs["elsewhere"], device="8 × TPU v5 lite")
    stores.attempt(store, runs["failed"], RunState.FAILED, device=here)
    stores.attempt(store, runs["pod"], executor="kubernetes", chips=4, device=here)
    found = speeds(store, ["toy_programs:loop", "toy_programs:flood"])
    speed = found.pop("toy_programs:loop")
    assert found == {}
    assert speed.runs == 4
    computed = plans.PRICE.executed
    assert speed.flops_per_second == pytest.approx(computed / 3)
    assert speed.start_seconds == 0  # runs of one length say nothing of others


def taken(store: Store, seconds: dict[float, tuple[float, ...]]) -> Speed:
    """Speed by runs that took so many seconds, by FLOPs."""
    for flops, each in seconds.items():
        for seed, took in enumerate(each):
            price = Price(Cost(image_tower=flops), examples=1)
            run = plans.run(f"of{flops:.0f}", config={"steps": int(flops)}, seed=seed, price=price)
            store.record(plans.plan(run, name=f"of{flops:.0f}-{seed}"))
            ended = stores.START + timedelta(seconds=took)
            stores.attempt(store, run, ended_at=ended, device=provenance.device())
    return speeds(store, ["toy_programs:loop"])["toy_programs:loop"]


@plans.ON_SQLITE
def test_what_short_runs_take_to_start_does_not_count_again_in_longer_ones(store):
    """At 1 MFLOP/s after 10 s; one was held up, as the first one is that compiles."""
    speed = taken(store, {1e6: (11, 11, 60), 2e6: (12, 12), 4e6: (14, 14)})
    assert speed.runs == 7
    assert speed.start_seconds == pytest.approx(10)
    assert speed.flops_per_second == pytest.approx(1e6)
    assert speed.hours(590e6) == pytest.approx(600 / 3600)


@plans.ON_SQLITE
def test_runs_whose_length_hardly_differs_say_nothing_of_others(store):
    """A hundredth more FLOPs, and by chance half the time: not a sign that FLOPs take no time."""
    speed = taken(store, {1e6: (10, 10, 10), 1.01e6: (5, 5)})
    assert speed.hours(100e6) == pytest.approx(1000 / 3600)


@plans.ON_SQLITE
def test_where_longer_runs_happened_to_take_no_more_some_of_the_time_still_is_computing(store):
    speed = taken(store, {1e6: (30, 20), 2e6: (20, 10)})
    assert speed.flops_per_second == pytest.approx(1e6 / 1.5)  # a tenth of the median of 30, 20, 10 and 5
    assert speed.start_seconds == pytest.approx(20 - 1.5 * 1.5)


@plans.ON_SQLITE
def test_where_longer_runs_were_slower_even_by_their_length_a_start_is_not_below_nothing(store):
    speed = taken(store, {1e6: (1, 1, 1), 10e6: (100,)})
    assert speed.flops_per_second == pytest.approx(1e6)
    assert speed.start_seconds == 0


@plans.ON_SQLITE
def test_which_accelerator_this_machine_has_its_last_run_of_the_program_says(store):
    here, there = plans.run("here"), plans.run("there", seed=1)
    store.record(plans.plan(here, there))
    end = stores.START + timedelta(seconds=1)
    stores.attempt(store, there, ended_at=end, host="elsewhere", device="1 × H200")
    assert speeds(store, [here.program]) == {}
    stores.attempt(store, here, ended_at=end, host=socket.gethostname(), device="1 × H200")
    assert speeds(store, [here.program])[here.program].runs == 2


@plans.ON_SQLITE
def test_on_a_cluster_speed_is_of_runs_there_with_as_many_chips_of_the_last_kind(store):
    gpus: dict[str, Any] = {"executor": "slurm", "chips": 4, "host": "n1", "device": "4 × H100"}
    others: tuple[dict[str, Any], ...] = (
        {"executor": "kubernetes"},
        {"chips": 1},
        {"device": "4 × V100"},
        {"executor": "local", "chips": 0},
    )
    for seed, of in enumerate(({}, *others)):
        run = plans.run(f"run{seed}", seed=seed)
        store.record(plans.plan(run, name=f"study{seed}"))
        ended = stores.START + timedelta(seconds=100 if of else 200)
        stores.attempt(store, run, ended_at=ended, **{**gpus, **of})
    loop = "toy_programs:loop"
    assert speeds(store, [loop], "slurm", 4)[loop].flops_per_second == pytest.approx(
        plans.PRICE.executed / 200
    )
    assert speeds(store, [loop], "slurm", 1)[loop].runs == 1
    assert speeds(store, [loop], "slurm")[loop].runs == 2  # whatever they have; the last one's kind of device
    assert speeds(store, [loop], "slurm", 2) == {}


def test_costs_may_be_whole_numbers_and_others_in_one_plan(store):
    price = replace(plans.PRICE, cost=Cost(image_tower=10**12, text_tower=0.5))
    store.record(plans.plan(plans.run("a", price=price)))
    flops = {row["run"]: row["total_flops"] for row in costs(store).values()}
    assert flops == {"a": 10**12 + 0.5}
