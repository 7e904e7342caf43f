"""What a real cluster reports of JobSets, as the executor reads it."""

import re

import pytest
from executor_harnesses import MARKS
from kubernetes_harness import KubernetesHarness
from tests.cluster.kubernetes.shared import until

from jestlab.platform.lab.settings import Kubernetes as KubernetesSettings
from jestlab.platform.launch.executor import ExecutorAway, ExecutorError, JobState, LaunchedJob
from jestlab.platform.spec.resources import parse_slice

NAME = "jestlab-0a1b2c3d-1"
FOUR_HOSTS = parse_slice("v5e-4x4")


@pytest.fixture
def cluster(kubernetes_harness: KubernetesHarness) -> KubernetesHarness:
    return kubernetes_harness


def launched(cluster: KubernetesHarness, **options):
    executor = cluster.executor(**options)
    started = executor.launch(cluster.job(NAME))
    return executor, started, lambda: executor.statuses([started])[started]


def test_a_handle_says_which_cluster_which_namespace_which_jobset(cluster):
    _, started, _ = launched(cluster)
    assert started.handle == f"lab/{cluster.namespace.name}/{NAME}"


def test_one_that_is_suspended_waits_in_the_queue(cluster):
    """Where Kueue is not heard, and somebody resumes it by hand."""
    _, started, status = launched(cluster, settings=cluster.settings(queue="tpus"))
    assert (status().state, status().reason) == (JobState.QUEUED, "waits in the queue tpus")
    assert not cluster.namespace.pods()
    cluster.namespace.resume(NAME)
    cluster.run(started)
    assert status().state == JobState.RUNNING


@pytest.mark.parametrize("index", [0, 3])
def test_a_node_that_is_taken_away_is_told_from_a_program_that_fails(cluster, index):
    _, started, status = launched(cluster, machines=FOUR_HOSTS)
    cluster.run(started)
    cluster.preempt(started, index)
    assert status().state == JobState.PREEMPTED
    assert "taken away" in status().reason


@pytest.mark.parametrize("index", [0, 3])
def test_a_program_that_fails_on_any_host_fails_the_job(cluster, index):
    _, started, status = launched(cluster, machines=FOUR_HOSTS)
    cluster.run(started)
    cluster.end(started, 1, index)
    assert status().state == JobState.FAILED


def test_hosts_of_one_slice_share_a_node_pool_with_nobody(cluster):
    executor = cluster.executor(machines=FOUR_HOSTS)
    all_started = [executor.launch(cluster.job(f"{NAME}{number}")) for number in range(2)]
    for started in all_started:
        cluster.run(started)
    nodes = [
        {pod["spec"]["nodeName"].rpartition("-")[0] for pod in cluster.namespace.pods(f"{NAME}{number}")}
        for number in range(2)
    ]
    assert sorted(map(len, nodes)) == [1, 1]
    assert nodes[0] != nodes[1]


def test_one_for_which_there_is_no_node_says_so(cluster):
    _, _, status = launched(cluster, machines=parse_slice("v5p-2x2x1"))
    until(lambda: status().reason)
    assert status().state == JobState.QUEUED
    # Other tests remove nodes meanwhile, and put them back.
    assert re.match(r"Unschedulable: 0/\d+ nodes are available", status().reason)


def test_one_whose_image_is_not_to_be_had_says_so(cluster):
    _, started, status = launched(cluster)
    cluster.wait_for_image(started)
    assert status().state == JobState.QUEUED
    assert status().reason.startswith("ImagePullBackOff: Back-off pulling image")


def test_one_whose_secret_is_not_there_says_so(cluster):
    _, _, status = launched(cluster, settings=cluster.settings(store_secret="another/url"))
    cluster.push_image()
    until(lambda: status().reason)
    assert status().reason == 'CreateContainerConfigError: secret "another" not found'
    assert status().state == JobState.QUEUED


def test_polling_many_jobs_takes_two_requests(cluster):
    executor = cluster.executor()
    all_started = executor.launch_all([cluster.job(f"jestlab-0a1b2c3d-{number}") for number in range(12)])
    until(lambda: len(cluster.namespace.pods()) == 12)
    del cluster.api.requests[:]
    assert len(executor.statuses(all_started)) == 12
    assert len(cluster.api.requests) == 2


def test_more_jobs_than_a_page_holds_are_all_found(cluster, monkeypatch):
    monkeypatch.setattr("jestlab.platform.launch.executors.kubernetes._PAGE", 3)
    executor = cluster.executor()
    all_started = [executor.launch(cluster.job(f"jestlab-0a1b2c3d-{number}")) for number in range(8)]
    cluster.run(all_started[0])
    until(lambda: len(cluster.namespace.pods()) == 8)
    del cluster.api.requests[:]
    states = {status.state for status in executor.statuses(all_started).values()}
    assert states <= {JobState.RUNNING, JobState.QUEUED}
    assert len(cluster.api.requests) == 6


def test_a_jobset_of_somebody_else_is_left_alone(cluster):
    theirs = cluster.executor().render(cluster.job(NAME))
    assert theirs is not None
    theirs["metadata"]["labels"] = {}
    uid = cluster.namespace.create_jobset(theirs)["metadata"]["uid"]
    with pytest.raises(ExecutorError, match="or not jestlab's"):
        cluster.executor().launch(cluster.job(NAME))
    found = cluster.namespace.jobset(NAME)
    assert found is not None
    assert found["metadata"]["uid"] == uid


def test_a_name_that_is_still_being_deleted_is_waited_for(cluster):
    executor, started, status = launched(cluster)
    cluster.run(started)
    executor.stop(started, now=False)
    assert (status().state, status().reason) == (JobState.RUNNING, "stopping")
    with pytest.raises(ExecutorAway, match="is still being deleted"):
        executor.launch(cluster.job(NAME))
    cluster.finish_stop()
    assert status().state == JobState.GONE
    assert executor.launch(cluster.job(NAME)) == started


def test_a_cluster_without_jobset_is_named_as_such(cluster):
    cluster.spoil(404)
    with pytest.raises(ExecutorError, match="is JobSet installed in the cluster"):
        cluster.executor().launch(cluster.job(NAME))


def test_a_login_that_has_ended_is_renewed(cluster):
    _, _, status = launched(cluster)
    cluster.spoil(401)
    assert status().state == JobState.QUEUED
    cluster.spoil(401, 401, 401)
    assert status().state == JobState.UNKNOWN


def test_a_broken_kubeconfig_is_an_error_of_one_line(cluster):
    cluster.kubeconfig.write_text("contexts: [")
    with pytest.raises(ExecutorError, match="no access to a cluster") as raised:
        cluster.executor().launch(cluster.job(NAME))
    assert "\n" not in str(raised.value)


def test_an_unknown_context_is_an_error_of_one_line(cluster):
    executor = cluster.executor(settings=KubernetesSettings(context="other", store_secret="s/k"))
    with pytest.raises(ExecutorError, match="no access to a cluster"):
        executor.launch(cluster.job(NAME))
    one = LaunchedJob("other/default/x", MARKS)
    assert executor.statuses([one])[one].state == JobState.UNKNOWN


def test_jobs_that_stop_now_leave_no_pods(cluster):
    executor, started, status = launched(cluster, machines=FOUR_HOSTS)
    cluster.run(started)
    executor.stop(started, now=True)
    until(lambda: not cluster.namespace.pods(), 5.0)  # not the 120 s that pods may take to save
    assert status().state == JobState.GONE
