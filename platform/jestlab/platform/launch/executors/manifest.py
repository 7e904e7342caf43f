"""What is sent to a cluster for a job: a JobSet for Kubernetes, a CustomJob for Vertex AI.

Anyone who may look at the cluster or the project can read manifests, so none holds the store's URL or another
password. The lab's folder has a path of its own where the job runs; a lab in a bucket has one address
everywhere.

A JobSet has one Job, whose pods are the hosts of one run, such as those of a TPU slice: the first that fails
ends them all. The cluster restarts neither kind: the launcher makes another attempt, and counts
it.

References:
    The JobSet API, jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2; TPU slices on GKE,
    cloud.google.com/kubernetes-engine/docs/how-to/tpus; pod failure policies,
    kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy.
    The CustomJob API, cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs; TPUs
    in training, cloud.google.com/vertex-ai/docs/training/configure-compute: one replica, whatever the
    topology, stands for a whole slice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from jestlab.platform.lab.secret import STORE_SECRET
from jestlab.platform.lab.settings import Kubernetes, Vertex
from jestlab.platform.launch.executor import ExecutorError, Job, Marks
from jestlab.platform.launch.executors.environment import threads_environment
from jestlab.platform.launch.executors.kueue import QUEUE_LABEL
from jestlab.platform.logs import one_line
from jestlab.platform.redaction import without_secrets
from jestlab.platform.spec.resources import Nodes, Slice
from jestlab.platform.store.address import STORE

JOBSETS = ("jobset.x-k8s.io", "v1alpha2", "jobsets")
"""Group, version and plural of JobSets."""

MANAGED = "app.kubernetes.io/managed-by=jestlab"
"""Selects all of jestlab's objects in Kubernetes."""
NAME_LABEL = "app.kubernetes.io/name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"

HOSTS = "host"
"""Name of a JobSet's replicated job: its one Job is `JOBSET-host-0`."""

GRACE_SECONDS = 120
"""Between SIGTERM and SIGKILL. Machines that are taken away leave less of it: 30 s or so."""

KEPT_SECONDS = 7 * 24 * 3600
"""How long a JobSet that is over, and its logs, can still be looked at."""

VERTEX_LABEL = "jestlab-job"
"""Label of a CustomJob whose value is the job's name."""

_WORKER = ["python", "-m", "jestlab.platform.worker"]
_COORDINATOR_PORT = 8476


# ---- what both share: nothing secret, and the lab's folder as the job sees it


def arguments_at(root: str | None, job: Job) -> list[str]:
    """Return a worker's arguments with the lab's folder as its container sees it.

    Args:
        root: That folder; None to leave the arguments as they are. A lab in a bucket keeps its address.
        job: The job, with arguments for this machine.

    Raises:
        ExecutorError: An argument holds the store's URL or a password.
    """
    check_arguments(job, "manifests can be read by others")
    return [
        root if root is not None and before == "--root" and "://" not in argument else argument
        for before, argument in pairwise(["", *job.arguments])
    ]


def check_arguments(job: Job, because: str) -> None:
    """Raise ExecutorError if an argument of a job holds the store's URL or a password.

    Args:
        job: The job.
        because: Why that is wrong.
    """
    store = job.environment.get(STORE)
    for argument in job.arguments:
        if (store and store in argument) or _has_secret(argument):
            raise ExecutorError(
                f"{job.title}: an argument of its worker holds the store's URL or a password, and {because}: "
                f"the worker takes it from {STORE}"
            )


def _variables(job: Job) -> dict[str, str]:
    """Return a worker's variables but for the store's URL, which comes from a secret.

    Raises:
        ExecutorError: Another variable holds that URL, or a password.
    """
    store = job.environment.get(STORE)
    others = {name: value for name, value in job.environment.items() if name != STORE}
    for name, value in others.items():
        if (store and store in value) or _has_secret(value):
            raise ExecutorError(
                f"{job.title}: the variable {name} holds a password, and manifests can be read by others: "
                "leave it out"
            )
    return {"PYTHONUNBUFFERED": "1", **others}


def clean_line(error: object) -> str:
    """Return an error as one line without the credentials in its URLs and options."""
    return one_line(without_secrets(str(error)))


