"""What a run that has not begun waits for."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from jestlab.platform.launch.reconcile import RetryRules
from jestlab.platform.launch.waiting import waits_for
from jestlab.platform.store.records import Lease, RunState, Standing

NOW = datetime(2026, 11, 23, 12)
RULES = RetryRules(retries=2, backoff_seconds=2.0, max_backoff_seconds=300.0)
NEEDS = {"reference/0": RunState.COMPLETED}
OPEN = {"reference/0": RunState.RUNNING}


def run(state: RunState, reason: str | None = None, lease: Lease | None = None, **changes) -> Standing:
    values = {"failures": 0, "stop_reason": None, "fruitless": 0} | changes
    return Standing(
        "f" * 64, state, reason, **values, step=0, total_steps=None, directory="runs/a", lease=lease
    )


def attempt(state: RunState, seconds_ago: float = 0.0) -> Lease:
    ended = None if state == RunState.PENDING else NOW - timedelta(seconds=seconds_ago)
    return Lease(
        7, "f" * 64, 1, state, None, "host:1:0", "local", None, None, 90.0, NOW, ended, None, "log.txt"
    )


RETRIED = "failed: killed by SIGKILL; tried again (2 of 2)"


@pytest.mark.parametrize(
    ("standing", "needs", "state", "reason"),
    [
        (run(RunState.BLOCKED), OPEN, RunState.BLOCKED, "waits for reference/0, which is RUNNING"),
        (
            run(RunState.BLOCKED),
            OPEN | {"cache/0": RunState.BLOCKED},
            RunState.BLOCKED,
            "waits for reference/0, which is RUNNING, and 1 more",
        ),
        (run(RunState.BLOCKED), NEEDS, RunState.PENDING, "waits for a slot"),
        (run(RunState.PENDING), {}, RunState.PENDING, "waits for a slot"),
        (
            run(RunState.PENDING, RETRIED, attempt(RunState.FAILED), failures=2),
            {},
            RunState.PENDING,
            f"{RETRIED}; in 8 s",
        ),
        (
            run(RunState.PENDING, RETRIED, attempt(RunState.FAILED, 9.0), failures=2),
            {},
            RunState.PENDING,
            f"{RETRIED}; waits for a slot",
        ),
        (run(RunState.PENDING, None, attempt(RunState.PENDING)), {}, RunState.PENDING, "starting"),
        (
            run(RunState.PENDING, "ImagePullBackOff", attempt(RunState.PENDING)),
            {},
            RunState.PENDING,
            "ImagePullBackOff",
        ),
        (run(RunState.FAILED, "because"), OPEN, RunState.FAILED, "because"),
        (run(RunState.PENDING, "because", stop_reason="me"), {}, RunState.PENDING, "because"),
    ],
)
def test_each_case(standing, needs, state, reason):
    assert waits_for(standing, needs, RULES, NOW, is_launched=True) == (state, reason)


def test_without_a_launcher_it_waits_for_one():
    found = waits_for(run(RunState.BLOCKED), NEEDS, RULES, NOW, is_launched=False)
    assert found == (RunState.PENDING, "waits to be launched: no launcher is alive")
    assert waits_for(run(RunState.BLOCKED), OPEN, RULES, NOW, is_launched=False)[0] == RunState.BLOCKED
