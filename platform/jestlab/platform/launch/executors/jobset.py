"""A job as a JobSet of Kubernetes, and what a JobSet's status says of the job.

One JobSet has one Job, whose pods are the hosts of one TPU slice: all are placed together, and the first that
ends badly ends them all. It is never restarted inside: the launcher makes another attempt, which it counts.

References:
    The JobSet API, jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2; TPU slices on GKE,
    cloud.google.com/kubernetes-engine/docs/how-to/tpus; pod failure policies,
    kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jestlab.platform.launch import exits
from jestlab.platform.launch.executor import IDENTITY, Job, JobState, JobStatus
from jestlab.platform.launch.executors import clear, mount
from jestlab.platform.launch.logs import one_line
from jestlab.platform.settings import Kubernetes
from jestlab.platform.tpu import Slice

GROUP, VERSION, PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"

MANAGED = "app.kubernetes.io/managed-by=jestlab"
"""Selects everything that is ours."""
NAME_LABEL = "app.kubernetes.io/name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"

GRACE_SECONDS = 120
"""Between SIGTERM and SIGKILL. Machines that are taken away leave less: 30 s or so of it."""

KEPT_SECONDS = 7 * 24 * 3600
"""How long a JobSet that is over, and its logs, can still be looked at."""

_HOSTS = "host"  # the replicated job's name
_COORDINATOR_PORT = 8476
_PREEMPTED_REASON = "FailJobSetFailurePolicyAction"


def manifest(job: Job, slice_: Slice, image: str, settings: Kubernetes, *, spot: bool) -> dict[str, Any]:
    """The JobSet.

    Args:
        job: What its pods run.
        slice_: What on.
        image: Container that holds jestlab.
        settings: Of the cluster; `store_secret` and `root` are set.
        spot: Whether on nodes that may be taken away.

    Raises:
        ExecutorError: It would show a password.
    """
    labels = _labels(job)
    annotations = {"jestlab/title": one_line(job.title)}
    if slice_.hosts > 1:
        # A slice of several hosts is one node pool: all pods of the job in it, and none of another job.
        annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"] = "cloud.google.com/gke-nodepool"
    queue = {} if settings.queue is None else {"kueue.x-k8s.io/queue-name": settings.queue}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "JobSet",
        "metadata": {
            "name": job.name,
            "namespace": settings.namespace,
            "labels": labels | queue,
            "annotations": annotations,
        },
        "spec": {
            # Kueue lets it begin; until then it is suspended, also where Kueue's webhook is not heard.
            **({"suspend": True} if queue else {}),
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {
                "maxRestarts": 0,
                # Its reason then says that machines were taken away, also when their pods are long gone.
                "rules": [
                    {
                        "name": "preempted",
                        "action": "FailJobSet",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    }
                ],
            },
            "replicatedJobs": [
                {
                    "name": _HOSTS,
                    "replicas": 1,
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {
                            "parallelism": slice_.hosts,
                            "completions": slice_.hosts,
                            "completionMode": "Indexed",
                            "backoffLimit": 0,
                            "podFailurePolicy": {
                                "rules": [
                                    {
                                        "action": "FailJob",
                                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                                    }
                                ]
                            },
                            "template": {
                                "metadata": {"labels": labels},
                                "spec": _pod(job, slice_, image, settings, spot),
                            },
                        },
                    },
                }
            ],
        },
    }


def _pod(job: Job, slice_: Slice, image: str, settings: Kubernetes, spot: bool) -> dict[str, Any]:
    selector = {
        "cloud.google.com/gke-tpu-accelerator": slice_.type.label,
        "cloud.google.com/gke-tpu-topology": slice_.topology,
    }
    tolerations = [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]
    if spot:
        selector["cloud.google.com/gke-spot"] = "true"
        tolerations.append(
            {
                "key": "cloud.google.com/gke-spot",
                "operator": "Equal",
                "value": "true",
                "effect": "NoSchedule",
            }
        )
    chips = {"google.com/tpu": str(slice_.chips_per_host)}
    account = {"serviceAccountName": settings.service_account} if settings.service_account else {}
    arguments, root = clear.arguments(job), settings.root or ""
    volume, mounted = _volume(settings)
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,  # runs ask Google Cloud for what they need, not the cluster
        **account,
        **volume,
        "nodeSelector": selector,
        "tolerations": tolerations,
        "containers": [
            {
                "name": "worker",
                "image": image,
                "command": ["python", "-m", "jestlab.platform.worker"],
                "args": mount.at(root, arguments) if root else arguments,
                "env": _environment(job, slice_, settings),
                "ports": [{"containerPort": _COORDINATOR_PORT}],
                "resources": {"limits": chips, "requests": chips},
                **mounted,
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
    }


def _volume(settings: Kubernetes) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the pod, and what its container, says of the volume that the lab's folder is on."""
    if settings.claim is None:
        return {}, {}
    volume = {"name": "lab", "persistentVolumeClaim": {"claimName": settings.claim}}
    # The container's user is not root; this group may write to the volume.
    pod = {"securityContext": {"fsGroup": 1000}, "volumes": [volume]}
    return pod, {"volumeMounts": [{"name": "lab", "mountPath": settings.root}]}