def _has_secret(text: str) -> bool:
    return without_secrets(text) != text


# ---- Kubernetes


class Limits(NamedTuple):
    """What each host of a job may use.

    Attributes:
        threads: CPUs that it asks for where there is no TPU; machines with TPUs are one job's alone.
        memory_gb: Memory that it asks for and may use, in GB; None for what is there.
        seconds: How long a job may hold its machines; None for no limit.
    """

    threads: int = 1
    memory_gb: float | None = None
    seconds: int | None = None


def jobset(
    job: Job,
    machines: Slice | Nodes,
    image: str,
    settings: Kubernetes,
    *,
    limits: Limits = Limits(),  # noqa: B008 - cannot be changed
    spot: bool,
) -> dict[str, Any]:
    """Create the JobSet of a job; `spot` allows nodes that may be taken away.

    `store_secret` and `root` are set in the settings. Where the job's time is limited its hosts are asked to
    stop before, and may save.

    Raises:
        ExecutorError: It would show a password.
    """
    labels = jobset_labels(job)
    annotations = {"jestlab/title": one_line(job.title)}
    if isinstance(machines, Slice) and machines.hosts > 1:
        # A slice of several hosts is one node pool: all pods of the job in it, and none of another job.
        annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"] = "cloud.google.com/gke-nodepool"
    queue = {} if settings.queue is None else {QUEUE_LABEL: settings.queue}
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    hosts: dict[str, Any] = {
        "parallelism": machines.hosts,
        "completions": machines.hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [disrupted]},
        "template": {
            "metadata": {"labels": labels},
            "spec": _pod(job, machines, image, settings, limits, spot),
        },
    }
    reasons = ["PodFailurePolicy"]
    if limits.seconds is not None:
        hosts["activeDeadlineSeconds"] = max(limits.seconds - GRACE_SECONDS, limits.seconds // 2)
        reasons.append("DeadlineExceeded")
    # The JobSet's reason then says that machines were taken away, also when their pods are long gone.
    preempted = {"name": "preempted", "action": "FailJobSet", "onJobFailureReasons": reasons}
    return {
        "apiVersion": "/".join(JOBSETS[:2]),
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
            "failurePolicy": {"maxRestarts": 0, "rules": [preempted]},
            "replicatedJobs": [
                {
                    "name": HOSTS,
                    "replicas": 1,
                    "template": {"metadata": {"labels": labels}, "spec": hosts},
                }
            ],
        },
    }


