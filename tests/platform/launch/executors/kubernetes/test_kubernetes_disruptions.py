"""Pods that are evicted, and nodes that die, as a real cluster reports them."""

import pytest
from kubernetes_harness import KubernetesHarness
from tests.waiting import wait_until

from jestlab.platform.launch.executor import JobState
from jestlab.platform.spec.resources import parse_slice

NAME = "jestlab-0a1b2c3d-1"
FOUR_HOSTS = parse_slice("v5e-4x4")


@pytest.fixture
def cluster(kubernetes_harness: KubernetesHarness) -> KubernetesHarness:
    return kubernetes_harness


def running(cluster: KubernetesHarness, **options):
    executor = cluster.executor(**options)
    started = executor.launch(cluster.job(NAME))
    cluster.run(started)
    return executor, started, lambda: executor.statuses([started])[started]


def test_a_pod_that_is_evicted_is_preempted(cluster):
    _, _, status = running(cluster, machines=FOUR_HOSTS)
    cluster.namespace.evict(cluster.namespace.pods(NAME)[2]["metadata"]["name"])
    assert status().state == JobState.RUNNING  # it may still save
    cluster.let_end(lambda: status().state.is_over)
    assert status().state == JobState.PREEMPTED
    assert "taken away" in status().reason


def test_a_node_that_dies_takes_its_job_along_once_it_is_given_up(cluster, restored):
    _, _, status = running(cluster)
    [pod] = cluster.namespace.pods(NAME)
    node = pod["spec"]["nodeName"]
    cluster.cluster.ask("kill_node", node)
    wait_until(lambda: cluster.namespace.pods(NAME)[0]["metadata"].get("deletionTimestamp"))
    # Its process may run: the node may only be cut off.
    assert status().state == JobState.RUNNING
    assert status().reason == f"the node {node} does not answer"
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


def test_a_cluster_restarts_no_job_by_itself(cluster):
    """Only launchers start attempts, and count them."""
    _, started, status = running(cluster, machines=FOUR_HOSTS)
    before = {pod["metadata"]["uid"] for pod in cluster.namespace.pods(NAME)}
    cluster.end(started, 1, index=1)
    assert status().state == JobState.FAILED
    assert {pod["metadata"]["uid"] for pod in cluster.namespace.pods(NAME)} <= before
    found = cluster.namespace.jobset(NAME)
    assert found is not None
    assert found["status"].get("restarts", 0) == 0
