"""What would let a job begin that waits on Kubernetes, by the words in which the cluster says why."""

from __future__ import annotations

import re
from dataclasses import replace

from jestlab.platform.launch.executor import JobState, JobStatus

_REMEDIES = (
    # From the most particular to the least: the scheduler says all at once why each kind of node will not do.
    (
        r"secret \S+ not found|couldn't find key",
        "the Secret and the key of `kubernetes.store_secret`",
    ),
    (r"CreateContainerConfigError", "what the container's settings refer to: see `kubectl describe pod`"),
    (
        r"InvalidImageName|ImagePull",
        "an `image` that nodes can pull: its name, registry and rights",
    ),
    (r"exceeded quota", "the end of other jobs in the namespace, or a larger quota"),
    (r"persistentvolumeclaim", "the PersistentVolumeClaim that `kubernetes.claim` names"),
    # Kueue's, which all begin with `waits in the queue`.
    (
        r"LocalQueue \S+ doesn't exist",
        "the LocalQueue that `kubernetes.queue` names: see `kubectl get localqueues`",
    ),
    (r"ClusterQueue \S+ doesn't exist", "the ClusterQueue that the queue belongs to"),
    (r"Queue \S+ is (stopped|inactive)", "whoever runs the queue: see `kubectl describe localqueues`"),
    (r"was deactivated", "`active: true` in its Workload; or `jestlab cancel`, and launch again"),
    (r"> maximum capacity", "lower `resources` of each run, or a queue with more quota"),
    (r"insufficient unused quota", "the end of other runs in the queue, or more quota of its ClusterQueue"),
    (r"Insufficient", "the end of jobs that hold the nodes, more nodes, or lower `resources` of each run"),
    (r"node affinity|node selector", "nodes with the labels of `resources.tpu`: see `kubectl get nodes -L`"),
    (r"untolerated taint", "nodes that are ready and kept free for nothing else: see `kubectl get nodes`"),
    (r"no nodes available", "nodes: the cluster has none"),
    (r"waits in the queue", "quota of its queue in Kueue: see `kubectl describe workloads`"),
)


def with_remedy(status: JobStatus) -> JobStatus:
    """Return the status of a job, with what would let it begin if it waits and that is known."""
    if status.state != JobState.QUEUED:
        return status
    for words, remedy in _REMEDIES:
        if re.search(words, status.reason, re.IGNORECASE):
            return replace(status, unblock=remedy)
    return status
