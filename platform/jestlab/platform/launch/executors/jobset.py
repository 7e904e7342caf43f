"""The JobSet of a job on Kubernetes: the manifest, and the status from the JobSet, its pods, and Kueue.

A JobSet has one Job with a pod for each host of the run, such as the hosts of a TPU slice. If a pod fails,
the JobSet fails and all of its pods end. The cluster restarts none: the launcher starts another attempt.

References:
    The JobSet API, jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2; TPU slices on GKE,
    cloud.google.com/kubernetes-engine/docs/how-to/tpus; pod failure policies,
    kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy; Workloads and their conditions,
    kueue.sigs.k8s.io/docs/concepts/workload.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jestlab.platform.lab.settings import Kubernetes as KubernetesSettings
from jestlab.platform.launch.executors.base import Job, JobKey, JobState, JobStatus
from jestlab.platform.launch.executors.environment import threads_environment
from jestlab.platform.launch.executors.remote import WORKER, arguments_at, explained, public_variables
from jestlab.platform.logs import one_line
from jestlab.platform.processes import EXIT_COMPLETED, describe_exit, exit_from_shell
from jestlab.platform.spec.resources import Resources, Slice
from jestlab.platform.store.address import STORE

JOBSETS = ("jobset.x-k8s.io", "v1alpha2", "jobsets")
"""Group, version, and plural of JobSets."""
WORKLOADS = ("kueue.x-k8s.io", "v1beta2", "workloads")
"""Group, version, and plural of Workloads, since Kueue 0.15."""

MANAGED = "app.kubernetes.io/managed-by=jestlab"
"""Label selector of all of jestlab's objects."""
NAME_LABEL = "app.kubernetes.io/name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
WORKLOAD_LABEL = "kueue.x-k8s.io/job-uid"
"""Label of a Workload with the uid of its JobSet."""

_HOSTS = "host"
JOB_SUFFIX = f"-{_HOSTS}-0"
"""Suffix after a JobSet's name in its Job's name: the name of the replicated job, and the Job's index."""

GRACE_SECONDS = 120
"""Time between SIGTERM and SIGKILL. Preemption of a machine leaves less time, about 30 s."""

KEPT_SECONDS = 7 * 24 * 3600
"""How long the cluster keeps a JobSet that has ended, with its logs."""

_COORDINATOR_PORT = 8476
_PREEMPTED_REASON = "FailJobSetFailurePolicyAction"

Object = Mapping[str, Any]
"""An object of the Kubernetes API."""


# ---- the manifest


