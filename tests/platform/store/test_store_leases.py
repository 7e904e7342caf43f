"""Who works on a run: one attempt at a time, whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import plans_support as plans
import pytest

from jestlab.platform.store import claims, leases
from jestlab.platform.store.records import RunState, Standing
from jestlab.platform.store.store import Store

RUN = plans.run("a")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = Store.open(store_url)
    store.record(plans.plan(RUN))
    yield store
    store.close()


def standing(store: Store) -> Standing:
    return leases.standings(store, [RUN.fingerprint])[RUN.fingerprint]


def claim(store: Store, launcher: int) -> claims.Claim | None:
    return claims.claim(store, RUN.fingerprint, launcher, "kubernetes", 256, "log.txt")


def test_a_claim_holds_the_run_until_it_ends(store):
    first, second = (leases.enter_launcher(store, name) for name in ("host:1:0", "host:2:0"))
    claimed = claim(store, first)
    assert claimed is not None
    assert (claimed.number, standing(store).state) == (1, RunState.PENDING)
    assert claim(store, second) is None
    claims.launched(store, {claimed.attempt_id: "jobset-a"})
    lease = standing(store).lease
    assert lease is not None
    assert (lease.launcher, lease.executor, lease.handle) == ("host:1:0", "kubernetes", "jobset-a")
    assert leases.end(store, RUN.fingerprint, lease.id, RunState.PREEMPTED, "taken away", None)
    assert not leases.end(store, RUN.fingerprint, lease.id, RunState.FAILED, "too late", 1)
    assert (standing(store).state, standing(store).failures) == (RunState.PREEMPTED, 0)
    again = claim(store, second)
    assert again is not None
    assert again.number == 2


def test_of_eight_launchers_at_once_one_gets_the_run(store_url, store):
    def contend(number: int) -> claims.Claim | None:
        own = Store.open(store_url)
        try:
            return claim(own, leases.enter_launcher(own, f"host:{number}:0"))
        finally:
            own.close()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(contend, range(8)))
    assert sum(claimed is not None for claimed in found) == 1
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM attempt").scalar_one() == 1


def test_a_lease_is_adopted_once_and_only_from_whom_it_was_seen_with(store):
    first, second, third = (leases.enter_launcher(store, f"host:{n}:0") for n in (1, 2, 3))
    assert claim(store, first)
    lease = standing(store).lease
    assert lease is not None
    assert leases.adopt(store, [lease], second)
    assert not leases.adopt(store, [lease], third)
    leases.leave(store, second)
    lease = standing(store).lease
    assert lease is not None
    assert lease.launcher is None
    assert leases.adopt(store, [lease], third)
    assert leases.heartbeats(store).keys() == {"host:1:0", "host:3:0"}


def test_failures_count_until_the_user_launches_again(store):
    launcher = leases.enter_launcher(store, "host:1:0")
    for failures in (1, 2):
        claimed = claim(store, launcher)
        assert claimed is not None
        leases.end(store, RUN.fingerprint, claimed.attempt_id, RunState.FAILED, "no", 1)
        assert standing(store).failures == failures
    store.record(plans.plan(RUN))
    assert (standing(store).failures, standing(store).state) == (0, RunState.PENDING)


def test_what_is_stopped_stays_so_until_it_is_launched_again(store):
    launcher = leases.enter_launcher(store, "host:1:0")
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    assert (standing(store).state, standing(store).reason) == (RunState.CANCELLED, "cancelled by me")
    assert claim(store, launcher) is None
    leases.reopen(store, [RUN.fingerprint])
    assert standing(store).stop_reason is None
    assert claim(store, launcher)
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    assert standing(store).state == RunState.PENDING  # held: whoever holds it ends it
    leases.reopen(store, [RUN.fingerprint])
    assert standing(store).stop_reason == "cancelled by me"


def test_a_completed_run_is_neither_claimed_nor_stopped_nor_opened(store):
    plans.begun(store, RUN).complete()
    assert claim(store, leases.enter_launcher(store, "host:1:0")) is None
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    leases.reopen(store, [RUN.fingerprint])
    assert (standing(store).state, standing(store).stop_reason) == (RunState.COMPLETED, None)


def test_a_state_is_entered_only_where_nothing_has_changed_since(store):
    """Ctrl-C of one launch, decided on what it saw a moment ago, is not the end of what another has begun."""
    seen = standing(store)
    attempt = plans.begun(store, RUN)
    assert not leases.enter(store, [(seen, RunState.CANCELLED, "the launch was stopped")])
    attempt.interrupt("stopped by SIGTERM")
    assert not leases.enter(store, [(seen, RunState.CANCELLED, "the launch was stopped")])
    assert standing(store).state == RunState.PREEMPTED
    assert leases.enter(store, [(standing(store), RunState.CANCELLED, "the launch was stopped")])
    assert not leases.enter(store, [(seen, RunState.SKIPPED, "needs what failed")])


def test_whoever_holds_a_run_says_how_it_ends(store):
    attempt = plans.begun(store, RUN)
    plans.move(store, RUN, RunState.CANCELLED, "entered by somebody who did not look")
    attempt.complete()
    assert (standing(store).state, standing(store).reason) == (RunState.COMPLETED, None)


def test_recording_a_plan_again_takes_nothing_from_those_who_work_on_it(store):
    attempt = plans.begun(store, RUN)
    store.record(plans.plan(RUN))
    assert standing(store).state == RunState.RUNNING
    attempt.complete()
    store.record(plans.plan(RUN))
    assert standing(store).state == RunState.COMPLETED


def test_an_attempt_that_gave_a_sign_of_life_after_all_is_not_ended_for_silence(store):
    attempt = plans.begun(store, RUN)
    seen = standing(store).lease
    assert seen is not None
    attempt.flush()
    fingerprint, silent = RUN.fingerprint, (RunState.PREEMPTED, "no sign of life", None)
    assert not leases.end(store, fingerprint, seen.id, *silent, heartbeat_at=seen.heartbeat_at)
    again = standing(store).lease
    assert again is not None
    assert leases.end(store, fingerprint, again.id, *silent, heartbeat_at=again.heartbeat_at)


def test_attempts_that_get_no_further_are_counted(store):
    for expected in (0, 1, 2):
        assert standing(store).fruitless == expected
        plans.begun(store, RUN).interrupt("taken away")
    attempt = plans.begun(store, RUN)
    attempt.progress(7, 10)
    attempt.interrupt("taken away")
    assert standing(store).fruitless == 0


def test_what_failed_stays_so_when_all_is_cancelled(store):
    plans.begun(store, RUN).fail("ValueError: no")
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    assert (standing(store).state, standing(store).reason) == (RunState.FAILED, "ValueError: no")
