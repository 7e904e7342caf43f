"""Claims of many runs at once, within the limits of all launchers."""

from dataclasses import replace
from datetime import timedelta

import plans_support as plans
import pytest
from sqlalchemy import update

from jestlab.platform.planning.plan import RunBudget
from jestlab.platform.store import claims, leases
from jestlab.platform.store.claims import ClaimLimits, ClaimTerms
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow

HOURS = {"a": 2.5, "b": 2.5, "c": 8.0, "d": 1.0}
RUNS = {
    name: replace(plans.run(name, config={"name": name}), budget=RunBudget("v5e", 4, hours))
    for name, hours in HOURS.items()
}
LOGS = {run.fingerprint: f"{name}.txt" for name, run in RUNS.items()}


@pytest.fixture
def store(store: Store) -> Store:
    plans.record(store, plans.plan(*RUNS.values()))
    return store


def terms(store: Store, name: str = "host:1:0", executor: str = "kubernetes") -> ClaimTerms:
    return ClaimTerms(leases.enter_launcher(store, name), executor, 4)


def names(fingerprints) -> list[str]:
    return [name for name, run in RUNS.items() if run.fingerprint in set(fingerprints)]


@pytest.mark.both_databases
def test_each_run_is_claimed_once(store):
    found = claims.claim_all(store, LOGS, terms(store))
    assert names(found.claims) == list(RUNS)
    assert len({claim.token for claim in found.claims.values()}) == len(RUNS)
    assert not claims.claim_all(store, LOGS, terms(store, "host:2:0")).claims


def test_all_launchers_of_an_executor_share_its_slots(store):
    claims.claim_all(store, {key: LOGS[key] for key in list(LOGS)[:2]}, terms(store))
    found = claims.claim_all(store, LOGS, terms(store, "host:2:0"), ClaimLimits(slots=3))
    assert (names(found.claims), names(found.no_slot)) == (["c"], ["d"])
    assert (found.taken, found.by_others) == (3, 2)
    elsewhere = claims.claim_all(store, LOGS, terms(store, executor="vertex"), ClaimLimits(slots=1))
    assert names(elsewhere.claims) == ["d"]


@pytest.mark.both_databases
@pytest.mark.parametrize("are_launched", [False, True])
def test_each_machine_has_its_own_slots(store, are_launched):
    """An underscore in a machine's name isn't a wildcard of SQL."""
    rows = [{key: log} for key, log in LOGS.items()]
    for machine, log, count in zip(("nx1", "n_1", "nx1"), rows, (1, 1, 0), strict=False):
        mine = terms(store, f"{machine}:7:0", "local")
        found = claims.claim_all(store, log, mine, ClaimLimits(slots=1, machine=machine))
        assert len(found.claims) == count
        if are_launched:
            handles = {claim.attempt_id: f"{machine}:8:0:log.txt" for claim in found.claims.values()}
            claims.store_handles(store, handles)


def test_attempts_of_dead_launchers_occupy_no_slot(store):
    [first, second] = list(LOGS)[:2]
    [dead] = claims.claim_all(store, {first: LOGS[first]}, terms(store)).claims.values()
    limits = ClaimLimits(slots=1, dead=frozenset({dead.attempt_id}))
    assert second in claims.claim_all(store, {second: LOGS[second]}, terms(store), limits).claims


def test_an_adopted_attempt_occupies_a_slot_of_its_machine(store):
    [run, *_] = LOGS
    [mine] = claims.claim_all(store, {run: LOGS[run]}, terms(store, "here:7:0", "local")).claims.values()
    claims.store_handles(store, {mine.attempt_id: "here:8:0:log.txt"})
    with store.reading() as connection:
        [lease] = claims.holding(connection, "local", "here")
    assert leases.adopt(store, [lease], leases.enter_launcher(store, "there:9:0")) == [lease]
    with store.reading() as connection:
        assert [each.id for each in claims.holding(connection, "local", "here")] == [mine.attempt_id]
        assert claims.holding(connection, "local", "there") == []


@pytest.mark.both_databases
def test_limits_held_and_planned_chip_hours(store):
    limits = ClaimLimits(chip_hours=6.5, since=now())
    found = claims.claim_all(store, LOGS, terms(store), limits)
    assert names(found.claims) == ["a", "b", "d"]
    assert list(found.over_budget.values()) == [
        "the limit of 6.5 chip-hours is reached: 5.00 held, 8.00 planned for this run"
    ]
    another = claims.claim_all(store, LOGS, terms(store, "host:2:0"), limits)
    assert list(another.over_budget.values()) == [
        "the limit of 6.5 chip-hours is reached: 6.00 held, 8.00 planned for this run"
    ]


def test_ended_attempts_count_with_their_hours_since_the_launch_began(store):
    """A run that was preempted after 8 hours on 4 chips has used 32 chip-hours, although 2.5 were planned."""
    run = RUNS["a"].fingerprint
    [first] = claims.claim_all(store, {run: LOGS[run]}, terms(store)).claims.values()
    began = now() - timedelta(hours=8)
    with store.writing() as connection:
        connection.execute(update(AttemptRow).values(started_at=began))
    again = {run: LOGS[run]}
    with store.reading() as connection:
        live = claims.over_budget(connection, list(LOGS), ClaimLimits(chip_hours=33.5, since=began), 4)
    assert names(live) == ["a", "b", "c"]
    plans.end(store, run, first.attempt_id, RunState.PREEMPTED, "taken away", None)
    since_then = ClaimLimits(chip_hours=33.5, since=began)
    assert (
        "32.0 held, 2.50 planned" in claims.claim_all(store, again, terms(store), since_then).over_budget[run]
    )
    later = ClaimLimits(chip_hours=33.5, since=now() - timedelta(hours=1))
    assert claims.claim_all(store, again, terms(store), later).claims


def test_the_reason_to_wait_stays_until_the_run_is_claimed(store):
    run = RUNS["a"].fingerprint
    leases.set_reasons(store, {run: "waits for a slot: 4 of 4 taken"}, claimed=False)
    assert store.reasons([run]) == {run: "waits for a slot: 4 of 4 taken"}
    claims.claim_all(store, {run: LOGS[run]}, terms(store))
    assert store.reasons([run]) == {}
    leases.set_reasons(store, {run: "too late"}, claimed=False)
    assert store.reasons([run]) == {}
    other = RUNS["b"].fingerprint
    leases.set_reasons(store, {run: "the queue is full", other: "too early"}, claimed=True)
    assert store.reasons([run, other]) == {run: "the queue is full"}
