"""What runs will occupy, against values computed by hand."""

from dataclasses import replace
from typing import Any

import plans_support as plans
import pytest

from jestlab.analysis.costs import Cost
from jestlab.platform.errors import UserError
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning import cost
from jestlab.platform.planning.plan import Plan, PlannedRun, RunBudget
from jestlab.platform.programs import Price
from jestlab.platform.spec.resources import parse_slice
from jestlab.platform.store.records import RunState, Speed

V5E = parse_slice("v5e-2x4")
HOUR_AT_40_PERCENT = 0.4 * 197e12 * 3600
HALF = HOUR_AT_40_PERCENT / 2
COST = Cost(image_tower=2 * HALF, text_tower=HALF, loss=HALF, scoring=HALF, selection=HALF)
CACHED = Price(COST, examples=1)
UNCACHED = Price(replace(COST, reference_scoring=HOUR_AT_40_PERCENT), examples=1)


def budgets_of(plan: Plan) -> list[Any]:
    return [run.budget for run in plan.runs]


def of_hours(name: str, hours: float, **parts: Any) -> PlannedRun:
    return replace(plans.run(name, **parts), budget=RunBudget("v5e", 4, 4 * hours))


def test_on_a_slice_a_run_takes_the_chip_hours_of_what_it_computes():
    plan = plans.plan(plans.run("cached", price=CACHED), plans.run("uncached", seed=1, price=UNCACHED))
    cached, uncached = budgets_of(cost.on_tpu(plan, V5E, Settings()))
    assert (cached.chip, cached.chips, cached.dollars) == ("v5e", 8, None)
    assert cached.chip_hours == pytest.approx(3)
    assert cached.hours == pytest.approx(3 / 8)
    assert uncached.chip_hours == pytest.approx(4)


def test_the_users_prices_and_utilization_count_for_their_own_type():
    plan = plans.plan(plans.run("a", price=CACHED), plans.run("free", seed=1, price=None))
    settings = Settings(prices={"v5e": 2.5, "v6e": 99}, utilization={"v5e": 0.8, "v6e": 0.1})
    priced = cost.on_tpu(plan, V5E, settings)
    a, free = budgets_of(priced)
    assert a.chip_hours == pytest.approx(1.5)
    assert a.dollars == pytest.approx(3.75)
    assert free is None
    assert cost.total(priced.runs) == cost.BudgetTotal(a.chip_hours, a.dollars, unknown=1)


def test_without_tpus_hours_come_from_earlier_runs_of_the_program():
    seconds = Price(Cost(image_tower=60e6, scoring=10e6, reference_scoring=2e6), examples=1)
    plan = plans.plan(
        plans.run("a", price=seconds),
        plans.run("other", "toy_programs:flood", price=seconds),
        plans.run("taken_in", "toy_programs:flood", seed=1, price=Price(Cost(), 0)),
    )
    loop = Speed(1e6, runs=3, start_seconds=36)
    a, other, taken_in = budgets_of(cost.by_earlier_runs(plan, {"toy_programs:loop": loop}))
    assert (a.chip, a.chips, a.by_runs, a.dollars) == ("local", 1, 3, None)
    assert a.hours == pytest.approx((36 + 72) / 3600)
    assert other is None
    assert taken_in.chip_hours == 0
    [gpus, *_] = budgets_of(cost.by_earlier_runs(plan, {"toy_programs:loop": loop}, gpus=8))
    assert (gpus.chip, gpus.chips, gpus.chip_hours) == ("gpu", 8, pytest.approx(8 * a.hours))
    flood = {"toy_programs:flood": loop}
    assert budgets_of(cost.by_earlier_runs(plan, flood))[2] == RunBudget("local", 1, 0.0, by_runs=3)


def test_wall_clock_is_bounded_by_the_slots_and_by_the_longest_chain():
    first = of_hours("first", 3)
    then = of_hours("then", 2, needs={"role": first.fingerprint})
    alone = [of_hours("alone", 1, seed=seed) for seed in range(5)]
    for parallel, hours in ((1, 10), (2, 5), (4, 5), (None, 5)):
        assert cost.wall_hours([first, then, *alone], parallel) == hours
    assert cost.wall_hours([], parallel=2) == 0


@pytest.mark.parametrize(
    ("states", "hours", "message"),
    [
        ({}, 40, r"4 runs .* 40\.0 .*max-chip-hours 39\.9"),
        # Completed runs cost nothing, and resumed runs count in full.
        ({1: RunState.COMPLETED, 3: RunState.PREEMPTED}, 24, r"the 3 runs to do would take 24\.0"),
    ],
)
def test_a_plan_above_the_limit_is_refused(states, hours, message):
    plan = plans.plan(*(of_hours("a", each, seed=seed) for seed, each in enumerate((1, 4, 2, 3))))
    plan = plan.with_states({plan.fingerprints[place]: state for place, state in states.items()})
    cost.check_chip_hours(plan, hours, "local")
    with pytest.raises(UserError, match=message):
        cost.check_chip_hours(plan, hours - 0.1, "local")


def test_an_unknown_estimate_is_refused_with_the_reason():
    own = plans.run("own", price=None)
    for run, place, reason in (
        (own, "local", "the program .*loop of own has no price"),
        (plans.run("a"), "local", "no run of .*loop has completed on this machine"),
        (plans.run("a"), "slurm", "no run of .*loop has completed on slurm with as many chips"),
    ):
        with pytest.raises(UserError, match=reason):
            cost.check_chip_hours(plans.plan(run), 1e9, place)
