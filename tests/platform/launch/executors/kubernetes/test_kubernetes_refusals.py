"""What a real cluster refuses: quotas, limits, rights, logins, names and pages that are too old."""

import re

import pytest
from kubernetes_harness import KubernetesHarness
from tests.cluster.kubernetes.shared import EVENTS, MAY, until

from jestlab.platform.launch.executor import ExecutorAway, ExecutorError, JobState

NAME = "jestlab-0a1b2c3d-1"


@pytest.fixture
def cluster(kubernetes_harness: KubernetesHarness) -> KubernetesHarness:
    return kubernetes_harness


def limit(cluster: KubernetesHarness, hard: dict[str, str]) -> None:
    """Limit what there may be in the namespace, once the cluster has counted."""
    cluster.namespace.create("resourcequotas", {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    until(lambda: "used" in cluster.namespace.get("resourcequotas/few").get("status", {}))


def test_a_job_beyond_the_quota_of_jobsets_waits_until_others_have_ended(cluster):
    limit(cluster, {"count/jobsets.jobset.x-k8s.io": "1"})
    executor = cluster.executor()
    first = executor.launch(cluster.job(NAME))
    with pytest.raises(ExecutorAway, match="exceeded quota: few") as raised:
        executor.launch(cluster.job(f"{NAME}0"))
    assert "ask for these rights" not in str(raised.value)
    executor.stop(first, now=True)

    def launched() -> bool:
        try:
            return bool(executor.launch(cluster.job(f"{NAME}0")))
        except ExecutorAway:
            return False

    until(launched)


@pytest.mark.parametrize(
    ("kind", "spec", "why"),
    [
        ("resourcequotas", {"hard": {"pods": "0"}}, "exceeded quota: few"),
        (
            "limitranges",
            {"limits": [{"type": "Container", "max": {"google.com/tpu": "2"}}]},
            "maximum google.com/tpu usage per Container is 2",
        ),
    ],
)
def test_why_a_cluster_refuses_pods_is_told(cluster, kind, spec, why):
    cluster.namespace.allow([*MAY, EVENTS])
    if kind == "resourcequotas":
        limit(cluster, spec["hard"])
    else:
        cluster.namespace.create(kind, {"metadata": {"name": "few"}, "spec": spec})
    executor = cluster.executor()
    started = executor.launch(cluster.job(NAME))
    until(lambda: executor.statuses([started])[started].reason)
    status = executor.statuses([started])[started]
    assert status.state == JobState.QUEUED
    assert re.match(rf"FailedCreate: Error creating: .*{why}", status.reason)


def test_one_who_may_not_read_events_does_without_the_reason(cluster):
    limit(cluster, {"pods": "0"})
    executor = cluster.executor()
    started = executor.launch(cluster.job(NAME))
    until(lambda: cluster.namespace.get("events", fieldSelector="reason=FailedCreate")["items"])
    status = executor.statuses([started])[started]
    assert (status.state, status.reason) == (JobState.QUEUED, "")


def test_a_namespace_that_is_not_there_is_named(cluster):
    cluster.as_admin()
    with pytest.raises(ExecutorError, match=r'namespaces "nowhere" not found: is JobSet installed') as raised:
        cluster.executor(settings=cluster.settings(namespace="nowhere")).launch(cluster.job(NAME))
    assert not isinstance(raised.value, ExecutorAway)


@pytest.mark.parametrize("resource", ["jobsets", "pods", "pods/log"])
def test_what_one_may_not_do_is_an_error_that_names_the_rights(cluster, resource):
    executor = cluster.executor()
    started = executor.launch(cluster.job(NAME))
    cluster.run(started)
    cluster.namespace.allow([rule for rule in MAY if resource not in rule["resources"]])
    calls = {
        "jobsets": lambda: executor.launch(cluster.job(f"{NAME}0")),
        "pods": lambda: executor.stop(started, now=True),
        "pods/log": lambda: b"".join(executor.logs(started)),
    }
    with pytest.raises(ExecutorError, match=r"403 Forbidden.*ask for these rights: create, get") as raised:
        until(lambda: calls[resource]() and None)  # rights take a moment to change
    assert not isinstance(raised.value, ExecutorAway)
    assert "\n" not in str(raised.value)


def test_one_who_may_not_list_does_not_know(cluster):
    executor = cluster.executor()
    started = executor.launch(cluster.job(NAME))
    cluster.namespace.allow([])
    until(lambda: executor.statuses([started])[started].state == JobState.UNKNOWN)
    assert "403 Forbidden" in executor.statuses([started])[started].reason


def test_a_token_that_has_expired_may_be_renewed(cluster):
    executor = cluster.executor()
    started = executor.launch(cluster.job(NAME))
    cluster.use_token(cluster.namespace.token_for(600))
    assert executor.statuses([started])[started].state == JobState.QUEUED
    cluster.use_token(cluster.namespace.token_for(-60))
    assert executor.statuses([started])[started].state == JobState.UNKNOWN
    with pytest.raises(ExecutorAway, match=r"401 .*log in to the cluster again"):
        executor.launch(cluster.job(f"{NAME}0"))
    cluster.as_admin()
    assert executor.statuses([started])[started].state == JobState.QUEUED


def test_a_list_whose_next_page_is_too_old_is_asked_for_anew(cluster, monkeypatch):
    monkeypatch.setattr("jestlab.platform.launch.executors.kubernetes._PAGE", 2)
    executor = cluster.executor()
    all_started = [executor.launch(cluster.job(f"{NAME}{number}")) for number in range(3)]
    until(lambda: len(cluster.namespace.pods()) == 3)
    cluster.run(all_started[0])
    cluster.api.after_one = cluster.forget_the_past
    del cluster.api.requests[:]
    states = {status.state for status in executor.statuses(all_started).values()}
    assert 410 in cluster.api.refused
    assert states == {JobState.RUNNING}


def test_an_api_server_that_has_just_started_is_asked_again(cluster):
    """It forbids everything until it has read the rights."""
    cluster.spoil(403, 403)
    executor = cluster.executor()
    started = executor.launch(cluster.job(NAME))
    assert executor.statuses([started])[started].state == JobState.QUEUED
