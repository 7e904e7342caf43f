"""Many JobSets, which no node has to run; five hundred are launched by `benchmarks/bench_kubernetes.py`."""

import pytest
from kubernetes_harness import KubernetesHarness

from jestlab.platform.launch.executor import JobState, LaunchedJob


@pytest.fixture
def cluster(kubernetes_harness: KubernetesHarness) -> KubernetesHarness:
    return kubernetes_harness


def test_many_jobs_are_launched_and_asked_for_in_a_few_requests(cluster, monkeypatch):
    monkeypatch.setattr("jestlab.platform.launch.executors.kubernetes._PAGE", 50)
    queued = cluster.settings(queue="tpus")  # suspended: Kueue is not heard here
    executor = cluster.executor(settings=queued)
    jobs = [cluster.job(f"jestlab-0a1b2c3d-{number}") for number in range(101)]
    all_started = executor.launch_all(jobs)
    assert all(isinstance(started, LaunchedJob) for started in all_started)
    assert len(cluster.api.requests) == 101
    del cluster.api.requests[:]
    found = executor.statuses(all_started)
    assert [status.state for status in found.values()] == [JobState.QUEUED] * 101
    assert len(cluster.api.requests) == 5  # three pages of JobSets, the pods, and Kueue's Workloads
