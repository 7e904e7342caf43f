"""Leases: a run has one live attempt at a time."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import plans_support as plans
import pytest
from sqlalchemy import update

from jestlab.platform.store import claims, leases
from jestlab.platform.store.records import Lease, RunState, Standing
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import RunRow

RUN = plans.run("a")


@pytest.fixture
def store(store: Store) -> Store:
    plans.record(store, plans.plan(RUN))
    return store


def standing(store: Store) -> Standing:
    return leases.standings(store, [RUN.fingerprint])[RUN.fingerprint]


def live_lease(store: Store) -> Lease:
    lease = standing(store).lease
    assert lease is not None
    return lease


def claim(store: Store, launcher: str) -> claims.ClaimedAttempt | None:
    return claims.claim(store, RUN.fingerprint, "log.txt", claims.ClaimTerms(launcher, "kubernetes", 256))


@pytest.mark.both_databases
def test_a_claim_holds_the_run_until_it_ends(store):
    first, second = (leases.enter_launcher(store, name) for name in ("host:1:0", "host:2:0"))
    claimed = claim(store, first)
    assert claimed is not None
    assert (claimed.number, standing(store).state) == (1, RunState.PENDING)
    assert claim(store, second) is None
    claims.store_handles(store, {claimed.attempt_id: "jobset-a"})
    lease = live_lease(store)
    assert (lease.launcher, lease.executor, lease.handle) == ("host:1:0", "kubernetes", "jobset-a")
    assert plans.end(store, RUN.fingerprint, lease.id, RunState.PREEMPTED, "taken away", None)
    assert not plans.end(store, RUN.fingerprint, lease.id, RunState.FAILED, "too late", 1)
    assert (standing(store).state, standing(store).failures) == (RunState.PREEMPTED, 0)
    assert claim(store, second)
    assert live_lease(store).number == 2


@pytest.mark.both_databases
def test_one_of_several_launchers_gets_the_run(store_url, store):
    def contend(number: int) -> claims.ClaimedAttempt | None:
        with closing(Store.open(store_url)) as own:
            return claim(own, leases.enter_launcher(own, f"host:{number}:0"))

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(contend, range(6)))
    assert sum(claimed is not None for claimed in found) == 1
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM attempt").scalar_one() == 1


def test_a_lease_is_adopted_once_and_only_from_the_expected_launcher(store):
    first, second, third = (leases.enter_launcher(store, f"host:{n}:0") for n in (1, 2, 3))
    assert claim(store, first)
    lease = live_lease(store)
    assert leases.adopt(store, [lease], second)
    assert not leases.adopt(store, [lease], third)
    leases.remove_launcher(store, "host:4:0")
    assert live_lease(store).launcher == second
    leases.remove_launcher(store, second)
    lease = live_lease(store)
    assert lease.launcher is None
    assert leases.adopt(store, [lease], third)
    before = leases.heartbeats(store)
    assert before.keys() == {first, third}
    leases.beat_launcher(store, first)
    after = leases.heartbeats(store)
    assert after[first] > before[first] and after[third] == before[third]


def test_failures_count_until_the_user_launches_again(store):
    launcher = leases.enter_launcher(store, "host:1:0")
    for failures in (1, 2):
        claimed = claim(store, launcher)
        assert claimed is not None
        plans.end(store, RUN.fingerprint, claimed.attempt_id, RunState.FAILED, "no", 1)
        assert standing(store).failures == failures
    plans.record(store, plans.plan(RUN))
    assert (standing(store).failures, standing(store).state) == (0, RunState.PENDING)


def test_a_stopped_run_stays_canceled_until_it_is_launched_again(store):
    launcher = leases.enter_launcher(store, "host:1:0")
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    assert (standing(store).state, standing(store).reason) == (RunState.CANCELLED, "cancelled by me")
    assert claim(store, launcher) is None
    leases.reopen(store, [RUN.fingerprint])
    assert standing(store).stop_reason is None
    assert claim(store, launcher)
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    assert standing(store).state == RunState.PENDING  # the worker ends it
    leases.reopen(store, [RUN.fingerprint])
    assert standing(store).stop_reason == "cancelled by me"


def test_a_completed_run_is_neither_claimed_nor_stopped_nor_reopened(store):
    plans.begun(store, RUN).complete()
    assert claim(store, leases.enter_launcher(store, "host:1:0")) is None
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    leases.reopen(store, [RUN.fingerprint])
    assert (standing(store).state, standing(store).stop_reason) == (RunState.COMPLETED, None)


def test_states_are_entered_only_if_the_run_has_not_changed(store):
    """Ctrl-C of one launch doesn't end an attempt that another launch started in the meantime."""
    seen = standing(store)
    attempt = plans.begun(store, RUN)
    assert not leases.change_states(store, [(seen, RunState.CANCELLED, "the launch was stopped")])
    attempt.interrupt("stopped by SIGTERM")
    assert not leases.change_states(store, [(seen, RunState.CANCELLED, "the launch was stopped")])
    assert standing(store).state == RunState.PREEMPTED
    assert leases.change_states(store, [(standing(store), RunState.CANCELLED, "the launch was stopped")])
    assert (standing(store).state, standing(store).reason) == (RunState.CANCELLED, "the launch was stopped")
    assert not leases.change_states(store, [(seen, RunState.SKIPPED, "needs what failed")])


