"""A job as a CustomJob of Vertex AI, and what a CustomJob's state says of the job.

References:
    The CustomJob API, cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs.
    TPUs in training, cloud.google.com/vertex-ai/docs/training/configure-compute: one replica, whatever the
    topology, stands for a whole slice.
    Spot VMs, cloud.google.com/vertex-ai/docs/training/use-spot-vms: none for TPU pods; a job whose machines
    are taken away fails with a STOCKOUT error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jestlab.platform.launch import exits
from jestlab.platform.launch.executor import IDENTITY, Job, JobState, JobStatus
from jestlab.platform.launch.executors import clear, mount
from jestlab.platform.launch.logs import one_line
from jestlab.platform.secrets import STORE_SECRET
from jestlab.platform.settings import Vertex
from jestlab.platform.tpu import Slice

LABEL = "jestlab-job"
"""Label whose value is the job's name."""

_STATES = {
    "JOB_STATE_UNSPECIFIED": (JobState.UNKNOWN, "Vertex AI does not say"),
    "JOB_STATE_QUEUED": (JobState.QUEUED, ""),
    "JOB_STATE_PENDING": (JobState.QUEUED, "its machines are being prepared"),
    "JOB_STATE_RUNNING": (JobState.RUNNING, ""),
    "JOB_STATE_UPDATING": (JobState.RUNNING, "being updated"),
    "JOB_STATE_CANCELLING": (JobState.RUNNING, "stopping"),
    "JOB_STATE_PAUSED": (JobState.QUEUED, "paused"),
    "JOB_STATE_SUCCEEDED": (JobState.SUCCEEDED, ""),
    "JOB_STATE_PARTIALLY_SUCCEEDED": (JobState.FAILED, "succeeded in part"),
    "JOB_STATE_FAILED": (JobState.FAILED, ""),
    "JOB_STATE_CANCELLED": (JobState.FAILED, "cancelled"),
    "JOB_STATE_EXPIRED": (JobState.FAILED, "expired: it took longer than Vertex AI lets a job take"),
}
_TAKEN_BACK = frozenset({"JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED"})
_TAKEN_AWAY = re.compile(r"stockout|preempt", re.IGNORECASE)
_EXIT_CODE = re.compile(r"non-zero status of (\d+)")


def manifest(job: Job, slice_: Slice, image: str, settings: Vertex, *, spot: bool) -> dict[str, Any]:
    """The CustomJob, as the REST API takes it.

    Args:
        job: What runs.
        slice_: What on.
        image: Container that holds jestlab.
        settings: Of the project; `store_secret` and `root` are set.
        spot: Whether on machines that may be taken away.

    Raises:
        ExecutorError: It would show a password.
    """
    variables = {"PYTHONUNBUFFERED": "1", **clear.environment(job), STORE_SECRET: settings.store_secret}
    if slice_.hosts > 1:
        variables["JESTLAB_PROCESSES"] = str(slice_.hosts)
    arguments, root = clear.arguments(job), settings.root or ""
    spec: dict[str, Any] = {
        "workerPoolSpecs": [
            {
                "machineSpec": {"machineType": slice_.machine_type, "tpuTopology": slice_.topology},
                "replicaCount": "1",
                "containerSpec": {
                    "imageUri": image,
                    "command": ["python", "-m", "jestlab.platform.worker"],
                    "args": mount.at(root, arguments) if root else arguments,
                    "env": [{"name": name, "value": value} for name, value in variables.items()],
                },
            }
        ],
        # The launcher makes another attempt, which it counts; Vertex AI would begin up to three more unseen.
        "scheduling": {"disableRetries": True, "strategy": "SPOT" if spot else "STANDARD"},
    }
    if settings.nfs:
        server, _, path = settings.nfs.partition(":/")
        nfs = {"server": server, "path": f"/{path}", "mountPoint": "lab"}
        spec["workerPoolSpecs"][0]["nfsMounts"] = [nfs]
    if settings.service_account:
        spec["serviceAccount"] = settings.service_account
    if settings.network:
        spec["network"] = settings.network
    if settings.staging:
        spec["baseOutputDirectory"] = {"outputUriPrefix": f"{settings.staging.rstrip('/')}/{job.name}"}
    return {
        "displayName": job.name,
        "labels": _labels(job),
        "jobSpec": spec,
    }


def _labels(job: Job) -> dict[str, str]:
    """Labels as Google Cloud takes them: small letters, digits, - and _; keys begin with a letter."""
    ours = {_label(key).lstrip("-_0123456789"): _label(value) for key, value in job.labels.items()}
    return {key: value for key, value in ours.items() if key} | {LABEL: job.name}


def counts_for(job: Job, state: str, labels: Mapping[str, str]) -> bool:
    """Whether a CustomJob is the one of a job.

    It is not if another lab's has the name, or if it was cancelled: as one of two that were made at once.
    One that has ended otherwise is: that attempt has been made.
    """
    ours = _labels(job)
    same = all(labels.get(key) == ours.get(key) for key in (LABEL, *IDENTITY))
    return same and state not in _TAKEN_BACK


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


def status(state: str, code: int, message: str) -> JobStatus:
    """How a CustomJob stands.

    Args:
        state: Name of its state.
        code: Of its error, as gRPC numbers them; 0 for none.
        message: Of its error.
    """
    found, reason = _STATES.get(state, (JobState.UNKNOWN, f"Vertex AI says {state}"))
    if found == JobState.SUCCEEDED:
        return JobStatus(found, exit_code=exits.COMPLETED)
    if found != JobState.FAILED:
        return JobStatus(found, reason)
    said = one_line(": ".join(part for part in (reason, message) if part)) or f"error {code}"
    if state == "JOB_STATE_FAILED" and _TAKEN_AWAY.search(message):
        return JobStatus(JobState.PREEMPTED, said)
    match = _EXIT_CODE.search(message)
    exit_code = exits.from_shell(int(match[1])) if match else None
    return JobStatus(found, said, exit_code)
