"""What executors of clusters share: repeated calls, and reasons in the words of real clusters."""

from contextlib import closing

import pytest
from executor_harnesses import VertexHarness

from jestlab.platform.launch.executors.base import ExecutorError, ExecutorUnavailable, JobState
from jestlab.platform.launch.executors.jobset import status
from jestlab.platform.launch.executors.remote import ATTEMPTS, explained, retried

TRANSIENT = ExecutorUnavailable("busy", transient=True)


@pytest.mark.parametrize(
    ("errors", "calls"),
    [
        ([TRANSIENT] * (ATTEMPTS - 1), ATTEMPTS),
        ([TRANSIENT] * ATTEMPTS, ATTEMPTS),
        ([ExecutorError("no")], 1),
        ([ExecutorUnavailable("later")], 1),
        ([KeyError("bug")], 1),
    ],
)
def test_only_transient_errors_are_repeated(monkeypatch, errors, calls):
    monkeypatch.setenv("JESTLAB_API_PAUSE_SECONDS", "0")
    made = []

    def act() -> int:
        made.append(1)
        if len(made) <= len(errors):
            raise errors[len(made) - 1]
        return 7

    if calls > len(errors):
        assert retried(act) == 7
    else:
        with pytest.raises(type(errors[-1]), match=str(errors[-1])):
            retried(act)
    assert len(made) == calls


def test_after_a_stop_nothing_more_is_sent(tmp_path, monkeypatch):
    with closing(VertexHarness(tmp_path, monkeypatch)) as harness:
        executor = harness.executor()
        first = executor.launch(harness.job("jestlab-0a1b2c3d-1"))
        executor.halt()
        [second] = executor.launch_all([harness.job("jestlab-0a1b2c3d-2")])
        assert isinstance(second, ExecutorError)
        assert harness.count() == 1
        executor.stop(first, now=True)  # a job that was sent can still be stopped


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
