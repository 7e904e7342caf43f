"""A real Kueue lets jobs wait, begin, and be put back: quota is used up, released, and withdrawn."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from kubernetes_harness import KubernetesHarness
from kueue_support import QUEUE, Queues
from tests.waiting import wait_until

from jestlab.platform.launch.executors.base import JobState

ONE, TWO = "jestlab-0a1b2c3d-1", "jestlab-0b1b2c3d-1"


@pytest.fixture
def queues(kubernetes_harness: KubernetesHarness) -> Iterator[Queues]:
    """A queue with quota for one job."""
    with closing(Queues(kubernetes_harness, chips=4)) as made:
        yield made


def test_a_job_waits_for_quota_until_the_one_before_it_has_ended(queues):
    executor, harness = queues.executor(), queues.harness
    one = executor.launch(harness.job(ONE))
    harness.run(one)
    two = executor.launch(harness.job(TWO))
    [reason] = queues.waits(executor, two, "insufficient")
    assert f"queue {QUEUE}: insufficient unused quota for google.com/tpu in flavor any, 4 more" in reason
    assert "(quota: wait" in reason
    assert executor.statuses([two])[two].state == JobState.QUEUED
    assert not harness.namespace.pods(TWO)
    harness.end(one, 0)
    wait_until(lambda: queues.runs(TWO))
    found = executor.statuses([one, two])
    assert (found[one].state, found[two].state) == (JobState.SUCCEEDED, JobState.RUNNING)


def test_a_drained_job_may_save_and_is_reported_as_put_back(queues):
    """Its JobSet keeps its place: it begins again when the queue does."""
    executor, harness = queues.executor(), queues.harness
    one = executor.launch(harness.job(ONE))
    harness.run(one)
    queues.stop("HoldAndDrain")

    def status():
        return executor.statuses([one])[one]

    wait_until(lambda: status().reason)
    assert (status().state, status().reason) == (JobState.RUNNING, "stopping: requeued by Kueue")
    harness.let_end(lambda: not harness.namespace.pods(ONE))
    [reason] = queues.waits(executor, one, "ClusterQueue")
    assert reason == f"waiting in queue {QUEUE}: ClusterQueue {harness.namespace.name} is inactive"
    assert status().state == JobState.QUEUED
    assert status().requeued
    queues.stop("None")
    wait_until(lambda: queues.runs(ONE))
    assert (status().state, status().requeued) == (JobState.RUNNING, False)


def test_reports_that_a_job_can_never_begin(queues):
    missing, large = queues.executor("missing"), queues.executor(tpu="v5e-4x4")
    one, two = missing.launch(queues.harness.job(ONE)), large.launch(queues.harness.job(TWO))
    assert queues.waits(missing, one, "exist") == [
        "waiting in queue missing: LocalQueue missing doesn't exist"
    ]
    [reason] = queues.waits(large, two, "quota for")
    assert "> maximum capacity (4)" in reason
