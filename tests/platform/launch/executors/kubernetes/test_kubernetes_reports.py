"""Reports of a real cluster about JobSets, evicted pods, and dead nodes, as the executor reads them."""

import re

import pytest
from tests.waiting import wait_until

from jestlab.platform.launch.executors.base import ExecutorUnavailable, JobState

NAME = "jestlab-0a1b2c3d-1"
FOUR_HOSTS = "v5e-4x4"


def launched(cluster, **options):
    executor = cluster.executor(**options)
    started = executor.launch(cluster.job(NAME))
    return executor, started, lambda: executor.statuses([started])[started]


def running(cluster, **options):
    executor, started, status = launched(cluster, **options)
    cluster.run(started)
    return executor, started, status


def test_one_that_is_suspended_waits_in_the_queue(cluster):
    """Without Kueue; a user resumes it by hand."""
    _, started, status = launched(cluster, settings=cluster.settings(queue="tpus"))
    assert started.handle == f"lab/{cluster.namespace.name}/{NAME}"
    assert (status().state, status().reason) == (JobState.QUEUED, "waiting in queue tpus")
    assert not cluster.namespace.pods()
    cluster.namespace.resume(NAME)
    cluster.run(started)
    assert status().state == JobState.RUNNING


@pytest.mark.parametrize("fails", [False, True])
def test_a_node_that_is_taken_away_differs_from_a_program_that_fails(cluster, fails):
    _, started, status = running(cluster, tpu=FOUR_HOSTS)
    if fails:
        cluster.end(started, 1, index=3)
    else:
        cluster.preempt(started, index=3)
    assert status().state == (JobState.FAILED if fails else JobState.PREEMPTED)
    assert ("taken away" in status().reason) != fails


def test_hosts_of_one_slice_share_a_node_pool_with_nobody(cluster):
    executor = cluster.executor(tpu=FOUR_HOSTS)
    all_started = [executor.launch(cluster.job(f"{NAME}{number}")) for number in range(2)]
    for started in all_started:
        cluster.run(started)
    nodes = [
        {pod["spec"]["nodeName"].rpartition("-")[0] for pod in cluster.namespace.pods(f"{NAME}{number}")}
        for number in range(2)
    ]
    assert sorted(map(len, nodes)) == [1, 1]
    assert nodes[0] != nodes[1]


def test_reports_that_no_node_fits(cluster):
    _, _, status = launched(cluster, tpu="v5p-2x2x1")
    wait_until(lambda: status().reason)
    assert status().state == JobState.QUEUED
    # Other tests remove nodes meanwhile, and put them back.
    assert re.match(r"Unschedulable: 0/\d+ nodes are available", status().reason)


def test_reports_that_an_image_cannot_be_pulled(cluster):
    _, started, status = launched(cluster)
    cluster.wait_for_image(started)
    assert status().state == JobState.QUEUED
    assert status().reason.startswith("ImagePullBackOff: Back-off pulling image")


def test_many_jobs_take_a_few_requests(cluster, monkeypatch):
    monkeypatch.setattr("jestlab.platform.launch.executors.kubernetes._PAGE", 3)
    executor = cluster.executor()
    all_started = [executor.launch(cluster.job(f"jestlab-0a1b2c3d-{number}")) for number in range(8)]
    cluster.run(all_started[0])
    wait_until(lambda: len(cluster.namespace.pods()) == 8)
    del cluster.api.requests[:]
    states = {status.state for status in executor.statuses(all_started).values()}
    assert states <= {JobState.RUNNING, JobState.QUEUED}
    assert len(cluster.api.requests) == 6  # three pages of JobSets, three of pods


def test_a_name_that_is_still_being_deleted_is_waited_for(cluster):
    executor, started, status = running(cluster)
    executor.stop(started, now=False)
    assert (status().state, status().reason) == (JobState.RUNNING, "stopping")
    with pytest.raises(ExecutorUnavailable, match="is still being deleted"):
        executor.launch(cluster.job(NAME))
    cluster.finish_stop()
    assert status().state == JobState.GONE
    assert executor.launch(cluster.job(NAME)) == started


def test_jobs_that_stop_now_leave_no_pods(cluster):
    executor, started, status = running(cluster, tpu=FOUR_HOSTS)
    executor.stop(started, now=True)
    wait_until(lambda: not cluster.namespace.pods())  # sooner than the 120 s that pods may take to save
    assert status().state == JobState.GONE


def test_a_node_that_dies_takes_its_job_along_once_it_is_given_up(cluster, restored):
    _, _, status = running(cluster)
    [pod] = cluster.namespace.pods(NAME)
    node = pod["spec"]["nodeName"]
    cluster.cluster.ask("kill_node", node)
    wait_until(lambda: cluster.namespace.pods(NAME)[0]["metadata"].get("deletionTimestamp"))
    assert status().state == JobState.RUNNING  # its process may run: the node may only be cut off
    # The taint that marks a machine as switched off. Kubernetes looks for such pods every 20 s.
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    cluster.cluster.taint(node, taint)
    wait_until(lambda: status().state.is_over)
    assert status().state == JobState.PREEMPTED
    cluster.cluster.ask("remove_node", node)  # with its taint


@pytest.fixture
def restored(cluster):
    yield
    cluster.cluster.ask("restore_nodes")
