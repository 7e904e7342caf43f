"""Jobs as JobSets on a Kubernetes cluster.

A handle is `CONTEXT/NAMESPACE/NAME`, where CONTEXT is a context of the kubeconfig: so a launcher that is
configured for another cluster can find the job too.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from jestlab.platform.lab.settings import Kubernetes as KubernetesSettings
from jestlab.platform.launch.concurrency import MAX_CONCURRENT
from jestlab.platform.launch.executors import jobset
from jestlab.platform.launch.executors.base import (
    PROBE,
    ExecutorError,
    ExecutorUnavailable,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.executors.jobset import (
    INDEX_LABEL,
    JOB_SUFFIX,
    JOBSET_LABEL,
    JOBSETS,
    MANAGED,
    NAME_LABEL,
    WORKLOAD_LABEL,
    WORKLOADS,
    Object,
    condition_text,
    has_labels,
    is_in_queue,
    key_labels,
)
from jestlab.platform.launch.executors.remote import CloudExecutor, clean_line, explained, http_error
from jestlab.platform.spec.resources import Resources

_IN_CLUSTER = "in-cluster"
_CONNECT_SECONDS = 5.0
_PAGE = 500
_NAMES_IN_A_SELECTOR = 50  # more would make the URL too long: then list all of jestlab's objects
_REMEDIES = {
    401: "log in to the cluster again",
    403: "ask for these rights: create, get, list, delete of jobsets; list, deletecollection of pods; "
    "get of pods/log",
    404: "install JobSet in the cluster: https://jobset.sigs.k8s.io",
}
_CUSTOM = {"jobsets": JOBSETS, "workloads": WORKLOADS}
_QUOTA = "exceeded quota"  # part of the API server's error 403 if a quota is exceeded


class KubernetesExecutor(CloudExecutor[KubernetesSettings]):
    """Launches jobs as JobSets, which the cluster or Kueue queues.

    Attributes:
        grace_seconds: The pods' grace period, and a minute to remove them.
    """

    name = "kubernetes"
    grace_seconds = jobset.GRACE_SECONDS + 60.0
    required = ("store_secret",)

    def _manifest(self, job: Job, resources: Resources) -> dict[str, Any]:
        return jobset.jobset(job, resources, self._settings)

    def check(self) -> None:
        """Raise UserError if the cluster doesn't answer, would reject a job, or a quota forbids its pods."""
        call = functools.partial(self._call, "kubernetes can't launch jobs")
        context, namespace, body = call(self._context), self._settings.namespace, self.render(PROBE)
        try:
            call(self._custom, JOBSETS, context, "create", namespace, body=body, dry_run="All")
        except ExecutorUnavailable as error:
            if _QUOTA not in str(error):  # which may only be used up at present
                raise
        if problem := jobset.beyond_quota(body, self._optional_pages("resource_quotas", context, namespace)):
            raise ExecutorError(f"kubernetes can't launch jobs: {problem}")

    def launch(self, job: Job) -> LaunchedJob:
        """Create a JobSet, or find the existing one with the job's name and key."""
        body = self.render(job)
        call = functools.partial(self._call, "not launched")
        context, namespace = call(self._context), self._settings.namespace

        def create() -> None:
            if self._custom(JOBSETS, context, "create", namespace, body=body) is None:
                self._check_own(context, namespace, job)

        # If the answer was lost, repeating the call finds the JobSet that the first call created.
        call(create)
        return LaunchedJob(f"{context}/{namespace}/{job.name}", job.key)

    def _check_own(self, context: str, namespace: str, job: Job) -> None:
        """Raise ExecutorError if the JobSet with a job's name belongs to another job, or is being deleted."""
        existing = self._custom(JOBSETS, context, "get", namespace, name=job.name)
        if existing is not None and not has_labels(existing, key_labels(job.name, job.key)):
            raise ExecutorError(
                f"JobSet {job.name} in {namespace} belongs to another store, or isn't jestlab's: "
                "delete it, or set another `kubernetes.namespace`"
            )
        if existing is None or existing["metadata"].get("deletionTimestamp"):
            raise ExecutorUnavailable(f"an older JobSet {job.name} in {namespace} is still being deleted")

    def _statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Request JobSets and first pods; also all pods of failed jobs, and reasons of jobs that wait."""
        context, namespace, _ = _split(jobs[0].handle)
        names = {_split(job.handle)[2]: job for job in jobs}
        some = f",{NAME_LABEL} in ({','.join(sorted(names))})" if len(names) <= _NAMES_IN_A_SELECTOR else ""

        def listed(kind: str, selector: str) -> list[Object]:
            return self._call("the cluster does not answer", self._pages, kind, context, namespace, selector)

        sets = {item["metadata"]["name"]: item for item in listed("jobsets", MANAGED + some)}
        firsts: dict[str, list[Object]] = defaultdict(list)
        for pod in listed("pods", f"{MANAGED}{some},{INDEX_LABEL}=0"):
            firsts[pod["metadata"]["labels"].get(NAME_LABEL, "")].append(pod)
        known: dict[str, JobStatus] = {}
        for name, job in names.items():
            if name not in sets:
                known[name] = jobset.status_without_jobset(name, job.key, namespace, firsts[name])
            elif not has_labels(sets[name], key_labels(name, job.key)):
                reason = f"JobSet {name} in namespace {namespace} belongs to another attempt"
                known[name] = JobStatus(JobState.GONE, reason)
            else:
                known[name] = jobset.status(sets[name], firsts[name])
                if known[name].state == JobState.FAILED:  # check whether any host was preempted
                    known[name] = jobset.status(sets[name], listed("pods", f"{JOBSET_LABEL}={name}"))
        queued = [sets[name] for name, seen in known.items() if seen.state == JobState.QUEUED]
        suspended = [item for item in queued if is_in_queue(item)]
        reasons = self._queue_reasons(context, namespace, suspended) if suspended else {}
        if any(not firsts[item["metadata"]["name"]] for item in queued if item not in suspended):
            reasons = self._rejected_pods(context, namespace) | reasons
        return {
            names[name]: replace(seen, reason=seen.reason or reasons.get(name, ""))
            if seen.state == JobState.QUEUED
            else seen
            for name, seen in known.items()
        }

    def _queue_reasons(self, context: str, namespace: str, jobsets: Sequence[Object]) -> dict[str, str]:
        """Return why JobSets wait in Kueue's queues: JobSet's name → reason."""
        workloads: dict[str, list[Object]] = defaultdict(list)
        for workload in self._optional_pages("workloads", context, namespace, WORKLOAD_LABEL):
            workloads[workload["metadata"]["labels"][WORKLOAD_LABEL]].append(workload)
        return {
            item["metadata"]["name"]: jobset.queue_reason(item, workloads[item["metadata"]["uid"]])
            for item in jobsets
        }

    def _rejected_pods(self, context: str, namespace: str) -> dict[str, str]:
        """Return why the cluster rejects pods of JobSets: JobSet's name → reason."""
        events = self._optional_pages("events", context, namespace, fields="reason=FailedCreate")
        events.sort(key=lambda event: str(event.get("lastTimestamp") or ""))
        jobs = [(event["involvedObject"]["name"], event) for event in events]
        return {
            name.removesuffix(JOB_SUFFIX): explained(condition_text(event))
            for name, event in jobs
            if name.endswith(JOB_SUFFIX)
        }

    def _optional_pages(self, *values: str, **options: str) -> list[Object]:
        """Return the same as `_pages`, or an empty list if the API reports an error (a missing right)."""
        try:
            return self._pages(*values, **options)
        except Exception as error:
            if self._translated(error) is None:
                raise
            return []

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Delete the JobSet and its pods with their logs, after the grace period; with `now`, immediately."""
        context, namespace, name = _split(job.handle)
        call = functools.partial(self._call, f"{name} may still be running")
        existing = call(self._custom, JOBSETS, context, "get", namespace, name=name)
        if existing is not None:
            if not has_labels(existing, key_labels(name, job.key)):
                return  # another attempt's job has this name
            if jobset.status(existing, ()).state.is_over:
                return  # keep its log
            # The precondition protects a JobSet that replaced this one meanwhile. All options are in the
            # body: if there is one, the API server ignores options in the query.
            options = {
                "propagationPolicy": "Background" if now else "Foreground",
                "preconditions": {"uid": existing["metadata"]["uid"]},
            }
            call(self._custom, JOBSETS, context, "delete", namespace, name=name, body=options)
        if now:
            pods = {"label_selector": self._selector(name, job), "grace_period_seconds": 0}
            call(lambda: self._core(context, "delete_collection_namespaced_pod", namespace, **pods).data)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return the output so far of the first host."""
        context, namespace, name = _split(job.handle)
        prefix = f"the log of {name} can't be read"
        selector = f"{self._selector(name, job)},{INDEX_LABEL}=0"
        pods = self._call(prefix, self._pages, "pods", context, namespace, selector)
        if not pods:
            raise ExecutorError(f"{prefix}: its pods no longer exist in {namespace}")
        pod = max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
        read, name = "read_namespaced_pod_log", pod["metadata"]["name"]
        return self._pieces(prefix, self._call(prefix, self._core, context, read, name, namespace))

    @staticmethod
    def _selector(name: str, job: LaunchedJob) -> str:
        """Return the label selector for the pods of an attempt's JobSet."""
        labels = {JOBSET_LABEL: name, **key_labels(name, job.key)}
        return ",".join(f"{key}={value}" for key, value in labels.items())

    def _pieces(self, prefix: str, answer: Any) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError

        try:
            yield from answer.stream(1 << 16)
        except HTTPError as error:
            raise ExecutorUnavailable(f"{prefix} to its end: {clean_line(error)}") from None
        finally:
            answer.release_conn()

    # ---- requests

    def _custom(
        self, kind: tuple[str, str, str], context: str, verb: str, namespace: str, **options: Any
    ) -> Any:
        """Send one request about JobSets or Workloads: create, list, get, or delete.

        Returns:
            The answer; None if the object to create already exists, or the one to get or delete doesn't.
        """
        from kubernetes.client import ApiException, CustomObjectsApi

        group, version, plural = kind
        request = getattr(CustomObjectsApi(self._client(context)), f"{verb}_namespaced_custom_object")
        where = {"group": group, "version": version, "namespace": namespace, "plural": plural}
        try:
            return request(**where, _request_timeout=self._timeout, **options)
        except ApiException as error:
            # A deletion whose precondition fails is a conflict (409): the JobSet has already been replaced.
            expected = {"create": (409,), "get": (404,), "delete": (404, 409)}
            if error.status not in expected.get(verb, ()):
                raise
            return None

    def _pages(
        self, kind: str, context: str, namespace: str, selector: str = "", fields: str = ""
    ) -> list[Object]:
        """Return all objects of a kind: `jobsets`, `workloads`, `pods`, `resource_quotas`, or `events`."""
        items: list[Object] = []
        options = {"label_selector": selector, "field_selector": fields}
        given: dict[str, Any] = {name: value for name, value in options.items() if value} | {"limit": _PAGE}
        while True:
            if kind in _CUSTOM:
                page = self._custom(_CUSTOM[kind], context, "list", namespace, **given)
            else:
                request = f"list_namespaced_{kind.removesuffix('s')}"
                page = json.loads(self._core(context, request, namespace, **given).data)
            items += page.get("items") or ()
            if not (token := page.get("metadata", {}).get("continue")):
                return items
            given["_continue"] = token

    def _core(self, context: str, request: str, *values: str, **options: Any) -> Any:
        """Send one request about pods or events; return the response without parsing it.

        The client's classes for parsing are slow, and reject fields of newer servers.
        """
        from kubernetes.client import CoreV1Api

        options |= {"_preload_content": False, "_request_timeout": self._timeout}
        return getattr(CoreV1Api(self._client(context)), request)(*values, **options)

    def _context(self) -> str:
        """Return the context to launch in: the configured one, the current one, or this pod's cluster."""
        if self._settings.context is not None:
            return self._settings.context
        from kubernetes import config

        try:
            name: str = config.list_kube_config_contexts()[1]["name"]
        except config.ConfigException:
            return _IN_CLUSTER
        return name

    def _client(self, context: str) -> Any:
        """Return the client for a context. All threads share it."""
        from kubernetes import client, config

        with self._lock:
            if context not in self._clients:
                configuration = client.Configuration()
                if context == _IN_CLUSTER:
                    config.load_incluster_config(client_configuration=configuration)
                else:
                    config.load_kube_config(context=context, client_configuration=configuration)
                configuration.retries = False  # `_call` retries
                configuration.connection_pool_maxsize = MAX_CONCURRENT
                self._clients[context] = client.ApiClient(configuration)
            return self._clients[context]

    @property
    def _timeout(self) -> tuple[float, float]:
        return _CONNECT_SECONDS, self.answer_seconds

    def _translated(self, error: Exception) -> ExecutorError | None:
        from kubernetes.client import ApiException
        from kubernetes.config import ConfigException
        from urllib3.exceptions import HTTPError
        from yaml import YAMLError

        if isinstance(error, ApiException):
            message = _describe(error)
            if error.status == 401:  # read the login again: it expires after about an hour
                self._forget_login()
            if error.status == 403 and _QUOTA in message:  # retry: other jobs may end
                return ExecutorUnavailable(message)
            if error.status == 403:  # an API server that has just started briefly answers 403 to everything
                return ExecutorError(message, transient=True)
            if error.status == 410:  # the list has expired between two pages: request it again
                return ExecutorUnavailable(message, transient=True)
            return http_error(error.status or None, message)
        if isinstance(error, ConfigException | YAMLError):
            return ExecutorError(f"no access to a cluster: {clean_line(error)}: see kubectl config")
        if isinstance(error, HTTPError):
            return ExecutorUnavailable(f"the cluster can't be reached: {clean_line(error)}", transient=True)
        return None


def _split(handle: str) -> tuple[str, str, str]:
    parts = handle.rsplit("/", 2)  # contexts may contain slashes
    if len(parts) != 3 or not all(parts):
        raise ExecutorError(f"{handle!r} is not a handle of kubernetes: expected CONTEXT/NAMESPACE/NAME")
    context, namespace, name = parts
    return context, namespace, name


def _describe(error: Any) -> str:
    """Return the message of an API error, with a remedy if the error is common."""
    try:
        message = json.loads(error.body or "{}").get("message", "")
    except (ValueError, AttributeError):
        message = error.body if isinstance(error.body, str) else ""
    line = clean_line(f"{error.status} {error.reason}" + (f": {message}" if message else ""))
    if error.status not in _REMEDIES or _QUOTA in line:
        return explained(line)
    if error.status == 404 and message.startswith("namespaces "):
        return f"{line}: create it, or set another `kubernetes.namespace`"
    return f"{line}: {_REMEDIES[error.status]}"
