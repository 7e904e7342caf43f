"""The reasons of engines, with a translation of common ones; messages are those of real clusters."""

import pytest

from jestlab.platform.launch.executors.base import JobState
from jestlab.platform.launch.executors.jobset import status
from jestlab.platform.launch.executors.reasons import explained

COMMON = [
    ("OUT_OF_MEMORY", "memory_gb"),
    ("OOMKilled", "memory_gb"),
    ("PartitionTimeLimit", "resources.time"),
    ("sbatch: error: Requested time limit is invalid", "resources.time"),
    ("NODE_FAIL", "node failed"),
    ("PREEMPTED", "preempted"),
    (
        "PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod",
        "preempted",
    ),
    ("ImagePullBackOff: Back-off pulling image", "pull the image"),
    ("Unschedulable: 0/2 nodes are available: 2 Insufficient google.com/tpu.", "unschedulable"),
    ("Resources", "unschedulable"),
    ("ReqNodeNotAvail, UnavailableNodes:n1", "unschedulable"),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher", "unschedulable"),
    (
        'FailedCreate: Error creating: pods "a" is forbidden: exceeded quota: small, requested: pods=1',
        "quota:",
    ),
    ("insufficient unused quota for google.com/tpu in flavor any, 4 more needed", "quota:"),
    ("QOSMaxJobsPerUserLimit", "quota:"),
    ("AssocGrpCpuLimit", "quota:"),
    ("invalid partition specified: nope", "sinfo"),
    ("InvalidAccount", "sacctmgr"),
    ("CANCELLED by 1000", "canceled"),
    ("EvictionByEvictionAPI: Eviction API: evicting", "evicted"),
]


@pytest.mark.parametrize(("reason", "part"), COMMON)
def test_common_reasons_are_followed_by_a_translation(reason, part):
    text = explained(reason)
    assert text.startswith(f"{reason} (")
    assert part in text.removeprefix(reason)


@pytest.mark.parametrize("reason", ["", "Priority", "BeginTime", "NewReason: of a later release"])
def test_others_are_unchanged(reason):
    assert explained(reason) == reason


@pytest.mark.parametrize(
    ("deleted", "state"),
    [({}, JobState.QUEUED), ({"deletionTimestamp": "2026-11-25T03:41Z"}, JobState.RUNNING)],
)
def test_a_pod_that_is_deleted_before_it_began_is_not_waited_for(deleted, state):
    labels = {"labels": {"batch.kubernetes.io/job-completion-index": "0"}}
    pod = {"metadata": {**labels, **deleted}, "spec": {}, "status": {"phase": "Pending"}}
    assert status({"metadata": {}, "spec": {}}, [pod]).state == state