def jobset(job: Job, resources: Resources, settings: KubernetesSettings) -> dict[str, Any]:
    """Return the JobSet of a job. Resources that limit its time end it early, so that it can save.

    `resources` must have an image; `settings` must have a `store_secret` and, unless the lab is in a bucket,
    a `root`.

    Raises:
        ExecutorError: The manifest would contain a password.
    """
    machines, seconds, queue = resources.machines, resources.time_seconds, settings.queue
    ours = {f"jestlab/{name}": _label(value) for key, value in job.labels.items() if (name := _label(key))}
    labels = ours | key_labels(job.name, job.key)
    annotations = {"jestlab/title": one_line(job.title)}
    if isinstance(machines, Slice) and machines.hosts > 1:
        # A slice of several hosts is a node pool. Run all pods of the job in one pool, without other jobs.
        annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"] = "cloud.google.com/gke-nodepool"
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    hosts = _present(
        parallelism=machines.hosts,
        completions=machines.hosts,
        completionMode="Indexed",
        backoffLimit=0,
        podFailurePolicy={"rules": [disrupted]},
        template={"metadata": {"labels": labels}, "spec": _pod(job, resources, settings)},
        activeDeadlineSeconds=seconds and max(seconds - GRACE_SECONDS, seconds // 2),
    )
    # So the JobSet's reason distinguishes preemption from failure even after its pods are deleted.
    reasons = ["PodFailurePolicy"] if seconds is None else ["PodFailurePolicy", "DeadlineExceeded"]
    preempted = {"name": "preempted", "action": "FailJobSet", "onJobFailureReasons": reasons}
    job_template = {"metadata": {"labels": labels}, "spec": hosts}
    return {
        "apiVersion": "/".join(JOBSETS[:2]),
        "kind": "JobSet",
        "metadata": {
            "name": job.name,
            "namespace": settings.namespace,
            "labels": labels | ({QUEUE_LABEL: queue} if queue else {}),
            "annotations": annotations,
        },
        "spec": _present(
            suspend=True if queue else None,  # until Kueue admits it; its webhook may not suspend it
            ttlSecondsAfterFinished=KEPT_SECONDS,
            network={"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            failurePolicy={"maxRestarts": 0, "rules": [preempted]},
            replicatedJobs=[{"name": _HOSTS, "replicas": 1, "template": job_template}],
        ),
    }


def _pod(job: Job, resources: Resources, settings: KubernetesSettings) -> dict[str, Any]:
    machines, claim = resources.machines, settings.claim
    selector: dict[str, str] = {}
    requests: dict[str, str] = {}
    affinity: dict[str, Any] | None = None
    chip = "google.com/tpu" if isinstance(machines, Slice) else "nvidia.com/gpu"
    if isinstance(machines, Slice):
        selector["cloud.google.com/gke-tpu-accelerator"] = machines.type.label
        selector["cloud.google.com/gke-tpu-topology"] = machines.topology
    else:
        requests["cpu"] = str(resources.threads)
        if machines.hosts > 1:
            others = {"labelSelector": {"matchLabels": {NAME_LABEL: job.name}}}
            apart = [{**others, "topologyKey": "kubernetes.io/hostname"}]
            affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    limited = {chip: str(machines.chips_per_host)} if machines.chips_per_host else {}
    tolerations = [{"key": chip, "operator": "Exists", "effect": "NoSchedule"}] if limited else []
    if resources.memory_gb is not None:
        limited["memory"] = f"{round(resources.memory_gb * 1000)}M"
    if resources.spot:
        key = "cloud.google.com/gke-spot"
        selector[key] = "true"
        tolerations.append({"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    container = _present(
        name="worker",
        image=resources.image,
        command=WORKER,
        args=arguments_at(settings.root, job),
        env=_variables(job, resources, settings),
        ports=[{"containerPort": _COORDINATOR_PORT}],
        resources={"limits": limited, "requests": requests | limited},
        volumeMounts=[{"name": "lab", "mountPath": settings.root}] if claim else None,
        terminationMessagePolicy="FallbackToLogsOnError",
    )
    return _present(
        restartPolicy="Never",
        terminationGracePeriodSeconds=GRACE_SECONDS,
        automountServiceAccountToken=False,  # runs don't call the cluster's API
        nodeSelector=selector,
        tolerations=tolerations,
        affinity=affinity,
        serviceAccountName=settings.service_account or None,
        # The container's user isn't root, but its group can write to the volume.
        securityContext={"fsGroup": 1000} if claim else None,
        volumes=[{"name": "lab", "persistentVolumeClaim": {"claimName": claim}}] if claim else None,
        containers=[container],
    )


def _present(**parts: Any) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part is not None}


def _variables(job: Job, resources: Resources, settings: KubernetesSettings) -> list[dict[str, Any]]:
    machines = resources.machines
    # Without chips, the run computes on CPUs: use only those that the pod requests, not all of its node.
    values = {} if machines.chips else threads_environment(resources.threads_per_task)
    values |= public_variables(job)
    secret, _, key = (settings.store_secret or "").partition("/")
    references: dict[str, Any] = {STORE: {"secretKeyRef": {"name": secret, "key": key}}}
    if machines.hosts > 1:
        # The DNS name of a pod is JOBSET-REPLICATEDJOB-JOB-POD.JOBSET, since the service is named JOBSET.
        values["JAX_COORDINATOR_ADDRESS"] = f"{job.name}{JOB_SUFFIX}-0.{job.name}:{_COORDINATOR_PORT}"
        values["JAX_NUM_PROCESSES"] = str(machines.hosts)
        index = f"metadata.annotations['{INDEX_LABEL}']"
        references["JAX_PROCESS_ID"] = {"fieldRef": {"fieldPath": index}}
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": source} for name, source in references.items()),
    ]


def beyond_quota(body: Object, quotas: Sequence[Object]) -> str | None:
    """Return why a JobSet can never run within a namespace's quotas, even if they are unused; None if it can.

    Quotas with scopes are ignored: they apply to some pods only.
    """
    from kubernetes.utils import parse_quantity

    hosts = body["spec"]["replicatedJobs"][0]["template"]["spec"]
    [container] = hosts["template"]["spec"]["containers"]
    pods = hosts["parallelism"]
    needed = {"pods": pods, f"count/{JOBSETS[2]}.{JOBSETS[0]}": 1}
    for kind, prefixes in {"limits": ["limits."], "requests": ["requests.", ""]}.items():
        for name, amount in container["resources"][kind].items():
            needed |= {f"{prefix}{name}": pods * parse_quantity(amount) for prefix in prefixes}
    for quota in quotas:
        is_general = not quota["spec"].keys() & {"scopes", "scopeSelector"}
        for name, most in quota["spec"].get("hard", {}).items() if is_general else ():
            if needed.get(name, 0) > parse_quantity(most):
                return (
                    f"a run needs {name}={float(needed[name]):g}, and the namespace's quota "
                    f"{quota['metadata']['name']} allows {most}: lower `resources`, or ask for a higher quota"
                )
    return None


def key_labels(name: str, key: JobKey) -> dict[str, str]:
    """Return the labels that identify a job's JobSet and pods."""
    managed, _, value = MANAGED.partition("=")
    return {managed: value, NAME_LABEL: name} | {f"jestlab/{part}": text for part, text in key.labels.items()}


def has_labels(item: Object, labels: Mapping[str, str]) -> bool:
    """Return whether an object has all of these labels."""
    return labels.items() <= _labels(item).items()


def _label(text: str) -> str:
    """Convert a text to the value of a label: at most 63 characters, with `-` for invalid ones."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")


# ---- the status


def status(jobset: Object, pods: Sequence[Object]) -> JobStatus:
    """Return the status of a JobSet's job. Unless it has failed, the pod of its first host is enough."""
    conditions = _conditions(jobset)
    first = next((pod for pod in pods if _labels(pod).get(INDEX_LABEL) == "0"), None)
    phase = None if first is None else first.get("status", {}).get("phase")
    if "Completed" in conditions:
        return JobStatus(JobState.SUCCEEDED, exit_code=EXIT_COMPLETED)
    if "Failed" in conditions:
        return _failed(conditions["Failed"], first, pods)
    if jobset["metadata"].get("deletionTimestamp"):
        return JobStatus(JobState.RUNNING, "stopping")
    if jobset.get("spec", {}).get("suspend"):
        if phase == "Running":  # the pod may still be saving
            return JobStatus(JobState.RUNNING, "stopping: requeued by Kueue")
        # JobSets are created suspended, with generation 1. A later one was resumed and suspended again.
        requeued = jobset["metadata"].get("generation", 1) > 1
        reason = "" if is_in_queue(jobset) else "suspended"
        return JobStatus(JobState.QUEUED, reason, requeued=requeued)
    if first is None:
        return JobStatus(JobState.QUEUED)
    if phase in ("Running", "Succeeded", "Failed") or first["metadata"].get("deletionTimestamp"):
        # A pod that is deleted before it runs stays if its node is dead. The job must not count as queued:
        # the launcher would wait for it forever, but ends an attempt of a running job without heartbeats.
        return JobStatus(JobState.RUNNING)
    return JobStatus(JobState.QUEUED, explained(_waiting_reason(first)))


def status_without_jobset(name: str, key: JobKey, namespace: str, pods: Sequence[Object]) -> JobStatus:
    """Return the status of a job whose JobSet doesn't exist; `pods` of the JobSet may still be stopping."""
    for pod in pods:
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if has_labels(pod, key_labels(name, key)) and not over:
            return JobStatus(JobState.RUNNING, "stopping")
    return JobStatus(JobState.GONE, f"JobSet {name} not found in namespace {namespace}")


def is_in_queue(jobset: Object) -> bool:
    """Return whether a JobSet is suspended until Kueue admits it."""
    return bool(jobset["spec"].get("suspend")) and QUEUE_LABEL in _labels(jobset)


def queue_reason(jobset: Object, workloads: Sequence[Object]) -> str:
    """Return why a JobSet waits in a queue of Kueue; `workloads` are its Workloads, which may be unknown."""
    reason = ""
    for workload in workloads:
        quota = _by_type(workload).get("QuotaReserved", {})
        if quota.get("status") == "False":
            reason = quota.get("message", "")
        if workload.get("spec", {}).get("active") is False:
            reason = "the Workload is not active"
    reason = explained(re.sub(r"^couldn't assign flavors to pod set \S+: ", "", one_line(reason)))
    return f"waiting in queue {_labels(jobset)[QUEUE_LABEL]}" + (f": {reason}" if reason else "")


def _failed(condition: Object, first: Object | None, pods: Sequence[Object]) -> JobStatus:
    code, exit_text = None, ""
    if first is not None and (ended := _container(first, "terminated")):
        code = exit_from_shell(ended["exitCode"])
        reason = ended.get("reason", "Error")
        exit_text = describe_exit(code) + (
            "" if reason in ("Error", "Completed") else f": {explained(reason)}"
        )
    for pod in pods:
        if (disruption := _conditions(pod).get("DisruptionTarget")) is not None:
            node = pod.get("spec", {}).get("nodeName", "?")
            text = f"node {node} was taken away: {explained(condition_text(disruption))}"
            return JobStatus(JobState.PREEMPTED, text, code)
    text = condition_text(condition)
    if condition.get("reason") == _PREEMPTED_REASON:
        # The JobSet's condition doesn't distinguish a lost node from the time limit; its Job may be deleted.
        text = f"a node was taken away, or the time limit reached: {text}"
        return JobStatus(JobState.PREEMPTED, text, code)
    return JobStatus(JobState.FAILED, exit_text or explained(text), code)


def _waiting_reason(pod: Object) -> str:
    waiting = _container(pod, "waiting")
    if waiting.get("reason", "ContainerCreating") != "ContainerCreating":
        return condition_text(waiting)
    scheduled = _by_type(pod).get("PodScheduled", {})
    return condition_text(scheduled) if scheduled.get("status") == "False" else ""


def _container(pod: Object, state: str) -> Object:
    """Return details of a pod's container in a state; empty if the container is in another state."""
    [container, *_] = pod.get("status", {}).get("containerStatuses") or [{}]
    details: Object = container.get("state", {}).get(state) or {}
    return details


def _labels(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _by_type(item: Object) -> dict[str, Object]:
    return {condition["type"]: condition for condition in item.get("status", {}).get("conditions") or ()}


def _conditions(item: Object) -> dict[str, Object]:
    """Return the conditions of an object that are true, by type."""
    return {name: each for name, each in _by_type(item).items() if each.get("status") == "True"}


def condition_text(condition: Object) -> str:
    """Return the reason and the message of a condition or event on one line."""
    parts = (condition.get("reason"), condition.get("message"))
    return one_line(": ".join(part for part in parts if part))