def test_the_live_attempt_decides_how_its_run_ends(store):
    attempt = plans.begun(store, RUN)
    plans.record(store, plans.plan(RUN))
    assert standing(store).state == RunState.RUNNING
    plans.move(store, RUN, RunState.CANCELLED, "entered without looking")
    attempt.complete()
    plans.record(store, plans.plan(RUN))
    assert (standing(store).state, standing(store).reason) == (RunState.COMPLETED, None)


def test_an_attempt_with_a_new_heartbeat_is_not_ended_for_silence(store):
    attempt = plans.begun(store, RUN)
    seen = live_lease(store)
    attempt.flush()
    fingerprint, silent = RUN.fingerprint, (RunState.PREEMPTED, "no sign of life", None)
    assert not plans.end(store, fingerprint, seen.id, *silent, heartbeat_at=seen.heartbeat_at)
    again = live_lease(store)
    assert plans.end(store, fingerprint, again.id, *silent, heartbeat_at=again.heartbeat_at)


def test_counts_attempts_without_progress(store):
    for expected in (0, 1, 2):
        assert standing(store).fruitless == expected
        plans.begun(store, RUN).interrupt("taken away")
    attempt = plans.begun(store, RUN)
    attempt.progress(7, 10)
    attempt.interrupt("taken away")
    assert standing(store).fruitless == 0


def test_failed_runs_stay_failed_when_all_are_canceled_and_have_all_retries_when_reopened(store):
    plans.begun(store, RUN).fail("ValueError: no")
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    assert (standing(store).state, standing(store).reason) == (RunState.FAILED, "ValueError: no")
    assert standing(store).failures == 1
    leases.reopen(store, [RUN.fingerprint])
    assert (standing(store).state, standing(store).failures) == (RunState.PENDING, 0)


def test_a_completed_run_stays_completed_when_an_attempt_ends(store):
    plans.begun(store, RUN)
    with store.writing() as connection:
        connection.execute(update(RunRow).values(state=RunState.COMPLETED))
    assert plans.end(store, RUN.fingerprint, live_lease(store).id, RunState.PREEMPTED, "silent")
    assert standing(store).state == RunState.COMPLETED


def test_a_run_whose_process_vanished_stays_running_while_it_is_claimed(store):
    with store.writing() as connection:
        connection.execute(update(RunRow).values(state=RunState.RUNNING))
    assert claim(store, leases.enter_launcher(store, "host:1:0"))
    assert standing(store).state == RunState.RUNNING