def _environment(job: Job, slice_: Slice, settings: Kubernetes) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = [
        {"name": name, "value": value}
        for name, value in {"PYTHONUNBUFFERED": "1", **clear.environment(job)}.items()
    ]
    secret, _, key = (settings.store_secret or "").partition("/")
    variables.append({"name": clear.STORE, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    if slice_.hosts > 1:
        # JobSet names pods JOBSET-REPLICATEDJOB-JOB-POD below a service of the JobSet's own name.
        coordinator = f"{job.name}-{_HOSTS}-0-0.{job.name}:{_COORDINATOR_PORT}"
        index = f"metadata.annotations['{INDEX_LABEL}']"
        variables += [
            {"name": "JAX_COORDINATOR_ADDRESS", "value": coordinator},
            {"name": "JAX_NUM_PROCESSES", "value": str(slice_.hosts)},
            {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        ]
    return variables


def _labels(job: Job) -> dict[str, str]:
    ours = {f"jestlab/{name}": _label(value) for key, value in job.labels.items() if (name := _label(key))}
    key, _, value = MANAGED.partition("=")
    return {key: value, NAME_LABEL: job.name} | ours


def is_of(found: Mapping[str, Any], job: Job) -> bool:
    """Whether a JobSet is the one of a job, and not of another lab or of somebody else."""
    theirs, ours = found["metadata"].get("labels") or {}, _labels(job)
    keys = (MANAGED.partition("=")[0], NAME_LABEL, *(f"jestlab/{name}" for name in IDENTITY))
    return all(theirs.get(key) == ours.get(key) for key in keys)


def _label(text: str) -> str:
    """A text as the value of a label: other signs become -, and it ends after 63."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")


def status(jobset: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobStatus:
    """How the job of a JobSet stands.

    Args:
        jobset: The object, as the API answers.
        pods: Its pods that are known: the first alone is enough, except where it has failed.
    """
    conditions = _conditions(jobset)
    first = next((pod for pod in pods if _index(pod) == "0"), None)
    if "Completed" in conditions:
        return JobStatus(JobState.SUCCEEDED, exit_code=exits.COMPLETED)
    if "Failed" in conditions:
        return _failed(conditions["Failed"], first, pods)
    if jobset["metadata"].get("deletionTimestamp"):
        return JobStatus(JobState.RUNNING, "stopping")
    if jobset.get("spec", {}).get("suspend"):
        return JobStatus(JobState.QUEUED, "waits in the queue")
    if first is not None and first.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed"):
        return JobStatus(JobState.RUNNING)
    return JobStatus(JobState.QUEUED, _why_waiting(first))


def _failed(
    condition: Mapping[str, Any], first: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]
) -> JobStatus:
    code, why = _exit(first)
    for pod in pods:
        if (disruption := _conditions(pod).get("DisruptionTarget")) is not None:
            node = pod.get("spec", {}).get("nodeName", "a node")
            return JobStatus(JobState.PREEMPTED, f"{node} was taken away: {_said(disruption)}", code)
    if condition.get("reason") == _PREEMPTED_REASON:
        return JobStatus(JobState.PREEMPTED, f"a node was taken away: {_said(condition)}", code)
    return JobStatus(JobState.FAILED, why or _said(condition), code)


def _exit(pod: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """How a pod's process ended, and that in words."""
    state = _container(pod).get("state", {}).get("terminated")
    if state is None:
        return None, ""
    code = exits.from_shell(state["exitCode"])
    reason = state.get("reason", "Error")
    return code, exits.describe(code) + ("" if reason in ("Error", "Completed") else f" ({reason})")


def _why_waiting(pod: Mapping[str, Any] | None) -> str:
    waiting = _container(pod).get("state", {}).get("waiting", {})
    if waiting.get("reason", "ContainerCreating") != "ContainerCreating":
        return _said(waiting)
    scheduled = {} if pod is None else _by_type(pod).get("PodScheduled", {})
    return _said(scheduled) if scheduled.get("status") == "False" else ""


def _container(pod: Mapping[str, Any] | None) -> Mapping[str, Any]:
    containers = ({} if pod is None else pod.get("status", {})).get("containerStatuses") or [{}]
    found: Mapping[str, Any] = containers[0]
    return found


def _index(pod: Mapping[str, Any]) -> str | None:
    found: str | None = pod["metadata"].get("labels", {}).get(INDEX_LABEL)
    return found


def _by_type(thing: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {found["type"]: found for found in thing.get("status", {}).get("conditions") or ()}


def _conditions(thing: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions that hold, by type."""
    return {name: found for name, found in _by_type(thing).items() if found.get("status") == "True"}


def _said(condition: Mapping[str, Any]) -> str:
    parts = (condition.get("reason"), condition.get("message"))
    return one_line(": ".join(part for part in parts if part))
