"""The API server is killed and started again, while jobs run and end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from executor_harnesses import ready
from kubernetes_harness import KubernetesHarness
from tests.cluster.kubernetes.shared import SharedCluster, until

from jestlab.platform.launch.executor import ExecutorAway, JobState

NAME = "jestlab-0a1b2c3d-1"


@pytest.fixture
def harness(
    cluster_alone: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesHarness]:
    with ready(KubernetesHarness(cluster_alone, tmp_path, monkeypatch), monkeypatch) as made:
        made.namespace.kubeconfig(made.kubeconfig)  # straight to the API server
        yield made


def test_what_ends_while_the_api_server_is_down_is_known_when_it_is_back(harness):
    executor = harness.executor()
    ended, going = (executor.launch(harness.job(f"{NAME}{number}")) for number in range(2))
    harness.run(ended)
    harness.run(going)
    harness.cluster.ask("kill_api")
    try:
        statuses = executor.statuses([ended, going]).values()
        assert {status.state for status in statuses} == {JobState.UNKNOWN}
        for call in (lambda: executor.launch(harness.job(NAME)), lambda: executor.stop(going, now=False)):
            with pytest.raises(ExecutorAway, match="cannot be reached"):
                call()
        harness.tell_end(ended, 0)
    finally:
        harness.cluster.ask("start_api")
    until(lambda: executor.statuses([ended])[ended].state.is_over)
    states = {started: status.state for started, status in executor.statuses([ended, going]).items()}
    assert states == {ended: JobState.SUCCEEDED, going: JobState.RUNNING}
