"""Jobs as JobSets on a Kubernetes cluster, and what a JobSet's status says of its job.

A handle is `CONTEXT/NAMESPACE/NAME`. The context is the kubeconfig's: a launcher that is configured for
another cluster still finds the job.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jestlab.platform.errors import UserError
from jestlab.platform.lab.settings import Kubernetes as KubernetesSettings
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.concurrency import AT_A_TIME
from jestlab.platform.launch.executor import (
    ExecutorAway,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.executors import kueue, manifest
from jestlab.platform.launch.executors.cloud import Cloud, Place, Result, http_error, three_attempts
from jestlab.platform.launch.executors.kubernetes_waits import with_remedy
from jestlab.platform.launch.executors.manifest import (
    INDEX_LABEL,
    MANAGED,
    NAME_LABEL,
    bears,
    clean_line,
    jobset_marks,
)
from jestlab.platform.logs import one_line
from jestlab.platform.processes import EXIT_COMPLETED, describe_exit, exit_from_shell
from jestlab.platform.spec.resources import Nodes, Resources, Slice

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"

_IN_CLUSTER = "in-cluster"
_CONNECT_SECONDS = 5.0
_PAGE = 500
_NAMES_IN_A_SELECTOR = 50  # more would make a URL too long; then all of ours are listed
_REMEDIES = {
    401: "log in to the cluster again",
    403: "ask for these rights: create, get, list, delete of jobsets; list, deletecollection of pods; "
    "get of pods/log",
    404: "is JobSet installed in the cluster, and is the namespace there?",
}
_CUSTOM = {"jobsets": manifest.JOBSETS, "workloads": kueue.WORKLOADS}
_QUOTA = "exceeded quota"  # as the API server says it, with the status 403
_SILENT_REASON = "DeletionByTaintManager"  # of pods on nodes that cannot be reached, or are not ready
_PREEMPTED_REASON = "FailJobSetFailurePolicyAction"


class Kubernetes(Cloud[KubernetesSettings]):
    """Launches jobs as JobSets and finds them again. The cluster, or Kueue, lets jobs wait.

    Attributes:
        grace_seconds: The pods' own grace period, and a minute for them to be gone.
        limits: What each host of a job may use.
    """

    name = "kubernetes"
    per_second = 50.0
    limits = manifest.Limits()
    grace_seconds = manifest.GRACE_SECONDS + 60.0

    @classmethod
    def of(cls, resources: Resources, settings: Settings, *, mounted: bool = True) -> Kubernetes:
        """Create an executor that can launch jobs; `mounted` unless the lab is in a bucket.

        Raises:
            UserError: The image or the secret with the store's URL is not named anywhere.
        """
        image = cls._image_of(resources, settings)
        if settings.kubernetes.store_secret is None:
            raise UserError(
                "kubernetes needs `kubernetes.store_secret` in the config file: jestlab-store/url, after "
                "`kubectl create secret generic jestlab-store --from-literal url=STORE`"
            )
        if mounted and settings.kubernetes.root is None:
            raise UserError(
                "kubernetes needs `kubernetes.root` in the config file: the lab's folder as pods see it, and "
                "`claim`, the PersistentVolumeClaim that it is on; or a lab in a bucket, --root gs://BUCKET/FOLDER"
            )
        made = cls(settings.kubernetes, resources.machines, image, spot=resources.spot)
        made.limits = manifest.Limits(resources.threads, resources.memory_gb, resources.time_seconds)
        return made

    def _manifest(self, job: Job, machines: Slice | Nodes, image: str) -> dict[str, Any]:
        return manifest.jobset(job, machines, image, self._settings, limits=self.limits, spot=self._spot)

    def launch(self, job: Job) -> LaunchedJob:
        """Create the JobSet, or find the one of that name."""
        body = self.render(job)
        context = self._call(f"{job.title} was not launched", self._context)
        namespace = self._settings.namespace

        def create() -> None:
            if self._jobsets(context, "create", namespace, body=body) is None:
                self._check_own(context, namespace, job)

        # A second attempt finds what the first created, if only its answer was lost.
        self._call(f"{job.title} was not launched", create)
        return LaunchedJob(f"{context}/{namespace}/{job.name}", job.marks)

    def _check_own(self, context: str, namespace: str, job: Job) -> None:
        """Make sure that the JobSet of that name is this job's."""
        found = self._jobsets(context, "get", namespace, name=job.name)
        if found is not None and not bears(found, jobset_marks(job.name, job.marks)):
            raise ExecutorError(
                f"{job.title}: the JobSet {job.name} in {namespace} is of another store, or not jestlab's: "
                "delete it, or set another `kubernetes.namespace`"
            )
        if found is None or found["metadata"].get("deletionTimestamp"):
            raise ExecutorAway(
                f"{job.title}: an older JobSet {job.name} in {namespace} is still being deleted"
            )

    def _place(self, handle: str) -> Place:
        context, namespace, _ = _split(handle)
        return context, namespace

    def _statuses(self, place: Place, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Two calls; one more for each that has just failed, for all without pods, and for all in queues."""
        context, namespace = place
        names = {_split(job.handle)[2]: job for job in jobs}
        selector = MANAGED
        if len(names) <= _NAMES_IN_A_SELECTOR:
            selector += f",{NAME_LABEL} in ({','.join(sorted(names))})"

        def listed(kind: str, selector: str) -> list[Mapping[str, Any]]:
            say = "the cluster does not answer"
            return self._call(say, self._pages, kind, context, namespace, selector)

        sets = {found["metadata"]["name"]: found for found in listed("jobsets", selector)}
        firsts: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for pod in listed("pods", f"{selector},{INDEX_LABEL}=0"):
            firsts[pod["metadata"]["labels"].get(NAME_LABEL, "")].append(pod)
        known: dict[LaunchedJob, JobStatus] = {}
        for name, job in names.items():
            if name not in sets:
                known[job] = _without_jobset(job, name, namespace, firsts[name])
                continue
            if not bears(sets[name], jobset_marks(name, job.marks)):
                known[job] = JobStatus(
                    JobState.GONE, f"the JobSet {name} in {namespace} is another attempt's"
                )
                continue
            known[job] = status(sets[name], firsts[name])
            if known[job].state == JobState.FAILED:
                # Any host may have been taken away, not only the first.
                known[job] = status(sets[name], listed("pods", f"{JOBSET_LABEL}={name}"))
        podless = {
            name: job
            for name, job in names.items()
            if known[job] == JobStatus(JobState.QUEUED) and not firsts[name]
        }
        if podless:
            refused = self._refused_pods(context, namespace)
            known |= {
                job: JobStatus(JobState.QUEUED, refused[f"{name}-{manifest.HOSTS}-0"])
                for name, job in podless.items()
                if f"{name}-{manifest.HOSTS}-0" in refused
            }
        in_queue = {
            name: sets[name]
            for name, job in names.items()
            if known[job].state == JobState.QUEUED and kueue.is_in_queue(sets[name])
        }
        if in_queue:
            workloads = self._workloads(context, namespace, [_uid(found) for found in in_queue.values()])
            for name, found in in_queue.items():
                job = names[name]
                known[job] = kueue.queued(found, known[job], workloads[_uid(found)])
        return {job: with_remedy(found) for job, found in known.items()}

    def _workloads(
        self, context: str, namespace: str, uids: Sequence[str]
    ) -> Mapping[str, list[Mapping[str, Any]]]:
        """Return Kueue's Workloads of JobSets, by the JobSets' uids; nothing if we may not ask."""
        found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        few = len(uids) <= _NAMES_IN_A_SELECTOR
        selector = f"{kueue.JOB_LABEL} in ({','.join(sorted(uids))})" if few else kueue.JOB_LABEL
        try:
            workloads = self._pages("workloads", context, namespace, selector)
        except Exception as error:
            if self._meaning(error) is None:
                raise
            return found
        for workload in workloads:
            found[workload["metadata"]["labels"][kueue.JOB_LABEL]].append(workload)
        return found

    def _refused_pods(self, context: str, namespace: str) -> Mapping[str, str]:
        """Return why the cluster refuses the pods of Jobs, by the Jobs' names; nothing if we may not ask."""
        try:
            events = self._pages("events", context, namespace, fields="reason=FailedCreate")
        except Exception as error:
            if self._meaning(error) is None:
                raise
            return {}
        events.sort(key=lambda event: str(event.get("lastTimestamp") or ""))
        return {event["involvedObject"]["name"]: _said(event) for event in events}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Delete the JobSet and its pods, after their grace period or at once. Their logs go with them."""
        context, namespace, name = _split(job.handle)
        call = functools.partial(self._call, f"{name} may still be running")
        found = call(self._jobsets, context, "get", namespace, name=name)
        if found is not None and not bears(found, jobset_marks(name, job.marks)):
            return  # the job has gone, and another one has its name
        if found is not None and status(found, ()).state.is_over:
            return  # and what it printed can still be read
        if found is not None:
            # Only the one that was looked at: meanwhile another may have come in its place. All options are
            # in the body: where there is one, the API server ignores those in the query.
            options = {
                "propagationPolicy": "Background" if now else "Foreground",
                "preconditions": {"uid": found["metadata"]["uid"]},
            }
            call(self._jobsets, context, "delete", namespace, name=name, body=options)
        if now:
            pods = {"label_selector": self._selector(name, job), "grace_period_seconds": 0}
            call(lambda: self._pods(context, "delete_collection_namespaced_pod", namespace, **pods).data)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return what the first host has printed."""
        context, namespace, name = _split(job.handle)
        say = f"the log of {name} cannot be read"
        selector = f"{self._selector(name, job)},{INDEX_LABEL}=0"
        pods = self._call(say, self._pages, "pods", context, namespace, selector)
        if not pods:
            raise ExecutorError(f"{name} has no pods in {namespace}, or no longer: its log is gone with them")
        pod = max(pods, key=lambda found: str(found["metadata"].get("creationTimestamp", "")))
        read, name = "read_namespaced_pod_log", pod["metadata"]["name"]
        return self._pieces(say, self._call(say, self._pods, context, read, name, namespace))

    @staticmethod
    def _selector(name: str, job: LaunchedJob) -> str:
        """Select the pods of one attempt's JobSet."""
        marks = {JOBSET_LABEL: name, **jobset_marks(name, job.marks)}
        return ",".join(f"{key}={value}" for key, value in marks.items())

    def _pieces(self, say: str, answer: Any) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError

        try:
            yield from answer.stream(1 << 16)
        except HTTPError as error:
            raise ExecutorAway(f"{say} to its end: {clean_line(error)}") from None
        finally:
            answer.release_conn()

    def _jobsets(self, context: str, verb: str, namespace: str, **options: Any) -> Any:
        return self._custom(manifest.JOBSETS, context, verb, namespace, **options)

    def _custom(
        self, kind: tuple[str, str, str], context: str, verb: str, namespace: str, **options: Any
    ) -> Any:
        """Send one request about JobSets or Workloads: create, list, get or delete.

        Returns:
            The answer; None if an object to create exists, or one to get or delete does not.
        """
        from kubernetes.client import ApiException, CustomObjectsApi

        group, version, plural = kind
        request = getattr(CustomObjectsApi(self._client(context)), f"{verb}_namespaced_custom_object")
        try:
            return request(
                group=group,
                version=version,
                namespace=namespace,
                plural=plural,
                _request_timeout=self._timeout,
                **options,
            )
        except ApiException as error:
            # A delete with a precondition that no longer holds is a conflict: that JobSet has gone.
            expected = {"create": (409,), "get": (404,), "delete": (404, 409)}
            if error.status not in expected.get(verb, ()):
                raise
            return None

    def _pages(
        self, kind: str, context: str, namespace: str, selector: str = "", fields: str = ""
    ) -> list[Mapping[str, Any]]:
        """Return all `jobsets`, `workloads`, `pods` or `events` that selectors select, however many pages."""
        found: list[Mapping[str, Any]] = []
        more: dict[str, str] = {}
        while True:
            options = {"label_selector": selector, "field_selector": fields, "limit": _PAGE, **more}
            options = {name: value for name, value in options.items() if value}
            if kind in _CUSTOM:
                page = self._custom(_CUSTOM[kind], context, "list", namespace, **options)
            else:
                request = f"list_namespaced_{kind.removesuffix('s')}"
                page = json.loads(self._pods(context, request, namespace, **options).data)
            found += page.get("items") or ()
            if not (token := page.get("metadata", {}).get("continue")):
                return found
            more = {"_continue": token}

    def _pods(self, context: str, request: str, *values: str, **options: Any) -> Any:
        """Send one request about pods or events; return the answer as bytes to be read.

        The client's models are slow and refuse what a newer server may say.
        """
        from kubernetes.client import CoreV1Api

        options |= {"_preload_content": False, "_request_timeout": self._timeout}
        return getattr(CoreV1Api(self._client(context)), request)(*values, **options)

    def _context(self) -> str:
        """Return where jobs are launched: the configured context, the current one, or this pod's cluster."""
        if self._settings.context is not None:
            return self._settings.context
        from kubernetes import config

        try:
            name: str = config.list_kube_config_contexts()[1]["name"]
        except config.ConfigException:
            return _IN_CLUSTER
        return name

    def _client(self, context: str) -> Any:
        """Return the client of a context; created once, shared by all threads."""
        from kubernetes import client, config

        with self._lock:
            if context not in self._clients:
                configuration = client.Configuration()
                if context == _IN_CLUSTER:
                    config.load_incluster_config(client_configuration=configuration)
                else:
                    config.load_kube_config(context=context, client_configuration=configuration)
                configuration.retries = False  # `_call` decides what is tried again
                configuration.connection_pool_maxsize = AT_A_TIME
                self._clients[context] = client.ApiClient(configuration)
            return self._clients[context]

    def _call(self, say: str, function: Callable[..., Result], *values: Any, **options: Any) -> Result:
        """Call the API, as any cloud's. What is forbidden is asked for again.

        An API server that has just started forbids everything until it has read the rights.
        """
        found: Result = super()._call(say, three_attempts(_is_forbidden), function, *values, **options)
        return found

    @property
    def _timeout(self) -> tuple[float, float]:
        return _CONNECT_SECONDS, self._answer_seconds

    def _too_many(self, error: BaseException) -> Mapping[str, str] | None:
        from kubernetes.client import ApiException

        return (error.headers or {}) if isinstance(error, ApiException) and error.status == 429 else None

    def _meaning(self, error: BaseException) -> ExecutorError | None:
        from kubernetes.client import ApiException
        from kubernetes.config import ConfigException
        from urllib3.exceptions import HTTPError
        from yaml import YAMLError

        if isinstance(error, ApiException):
            if error.status == 401:  # logins expire after an hour or so
                self._forget_login()
            # Other jobs may end; and if the pages of a list have changed, it is requested again.
            if (error.status == 403 and _QUOTA in str(error.body)) or error.status == 410:
                return ExecutorAway(_describe(error))
            return http_error(error.status or None, _describe(error))
        if isinstance(error, ConfigException | YAMLError):
            return ExecutorError(f"no access to a cluster: {clean_line(error)}: see kubectl config")
        if isinstance(error, HTTPError):
            return ExecutorAway(f"the cluster cannot be reached: {clean_line(error)}")
        return None


def _is_forbidden(error: BaseException) -> bool:
    from kubernetes.client import ApiException

    return isinstance(error, ApiException) and error.status == 403 and _QUOTA not in str(error.body)


def _uid(thing: Mapping[str, Any]) -> str:
    uid: str = thing["metadata"]["uid"]
    return uid


def _split(handle: str) -> tuple[str, str, str]:
    parts = handle.rsplit("/", 2)  # a context may have slashes in it
    if len(parts) != 3 or not all(parts):
        raise ExecutorError(f"{handle!r} is not a handle of kubernetes: expected CONTEXT/NAMESPACE/NAME")
    context, namespace, name = parts
    return context, namespace, name


def _describe(error: Any) -> str:
    """Return what the API said, and what to do about common errors."""
    try:
        said = json.loads(error.body or "{}").get("message", "")
    except (ValueError, AttributeError):
        said = error.body if isinstance(error.body, str) else ""
    line = clean_line(f"{error.status} {error.reason}" + (f": {said}" if said else ""))
    if error.status not in _REMEDIES or _QUOTA in line:
        return line
    return f"{line}: {_REMEDIES[error.status]}"


# ---- what a JobSet's status says


def status(jobset: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobStatus:
    """Return the state of a JobSet's job.

    Args:
        jobset: The object, as the API answers.
        pods: Its pods: the first alone is enough, except where it has failed.
    """
    conditions = _conditions(jobset)
    first = next((pod for pod in pods if _index(pod) == "0"), None)
    if "Completed" in conditions:
        return JobStatus(JobState.SUCCEEDED, exit_code=EXIT_COMPLETED)
    if "Failed" in conditions:
        return _failed(conditions["Failed"], first, pods, _seconds(jobset))
    if jobset["metadata"].get("deletionTimestamp"):
        return JobStatus(JobState.RUNNING, "stopping")
    if jobset.get("spec", {}).get("suspend"):
        return kueue.suspended(jobset, first)
    if first is not None and first.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed"):
        return JobStatus(JobState.RUNNING, _cut_off(first))
    if first is not None and first["metadata"].get("deletionTimestamp"):
        # It will never begin. If nobody removes it either, as on a dead node, its silence ends the attempt;
        # a job that is queued may be silent for ever.
        return JobStatus(JobState.RUNNING, "its pod is being deleted")
    return JobStatus(JobState.QUEUED, _why_waiting(first))


def _without_jobset(
    job: LaunchedJob, name: str, namespace: str, pods: Sequence[Mapping[str, Any]]
) -> JobStatus:
    """Return the state of a job whose JobSet is not there: somebody may have deleted it just now."""
    for pod in pods:
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if bears(pod, jobset_marks(name, job.marks)) and not over:
            return JobStatus(JobState.RUNNING, "stopping")
    return JobStatus(JobState.GONE, f"there is no JobSet {name} in {namespace}")


def _failed(
    condition: Mapping[str, Any],
    first: Mapping[str, Any] | None,
    pods: Sequence[Mapping[str, Any]],
    seconds: int | None,
) -> JobStatus:
    code, why = _exit(first)
    for pod in pods:
        if (disruption := _conditions(pod).get("DisruptionTarget")) is not None:
            node = pod.get("spec", {}).get("nodeName", "a node")
            return JobStatus(JobState.PREEMPTED, f"{node} was taken away: {_said(disruption)}", code)
    if condition.get("reason") == _PREEMPTED_REASON:
        # The JobSet does not say which of the two it was, and its Job may be gone.
        late = f", or its time of {seconds} s was over" if seconds else ""
        return JobStatus(JobState.PREEMPTED, f"a node was taken away{late}: {_said(condition)}", code)
    return JobStatus(JobState.FAILED, why or _said(condition), code)


def _seconds(jobset: Mapping[str, Any]) -> int | None:
    """Return how long a JobSet's hosts may run; None for no limit."""
    jobs = jobset.get("spec", {}).get("replicatedJobs") or [{}]
    seconds: int | None = jobs[0].get("template", {}).get("spec", {}).get("activeDeadlineSeconds")
    return seconds


def _exit(pod: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """Return how a pod's process ended, and the same in words."""
    state = _container(pod).get("state", {}).get("terminated")
    if state is None:
        return None, ""
    code = exit_from_shell(state["exitCode"])
    reason = state.get("reason", "Error")
    return code, describe_exit(code) + ("" if reason in ("Error", "Completed") else f" ({reason})")


def _cut_off(pod: Mapping[str, Any]) -> str:
    """Return what is known of a pod's node that is silent: the pod may run on, or be gone with it."""
    why = _conditions(pod).get("DisruptionTarget", {}).get("reason")
    return f"the node {pod['spec'].get('nodeName')} does not answer" if why == _SILENT_REASON else ""


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
    """Return the conditions that hold, by type."""
    return {name: found for name, found in _by_type(thing).items() if found.get("status") == "True"}


def _said(condition: Mapping[str, Any]) -> str:
    parts = (condition.get("reason"), condition.get("message"))
    return one_line(": ".join(part for part in parts if part))
