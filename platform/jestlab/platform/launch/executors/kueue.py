"""What Kueue says of a JobSet that it has suspended: why it waits, and whether it has begun before.

References:
    Workloads and their conditions, kueue.sigs.k8s.io/docs/concepts/workload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jestlab.platform.launch.executor import JobState, JobStatus
from jestlab.platform.logs import one_line

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_LABEL = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: which JobSet it stands for."""

WORKLOADS = ("kueue.x-k8s.io", "v1beta2", "workloads")
"""Group, version and plural of Workloads; Kueue has had this version since 0.15."""


def is_in_queue(jobset: Mapping[str, Any]) -> bool:
    """Whether a JobSet is suspended until Kueue admits it."""
    return bool(jobset["spec"].get("suspend")) and QUEUE_LABEL in (jobset["metadata"].get("labels") or {})


def suspended(jobset: Mapping[str, Any], first: Mapping[str, Any] | None) -> JobStatus:
    """Return the state of a JobSet's job that is suspended.

    Args:
        jobset: The object, as the API answers.
        first: The pod of its first host, which may still save; None if there is none.
    """
    if first is not None and first.get("status", {}).get("phase") == "Running":
        return JobStatus(JobState.RUNNING, "stopping: it was put back into the queue")
    # It was created suspended, as its generation 1: a later one has been resumed, and suspended again.
    again = jobset["metadata"].get("generation", 1) > 1
    return JobStatus(JobState.QUEUED, "waits in the queue", requeued=again)


def queued(
    jobset: Mapping[str, Any], waiting: JobStatus, workloads: Sequence[Mapping[str, Any]]
) -> JobStatus:
    """Return the state of a job that waits in a queue, with what Kueue says of it.

    Args:
        jobset: Its JobSet, which `is_in_queue`.
        waiting: What is known without Kueue.
        workloads: Of that JobSet; none where we may not look, or Kueue has not seen it yet.
    """
    queue, why = jobset["metadata"]["labels"][QUEUE_LABEL], ""
    for workload in workloads:
        for condition in workload.get("status", {}).get("conditions") or ():
            if condition["type"] == "QuotaReserved" and condition["status"] == "False":
                why = condition.get("message", "")
        if workload.get("spec", {}).get("active") is False:
            why = "its Workload was deactivated"
    why = re.sub(r"^couldn't assign flavors to pod set \S+: ", "", one_line(why))
    return replace(waiting, reason=f"{waiting.reason} {queue}" + (f": {why}" if why else ""))
