"""Refusals of a real cluster: quotas, limits, rights, names, and pages that are too old."""

import re
from collections.abc import Callable

import pytest
from tests.cluster.kubernetes.shared import EVENTS, MAY
from tests.waiting import wait_until

from jestlab.platform.launch.executors.base import ExecutorError, ExecutorUnavailable, JobState

NAME = "jestlab-0a1b2c3d-1"


def limit(cluster, hard: dict[str, str]) -> None:
    """Add a quota to the namespace, and wait until the cluster has counted."""
    cluster.namespace.create("resourcequotas", {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    wait_until(lambda: "used" in cluster.namespace.get("resourcequotas/few").get("status", {}))


def test_a_job_beyond_the_quota_of_jobsets_waits_until_others_have_ended(cluster):
    limit(cluster, {"count/jobsets.jobset.x-k8s.io": "1"})
    executor = cluster.executor()
    first = executor.launch(cluster.job(NAME))
    with pytest.raises(ExecutorUnavailable, match="exceeded quota: few") as raised:
        executor.launch(cluster.job(f"{NAME}0"))
    assert "ask for these rights" not in str(raised.value)
    executor.stop(first, now=True)

    def launched() -> bool:
        try:
            return bool(executor.launch(cluster.job(f"{NAME}0")))
        except ExecutorUnavailable:
            return False

    wait_until(launched)


def test_reports_why_a_cluster_refuses_pods(cluster):
    limit(cluster, {"pods": "0"})
    executor = cluster.executor()
    started = executor.launch(cluster.job(NAME))
    wait_until(lambda: cluster.namespace.get("events", fieldSelector="reason=FailedCreate")["items"])
    status = executor.statuses([started])[started]
    assert (status.state, status.reason) == (JobState.QUEUED, "")  # without the right to read events
    cluster.namespace.allow([*MAY, EVENTS])
    wait_until(lambda: executor.statuses([started])[started].reason)
    status = executor.statuses([started])[started]
    assert status.state == JobState.QUEUED
    assert re.match("FailedCreate: Error creating: .*exceeded quota: few", status.reason)


def test_a_check_before_launching_finds_what_would_refuse_all_jobs(cluster):
    executor = cluster.executor(gpus=2, nodes=2, memory_gb=1)
    executor.check()
    limit(cluster, {"requests.nvidia.com/gpu": "3", "count/jobsets.jobset.x-k8s.io": "1"})
    cluster.executor(gpus=1, nodes=1).launch(cluster.job(NAME))
    executor.check()  # a used-up quota makes runs wait, and there is no right to read quotas
    cluster.namespace.allow([*MAY, EVENTS])
    needed = r"a run needs requests.nvidia.com/gpu=4, .* quota few allows 3: lower `resources`"
    wait_until(lambda: re.search(needed, str(raised_by(executor.check))))
    cluster.executor(gpus=1, nodes=2).check()
    cluster.namespace.allow([])
    wait_until(lambda: "403 Forbidden" in (line := str(raised_by(executor.check))) and "these rights" in line)
    assert [found["metadata"]["name"] for found in cluster.namespace.jobsets()] == [NAME]
    elsewhere = cluster.executor(cluster.settings(namespace="nowhere"))
    cluster.kubeconfig.write_bytes(cluster.cluster.kubeconfig.read_bytes())  # of an administrator
    elsewhere._clients.clear()
    line = str(raised_by(elsewhere.check))
    assert "404" in line
    assert "create it, or set another `kubernetes.namespace`" in line


def raised_by(act: Callable[[], None]) -> ExecutorError | None:
    try:
        act()
    except ExecutorError as error:
        return error
    return None


@pytest.mark.parametrize("resource", ["jobsets", "pods", "pods/log"])
def test_a_missing_right_is_an_error_that_names_the_rights(cluster, resource):
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
        wait_until(lambda: calls[resource]() and None)  # rights take a moment to change
    assert not isinstance(raised.value, ExecutorUnavailable)
    assert "\n" not in str(raised.value)


def test_a_list_whose_next_page_is_too_old_is_requested_again(cluster, monkeypatch):
    monkeypatch.setattr("jestlab.platform.launch.executors.kubernetes._PAGE", 2)
    executor = cluster.executor()
    all_started = [executor.launch(cluster.job(f"{NAME}{number}")) for number in range(3)]
    wait_until(lambda: len(cluster.namespace.pods()) == 3)
    cluster.run(all_started[0])
    cluster.api.after_one = lambda: cluster.spoil(410)
    states = {status.state for status in executor.statuses(all_started).values()}
    assert cluster.api.faults == []
    assert states == {JobState.RUNNING}


def test_an_api_server_that_has_just_started_is_asked_again(cluster):
    """It forbids everything until it has read the rights."""
    cluster.spoil(403, 403)
    executor = cluster.executor()
    started = executor.launch(cluster.job(NAME))
    assert executor.statuses([started])[started].state == JobState.QUEUED