def _pod(
    job: Job, machines: Slice | Nodes, image: str, settings: Kubernetes, limits: Limits, spot: bool
) -> dict[str, Any]:
    selector: dict[str, str] = {}
    apart: dict[str, Any] = {}
    requests: dict[str, str] = {}
    chip = "google.com/tpu" if isinstance(machines, Slice) else "nvidia.com/gpu"
    if isinstance(machines, Slice):
        selector = {
            "cloud.google.com/gke-tpu-accelerator": machines.type.label,
            "cloud.google.com/gke-tpu-topology": machines.topology,
        }
    else:
        requests["cpu"] = str(limits.threads)
        if machines.hosts > 1:
            others = {"labelSelector": {"matchLabels": {NAME_LABEL: job.name}}}
            nowhere = [{**others, "topologyKey": "kubernetes.io/hostname"}]
            apart = {
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nowhere}}
            }
    chips = {chip: str(machines.chips_per_host)} if machines.chips_per_host else {}
    memory = {} if limits.memory_gb is None else {"memory": f"{round(limits.memory_gb * 1000)}M"}
    tolerations = [{"key": chip, "operator": "Exists", "effect": "NoSchedule"}] if chips else []
    if spot:
        key = "cloud.google.com/gke-spot"
        selector[key] = "true"
        tolerations.append({"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    account = {"serviceAccountName": settings.service_account} if settings.service_account else {}
    volume: dict[str, Any] = {}
    mounted: dict[str, Any] = {}
    if settings.claim is not None:
        claimed = {"name": "lab", "persistentVolumeClaim": {"claimName": settings.claim}}
        # The container's user is not root; this group may write to the volume.
        volume = {"securityContext": {"fsGroup": 1000}, "volumes": [claimed]}
        mounted = {"volumeMounts": [{"name": "lab", "mountPath": settings.root}]}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,  # runs call Google Cloud, not the cluster
        **account,
        **volume,
        **apart,
        "nodeSelector": selector,
        "tolerations": tolerations,
        "containers": [
            {
                "name": "worker",
                "image": image,
                "command": _WORKER,
                "args": arguments_at(settings.root, job),
                "env": _pod_environment(job, machines, settings, limits.threads),
                "ports": [{"containerPort": _COORDINATOR_PORT}],
                "resources": {"limits": chips | memory, "requests": requests | chips | memory},
                **mounted,
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
    }


def _pod_environment(
    job: Job, machines: Slice | Nodes, settings: Kubernetes, threads: int
) -> list[dict[str, Any]]:
    # Without chips the processor computes: with the CPUs that the pod asks for, and not with all of its node.
    computing = {} if machines.chips else threads_environment(threads)
    variables: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in {**computing, **_variables(job)}.items()
    ]
    secret, _, key = (settings.store_secret or "").partition("/")
    variables.append({"name": STORE, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    if machines.hosts > 1:
        # JobSet names pods JOBSET-REPLICATEDJOB-JOB-POD below a service of the JobSet's own name.
        coordinator = f"{job.name}-{HOSTS}-0-0.{job.name}:{_COORDINATOR_PORT}"
        index = f"metadata.annotations['{INDEX_LABEL}']"
        variables += [
            {"name": "JAX_COORDINATOR_ADDRESS", "value": coordinator},
            {"name": "JAX_NUM_PROCESSES", "value": str(machines.hosts)},
            {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        ]
    return variables


def jobset_labels(job: Job) -> dict[str, str]:
    """Return the labels of a job's JobSet and pods."""
    ours = {
        f"jestlab/{name}": _kubernetes_label(value)
        for key, value in job.labels.items()
        if (name := _kubernetes_label(key))
    }
    return ours | jobset_marks(job.name, job.marks)


def jobset_marks(name: str, marks: Marks) -> dict[str, str]:
    """Return those labels of a job's JobSet and pods that no other job's have."""
    key, _, value = MANAGED.partition("=")
    return {key: value, NAME_LABEL: name} | {f"jestlab/{key}": value for key, value in marks.labels.items()}


def bears(found: Mapping[str, Any], marks: Mapping[str, str]) -> bool:
    """Whether a JobSet or pod bears these labels."""
    theirs = found["metadata"].get("labels") or {}
    return all(theirs.get(key) == value for key, value in marks.items())


def _kubernetes_label(text: str) -> str:
    """Return a string as the value of a label: other characters become -, and it ends after 63."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")


# ---- Vertex AI


def custom_job(job: Job, slice_: Slice, image: str, settings: Vertex, *, spot: bool) -> dict[str, Any]:
    """Create the CustomJob of a job, as the REST API takes it; `spot` allows machines that may be taken away.

    `store_secret` and `root` are set in the settings.

    Raises:
        ExecutorError: It would show a password.
    """
    variables = {**_variables(job), STORE_SECRET: settings.store_secret}
    if slice_.hosts > 1:
        variables["JESTLAB_PROCESSES"] = str(slice_.hosts)
    spec: dict[str, Any] = {
        "workerPoolSpecs": [
            {
                "machineSpec": {"machineType": slice_.machine_type, "tpuTopology": slice_.topology},
                "replicaCount": "1",
                "containerSpec": {
                    "imageUri": image,
                    "command": _WORKER,
                    "args": arguments_at(settings.root, job),
                    "env": [{"name": name, "value": value} for name, value in variables.items()],
                },
            }
        ],
        # The launcher makes another attempt, which it counts; Vertex AI would make up to three more unseen.
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
    return {"displayName": job.name, "labels": custom_job_labels(job), "jobSpec": spec}


def custom_job_labels(job: Job) -> dict[str, str]:
    """Return a job's labels as Google Cloud takes them: lower-case letters, digits, - and _."""
    ours = {
        _google_label(key).lstrip("-_0123456789"): _google_label(value) for key, value in job.labels.items()
    }
    marks = job.marks.labels | {VERTEX_LABEL: job.name}
    return {key: value for key, value in ours.items() if key} | marks


def _google_label(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]
