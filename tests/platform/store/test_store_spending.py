"""Planned and actual costs, and the speed of completed runs."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import text

from jestlab.platform.planning.plan import RunBudget
from jestlab.platform.store import provenance
from jestlab.platform.store.records import RunState
from jestlab.platform.store.spending import _speed, speeds, spending
from jestlab.platform.store.store import Store

PODS = RunBudget("v5e", 16, 8.0, 9.6)


def costs(store: Store) -> dict[str, dict[str, Any]]:
    with store.reading() as connection:
        rows = connection.execute(text("SELECT * FROM v_costs")).mappings()
        return {row["run"]: dict(row) for row in rows}


def planned(store: Store, run: str = "a") -> tuple[Any, ...]:
    row = costs(store)[run]
    return tuple(row[name] for name in ("chip", "chips", "planned_chip_hours", "planned_dollars"))


def test_a_later_launch_replaces_the_budget_until_the_run_completes(store):
    run, later = plans.run("a"), RunBudget("v6e", 4, 1.5)
    plans.record(store, plans.plan(replace(run, budget=PODS)))
    plans.record(store, plans.plan(plans.run("b", seed=1), name="other"))
    assert planned(store) == ("v5e", 16, 8.0, 9.6)
    plans.record(store, plans.plan(replace(run, budget=later)))
    assert planned(store) == ("v6e", 4, 1.5, None)
    plans.record(store, plans.plan(run))
    assert planned(store) == (None, None, None, None)
    plans.record(store, plans.plan(replace(run, budget=PODS)))
    plans.begun(store, run).complete()
    plans.record(store, plans.plan(replace(run, budget=later)))
    assert planned(store) == ("v5e", 16, 8.0, 9.6)


def test_chip_hours_include_all_attempts(store):
    """Preempted and failed attempts cost money, too."""
    run = replace(plans.run("a"), budget=PODS)
    plans.record(store, plans.plan(run))
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


def test_running_attempts_count_until_their_last_heartbeat_and_waiting_ones_do_not(store):
    runs = running, waiting, without_chips = [plans.run(name, seed=seed) for seed, name in enumerate("abc")]
    plans.record(store, plans.plan(*runs, plans.run("untouched", seed=3)))
    heartbeat = stores.START + timedelta(minutes=90)
    stores.attempt(store, running, RunState.RUNNING, chips=4, heartbeat_at=heartbeat)
    stores.attempt(store, waiting, RunState.PENDING, chips=4, started_at=None)
    stores.attempt(store, without_chips, chips=0, ended_at=stores.START + timedelta(minutes=45))
    found = {run: (row["actual_hours"], row["actual_chip_hours"]) for run, row in costs(store).items()}
    assert found == {"a": (1.5, 6.0), "b": (None, None), "c": (0.75, 0.75), "untouched": (None, None)}
    assert costs(store)["untouched"]["actual_flops"] is None


def test_actual_flops_are_the_last_reported_ones(store):
    logs, evaluates, both = (
        plans.run(name, seed=seed) for seed, name in enumerate(("logs", "evals", "both"))
    )
    plans.record(store, plans.plan(logs, evaluates, both))
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


def shares(store: Store) -> dict[str, tuple[int | None, float]]:
    """Return how many runs share what a run needs, and its own share in MFLOPs."""
    return {
        run: (row["reference_shared_by"], row["reference_training_share_flops"] / 1e6)
        for run, row in costs(store).items()
    }


def test_runs_of_all_studies_share_a_reference(store):
    reference = plans.run("reference")
    needs = {"selection.reference": reference.fingerprint}
    a, b, c = (plans.run(name, seed=seed, needs=needs) for seed, name in enumerate("abc"))
    plans.record(store, plans.plan(reference, a))
    assert shares(store) == {"reference": (None, 0), "a": (1, 4.5)}  # a single run pays everything
    plans.record(store, plans.plan(reference, b, c, name="other"))
    plans.record(store, plans.plan(reference, b, name="again"))
    assert shares(store) == {"reference": (None, 0), **dict.fromkeys("abc", (3, 1.5))}


def test_each_needed_run_is_divided_among_the_runs_that_train_with_it(store):
    """Two learners need a cache, a third its reference; a diagnosis, which trains nothing, reads two runs."""
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
    plans.record(store, plans.plan(reference, cache, a, b, online, diagnosis))
    found = shares(store)
    by_cache = (2, 1.5 / 2 + 4.5 / 3)
    expected = {"online": (3, 1.5), "a": by_cache, "b": by_cache, "cache": (3, 0), "diagnosis": (0, 0)}
    assert found == {"reference": (None, 0), **expected}
    paid = sum(share for _, share in found.values())
    assert paid == pytest.approx(4.5 + 1.5)  # the reference and the cache, once


def test_a_needed_run_without_a_price_costs_what_it_reports(store):
    pretraining, unknown = plans.run("pretraining", price=None), plans.run("unknown", seed=1, price=None)
    tuned = {"initial": pretraining.fingerprint}
    a, b = (plans.run(name, seed=seed, needs=tuned, price=None) for seed, name in enumerate("ab", start=2))
    c = plans.run("c", seed=4, needs=tuned | {"tokenizer": unknown.fingerprint}, price=None)
    plans.record(store, plans.plan(pretraining, unknown, a, b, c))
    assert costs(store)["a"]["reference_training_share_flops"] is None  # it has not reported any yet
    attempt = plans.begun(store, pretraining)
    attempt.evaluation(3, None, 9e6, {"toy/score": 0.5})
    attempt.complete()
    found = {
        run: (row["reference_training_flops"], row["reference_training_share_flops"])
        for run, row in costs(store).items()
    }
    nothing = dict.fromkeys(("pretraining", "unknown"), (0, 0))
    assert found == {**nothing, "a": (9e6, 3e6), "b": (9e6, 3e6), "c": (None, None)}


def test_costs_by_component_and_those_of_adopted_runs_without_towers(store):
    plans.record(store, plans.reference_and_two())
    names = (
        "image_tower",
        "text_tower",
        "loss",
        "selection",
        "learner",
        "scoring",
        "reference_scoring",
        "total",
    )

    def found() -> list[float | None]:
        return [costs(store)["joint"][f"{name}_flops"] for name in names]

    assert found() == [2e6, 7.5e5, 2.5e5, 2.5e5, 3e6, 7.5e5, 5e5, 4e6]
    with store.writing() as connection:
        connection.execute(text("DELETE FROM cost"))
        for component, flops in {"learner": 3e6, "scoring": 1e6, "reference_scoring": 5e5}.items():
            connection.execute(text(f"INSERT INTO cost SELECT id, '{component}', {flops} FROM run"))
    assert found() == [None, None, None, None, 3e6, 1e6, 5e5, 4e6]


@plans.ON_SQLITE
def test_speed_is_the_median_of_runs_with_one_attempt_on_the_device_of_the_next_run(store):
    here: dict[str, Any] = {"device": provenance.device()}
    gpus: dict[str, Any] = {"executor": "slurm", "chips": 4, "host": "n1", "device": "4 × H100"}
    attempts = [
        (1, here), (2, here), (4, here), (100, here), (1, here | {"number": 2}),
        (1, here | {"state": RunState.FAILED}), (1, here | {"device": "8 × TPU v5 lite"}), (200, gpus),
        (100, gpus | {"chips": 1}), (100, gpus | {"device": "4 × V100"}),
        (100, gpus | {"executor": "kubernetes"}), (100, gpus | {"executor": "local"}),
    ]  # fmt: skip
    for seed, (seconds, columns) in enumerate(attempts):
        run = plans.run("a", seed=seed)
        plans.record(store, plans.plan(run, name=f"study{seed}"))
        stores.attempt(store, run, ended_at=stores.START + timedelta(seconds=seconds), **columns)

    def measured(*place: Any) -> list[tuple[str, int, float, float]]:
        found = speeds(store, ["toy_programs:loop", "toy_programs:flood"], *place)
        return [
            (program, speed.runs, plans.PRICE.executed / speed.flops_per_second, speed.start_seconds)
            for program, speed in found.items()
        ]

    assert measured() == [("toy_programs:loop", 4, 3, 0)]  # runs of one length don't tell the time to start
    assert measured("slurm", 4) == [("toy_programs:loop", 1, 200, 0)]
    assert measured("slurm", 1) == [("toy_programs:loop", 1, 100, 0)]
    assert measured("slurm") == [("toy_programs:loop", 2, 150, 0)]  # on the last device
    assert measured("slurm", 2) == []


@pytest.mark.parametrize(
    ("runs", "start_seconds", "flops_per_second"),
    [
        # The run of 60 s is an outlier, such as one that compiles first.
        ([(1e6, 11), (1e6, 11), (1e6, 60), (2e6, 12), (2e6, 12), (4e6, 14), (4e6, 14)], 10, 1e6),
        # Longer runs happened to be faster: a tenth of the median of 30, 20, 10, and 5 is computing.
        ([(1e6, 30), (1e6, 20), (2e6, 20), (2e6, 10)], 20 - 1.5 * 1.5, 1e6 / 1.5),
        # Longer runs were slower than their length explains.
        ([(1e6, 1), (1e6, 1), (1e6, 1), (10e6, 100)], 0, 1e6),
        # 1% more FLOPs in half the time doesn't mean that FLOPs take no time.
        ([(1e6, 10), (1e6, 10), (1e6, 10), (1.01e6, 5), (1.01e6, 5)], 0, 1e5),
    ],
    ids=["outlier", "longer is faster", "longer is slower", "similar lengths"],
)
def test_speed_and_time_to_start(runs, start_seconds, flops_per_second):
    speed = _speed(runs)
    assert speed.runs == len(runs)
    assert speed.start_seconds == pytest.approx(start_seconds)
    assert speed.flops_per_second == pytest.approx(flops_per_second)
    assert speed.hours(590e6) == pytest.approx((start_seconds + 590e6 / flops_per_second) / 3600)
