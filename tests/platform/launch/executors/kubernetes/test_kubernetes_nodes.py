"""Runs on GPUs and on CPUs: what their JobSets request, and where a real cluster puts them."""

import pytest
from executor_harnesses import IMAGE, job
from tests.waiting import wait_until

from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Kubernetes as KubernetesSettings
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import executors
from jestlab.platform.launch.executors.base import JobState
from jestlab.platform.launch.executors.jobset import GRACE_SECONDS
from jestlab.platform.spec.resources import Resources

NAME = "jestlab-0a1b2c3d-1"
SETTINGS = Settings(image=IMAGE, kubernetes=KubernetesSettings(store_secret="s/k", root="/lab"))


def executor(tmp_path, **resources):
    return executors.get("kubernetes", Resources(**resources), SETTINGS, Lab(tmp_path, "sqlite://"))


@pytest.mark.parametrize(
    ("resources", "limits", "cpus", "tolerated", "seconds", "chips"),
    [
        (
            {"gpus": 4, "nodes": 2, "threads": 6, "memory_gb": 1.5, "time": "4h"},
            {"nvidia.com/gpu": "4", "memory": "1500M"},
            *("6", ["nvidia.com/gpu"], 4 * 3600 - GRACE_SECONDS, 8),
        ),
        ({}, {}, "1", [], None, 0),
    ],
)
def test_a_run_without_a_tpu_requests_the_resources_of_its_study(
    tmp_path, resources, limits, cpus, tolerated, seconds, chips
):
    made = executor(tmp_path, **resources)
    hosts = made.render(job())["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod, nodes = hosts["template"]["spec"], resources.get("nodes", 1)
    assert pod["containers"][0]["resources"] == {"limits": limits, "requests": {"cpu": cpus, **limits}}
    assert [each["key"] for each in pod["tolerations"]] == tolerated
    assert (pod["nodeSelector"], "affinity" in pod) == ({}, nodes > 1)
    assert hosts["completions"] == hosts["parallelism"] == nodes
    assert (hosts.get("activeDeadlineSeconds"), made.chips) == (seconds, chips)


@pytest.mark.parametrize(("gpus", "pool"), [(4, {"gpu"}), (0, {"cpu"})])
def test_each_host_of_a_run_has_its_own_node(cluster, gpus, pool):
    executor = cluster.executor(nodes=2, gpus=gpus, threads=2, memory_gb=1.0)
    started = executor.launch(cluster.job(NAME))
    cluster.run(started)
    found = [pod["spec"]["nodeName"] for pod in cluster.namespace.pods(NAME)]
    assert len(set(found)) == 2
    assert {name.rpartition("-")[0] for name in found} == pool
    cluster.end(started, 0)
    assert executor.statuses([started])[started].state == JobState.SUCCEEDED


def test_a_job_whose_time_is_over_may_save_and_is_preempted(cluster):
    executor = cluster.executor(time="6s")
    started = executor.launch(cluster.job(NAME))
    cluster.run(started)
    wait_until(lambda: cluster.namespace.pods()[0]["metadata"].get("deletionTimestamp"))
    assert cluster.namespace.pods()[0]["metadata"]["deletionGracePeriodSeconds"] == GRACE_SECONDS
    assert executor.statuses([started])[started].state == JobState.RUNNING  # it saves
    cluster.let_end(lambda: executor.statuses([started])[started].state.is_over)
    status = executor.statuses([started])[started]
    assert status.state == JobState.PREEMPTED
    assert "time limit" in status.reason
