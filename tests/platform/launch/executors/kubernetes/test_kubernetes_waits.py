"""What would let a job begin, for messages of real clusters."""

import pytest

from jestlab.platform.launch.executor import JobState, JobStatus
from jestlab.platform.launch.executors.kubernetes import status
from jestlab.platform.launch.executors.kubernetes_waits import with_remedy

REMEDIES = [
    ("Unschedulable: 0/2 nodes are available: 2 Insufficient google.com/tpu.", "more nodes"),
    (
        "Unschedulable: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match Pod's node "
        "affinity/selector.",
        "more nodes",
    ),
    (
        "Unschedulable: 0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
        "nodes with the labels",
    ),
    ("Unschedulable: 0/1 nodes are available: 1 node(s) had untolerated taint(s)", "nodes that are ready"),
    ("ImagePullBackOff: Back-off pulling image", "an `image`"),
    ('CreateContainerConfigError: secret "jestlab-store" not found', "the Secret and the key"),
    (
        'FailedCreate: Error creating: pods "a" is forbidden: exceeded quota: small, requested: pods=1',
        "a larger quota",
    ),
    ('Unschedulable: 0/1 nodes: persistentvolumeclaim "lab" not found', "`kubernetes.claim`"),
    ("waits in the queue", "Kueue"),
    ("waits in the queue tpus: LocalQueue tpus doesn't exist", "`kubernetes.queue`"),
    ("waits in the queue tpus: LocalQueue tpus is stopped", "whoever runs the queue"),
    ("waits in the queue tpus: ClusterQueue all is inactive", "whoever runs the queue"),
    ("waits in the queue tpus: ClusterQueue all doesn't exist", "belongs to"),
    ("waits in the queue tpus: its Workload was deactivated", "`active: true`"),
    (
        "waits in the queue tpus: insufficient unused quota for google.com/tpu in flavor any, 4 more needed",
        "more quota of its ClusterQueue",
    ),
    (
        "waits in the queue tpus: insufficient quota for google.com/tpu in flavor any, previously "
        "considered podsets requests (0) + current podset request (16) > maximum capacity (4)",
        "a queue with more quota",
    ),
]
"""Messages of a real cluster, and a part of the remedy."""


def test_a_waiting_job_names_what_would_let_it_begin():
    found = {said: with_remedy(JobStatus(JobState.QUEUED, said)).unblock for said, _ in REMEDIES}
    assert [said for said, remedy in REMEDIES if remedy not in found[said]] == []


def test_unknown_reasons_and_running_jobs_have_no_remedy():
    for waiting in (JobStatus(JobState.QUEUED, "NewReason: of a later release"), JobStatus(JobState.QUEUED)):
        assert with_remedy(waiting) == waiting
    running = JobStatus(JobState.RUNNING, "Insufficient")
    assert with_remedy(running) == running


@pytest.mark.parametrize(
    ("deleted", "state"),
    [({}, JobState.QUEUED), ({"deletionTimestamp": "2026-11-25T03:41Z"}, JobState.RUNNING)],
)
def test_a_pod_that_is_deleted_before_it_began_is_not_waited_for(deleted, state):
    labels = {"labels": {"batch.kubernetes.io/job-completion-index": "0"}}
    pod = {"metadata": {**labels, **deleted}, "spec": {}, "status": {"phase": "Pending"}}
    assert status({"metadata": {}, "spec": {}}, [pod]).state == state
