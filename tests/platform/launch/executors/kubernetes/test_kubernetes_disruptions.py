"""Pods that are evicted, nodes that die, JobSets that others delete: as a real cluster tells them."""

import shutil
import subprocess

import pytest
from kubernetes_harness import KubernetesHarness
from tests.cluster.kubernetes.shared import until

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


@pytest.mark.parametrize("index", [0, 2])
def test_a_pod_that_is_evicted_is_preempted(cluster, index):
    _, _, status = running(cluster, machines=FOUR_HOSTS)
    cluster.namespace.evict(cluster.namespace.pods(NAME)[index]["metadata"]["name"])
    assert status().state == JobState.RUNNING  # it may still save
    cluster.let_end(lambda: status().state.is_over)
    assert status().state == JobState.PREEMPTED
    assert "taken away" in status().reason


def test_a_node_that_dies_takes_its_job_along_once_it_is_given_up(cluster, restored):
    _, _, status = running(cluster)
    [pod] = cluster.namespace.pods(NAME)
    node = pod["spec"]["nodeName"]
    cluster.cluster.ask("kill_node", node)
    until(lambda: cluster.namespace.pods(NAME)[0]["metadata"].get("deletionTimestamp"), 60.0)
    # Nobody knows whether its process runs: the node may only be cut off.
    assert status().state == JobState.RUNNING
    assert status().reason == f"the node {node} does not answer"
    # As whoever knows that its machine is off says. Kubernetes looks for such pods every 20 s.
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    cluster.cluster.taint(node, taint)
    until(lambda: status().state.is_over, 60.0)
    assert status().state == JobState.PREEMPTED
    cluster.cluster.ask("remove_node", node)  # with its taint


def test_a_job_on_a_dead_node_can_be_killed_for_good(cluster, restored):
    """As a launcher does with one that has shown no sign of life for so long."""
    executor, started, status = running(cluster)
    [pod] = cluster.namespace.pods(NAME)
    cluster.cluster.ask("kill_node", pod["spec"]["nodeName"])
    executor.stop(started, now=True)
    until(lambda: status().state == JobState.GONE)
    assert cluster.namespace.pods() == []


@pytest.fixture
def restored(cluster):
    yield
    cluster.cluster.ask("restore_nodes")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_one_that_somebody_deletes_by_kubectl_runs_until_its_pods_have_ended(cluster):
    executor, started, status = running(cluster)
    kubectl = [
        "kubectl",
        f"--kubeconfig={cluster.cluster.kubeconfig}",
        f"--namespace={cluster.namespace.name}",
    ]
    subprocess.run([*kubectl, "delete", "jobset", NAME], check=True, capture_output=True, timeout=60)
    assert cluster.namespace.jobset(NAME) is None
    assert (status().state, status().reason) == (JobState.RUNNING, "stopping")
    cluster.let_end(lambda: status().state == JobState.GONE)
    assert executor.launch(cluster.job(NAME)) == started


def test_a_cluster_restarts_no_job_by_itself(cluster):
    """Each attempt is the launcher's, which counts them."""
    _, started, status = running(cluster, machines=FOUR_HOSTS)
    before = {pod["metadata"]["uid"] for pod in cluster.namespace.pods(NAME)}
    cluster.end(started, 1, index=1)
    assert status().state == JobState.FAILED
    assert {pod["metadata"]["uid"] for pod in cluster.namespace.pods(NAME)} <= before
    found = cluster.namespace.jobset(NAME)
    assert found is not None
    assert found["status"].get("restarts", 0) == 0
