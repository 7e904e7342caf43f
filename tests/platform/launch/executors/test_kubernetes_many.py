"""Hundreds of JobSets, which no node has to run."""

import pytest
from kubernetes_harness import KubernetesHarness

from jestlab.platform.launch.executor import JobState, LaunchedJob


@pytest.fixture
def cluster(kubernetes_harness: KubernetesHarness) -> KubernetesHarness:
    return kubernetes_harness


def test_five_hundred_jobs_are_launched_and_asked_for_in_a_few_requests(cluster):
    queued = cluster.settings(queue="tpus")  # suspended: Kueue is not heard here
    executor = cluster.executor(settings=queued)
    jobs = [cluster.job(f"jestlab-0a1b2c3d-{number}") for number in range(501)]
    all_started = executor.launch_all(jobs)
    assert all(isinstance(started, LaunchedJob) for started in all_started)
    assert len(cluster.api.requests) == 501
    del cluster.api.requests[:]
    found = executor.statuses(all_started)
    assert [status.state for status in found.values()] == [JobState.QUEUED] * 501
    assert len(cluster.api.requests) == 4  # two pages of JobSets, the pods, and Kueue's Workloads
