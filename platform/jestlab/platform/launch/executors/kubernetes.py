"""Jobs as JobSets on a Kubernetes cluster with TPU nodes.

A handle is `CONTEXT/NAMESPACE/NAME`. The context is the kubeconfig's: a launcher that is configured for
another cluster still finds the job.
"""

from __future__ import annotations

import functools
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from jestlab.platform.errors import UserError
from jestlab.platform.launch.executor import ExecutorAway, ExecutorError, Job, JobState, JobStatus
from jestlab.platform.launch.executors import clear, jobset, tries
from jestlab.platform.settings import Kubernetes as KubernetesSettings
from jestlab.platform.settings import Settings
from jestlab.platform.spec.resources import Resources
from jestlab.platform.tpu import Slice, parse

Result = TypeVar("Result")

_IN_CLUSTER = "in-cluster"
_CONNECT_SECONDS = 5.0
_PAGE = 500
_NAMES_IN_A_SELECTOR = 50  # more would make a URL too long; then all of ours are listed


class Kubernetes:
    """Launches jobs as JobSets and finds them again.

    Attributes:
        name: `kubernetes`.
        chips: Of each job.
        parallel: None: the cluster, or Kueue, lets jobs wait.
        grace_seconds: What pods have to save, and a minute to be gone.
    """

    name = "kubernetes"
    parallel: int | None = None
    grace_seconds = jobset.GRACE_SECONDS + 60.0

    def __init__(
        self,
        settings: KubernetesSettings,
        slice_: Slice | None = None,
        image: str | None = None,
        *,
        spot: bool = False,
        answer_seconds: float = 30.0,
    ) -> None:
        """Talks to nobody yet.

        Args:
            settings: The cluster.
            slice_: What each job computes on; None for an executor that launches nothing.
            image: Container that holds jestlab; None likewise.
            spot: Whether on nodes that may be taken away.
            answer_seconds: How long to wait for an answer.
        """
        self._settings = settings
        self._slice = slice_
        self._image = image
        self._spot = spot
        self._timeout = (_CONNECT_SECONDS, answer_seconds)
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.chips = slice_.chips if slice_ else 0

    @classmethod
    def of(cls, resources: Resources, settings: Settings, *, mounted: bool = True) -> Kubernetes:
        """One that can launch.

        Args:
            resources: What each run gets.
            settings: The user's.
            mounted: Whether pods find the lab in a folder; otherwise it is in a bucket.

        Raises:
            UserError: The slice, the image or the secret with the store's URL is not named anywhere.
        """
        image = resources.image or settings.image
        if resources.tpu is None:
            raise UserError("kubernetes needs a TPU slice: --set resources.tpu=v5e-16x16")
        if image is None:
            raise UserError(
                "kubernetes needs an image: say `image` in the config file, NAME@sha256:<64 hex digits>"
            )
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
        return cls(settings.kubernetes, parse(resources.tpu), image, spot=resources.spot)

    def has_room(self) -> bool:
        """There is: what has no room waits."""
        return True

    def render(self, job: Job) -> dict[str, Any]:
        """The JobSet that `launch` would make."""
        if self._slice is None or self._image is None:
            raise ExecutorError("this executor was made to find jobs, not to launch them")
        return jobset.manifest(job, self._slice, self._image, self._settings, spot=self._spot)

    def launch(self, job: Job) -> str:
        """Make the JobSet, or find the one of that name."""
        manifest = self.render(job)
        context = self._call(f"{job.title} was not launched", self._context)
        namespace = self._settings.namespace

        def create() -> None:
            from kubernetes.client import ApiException

            try:
                self._jobsets(context, "create", namespace, body=manifest)
            except ApiException as error:
                if error.status != 409:
                    raise
                self._check_own(context, namespace, job)

        # A second try finds what the first made, if only its answer was lost.
        self._call(f"{job.title} was not launched", create)
        return f"{context}/{namespace}/{job.name}"

    def _check_own(self, context: str, namespace: str, job: Job) -> None:
        """Make sure that the JobSet of that name is this job's."""
        from kubernetes.client import ApiException

        goes = f"{job.title}: an older JobSet {job.name} in {namespace} is still being deleted"
        try:
            found = self._jobsets(context, "get", namespace, name=job.name)
        except ApiException as error:
            if error.status != 404:
                raise
            raise ExecutorAway(goes) from None
        if not jobset.is_of(found, job):
            raise ExecutorError(
                f"{job.title}: the JobSet {job.name} in {namespace} is of another store, or not of jestlab: "
                "delete it, or set another `kubernetes.namespace`"
            )
        if found["metadata"].get("deletionTimestamp"):
            raise ExecutorAway(goes)

    def statuses(self, handles: Sequence[str]) -> dict[str, JobStatus]:
        """How jobs stand: two calls for all of a namespace, one more for each that has just failed."""
        found: dict[str, JobStatus] = {}
        places: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for handle in handles:
            try:
                context, namespace, name = _split(handle)
            except ExecutorError as error:
                found[handle] = JobStatus(JobState.UNKNOWN, str(error))
            else:
                places[context, namespace][name] = handle
        for (context, namespace), names in places.items():
            try:
                known = self._statuses(context, namespace, list(names))
            except ExecutorError as error:
                found |= {handle: JobStatus(JobState.UNKNOWN, str(error)) for handle in names.values()}
            else:
                found |= {handle: known[name] for name, handle in names.items()}
        return found

    def _statuses(self, context: str, namespace: str, names: Sequence[str]) -> dict[str, JobStatus]:
        selector = jobset.MANAGED
        if len(names) <= _NAMES_IN_A_SELECTOR:
            selector += f",{jobset.NAME_LABEL} in ({','.join(sorted(names))})"
        say = "the cluster does not answer"
        sets = {
            found["metadata"]["name"]: found
            for found in self._call(
                say, lambda: self._pages(self._listed_jobsets, context, namespace, selector)
            )
        }
        firsts: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        if any(name in sets for name in names):
            only_first = f"{selector},{jobset.INDEX_LABEL}=0"
            for pod in self._call(
                say, lambda: self._pages(self._listed_pods, context, namespace, only_first)
            ):
                firsts[pod["metadata"]["labels"].get(jobset.NAME_LABEL, "")].append(pod)
        known: dict[str, JobStatus] = {}
        for name in names:
            if name not in sets:
                known[name] = JobStatus(JobState.GONE, f"there is no JobSet {name} in {namespace}")
                continue
            known[name] = jobset.status(sets[name], firsts[name])
            if known[name].state == JobState.FAILED:  # any host may have been taken away, not only the first
                pods = functools.partial(self._pages, self._listed_pods, context, namespace)
                own = f"{jobset.JOBSET_LABEL}={name}"
                known[name] = jobset.status(sets[name], self._call(say, functools.partial(pods, own)))
        return known

    def stop(self, handle: str, *, now: bool) -> None:
        """Delete the JobSet: its pods get SIGTERM and the grace, or end at once. Their logs go with them."""
        context, namespace, name = _split(handle)
        say = f"{name} may still be running"
        policy = "Background" if now else "Foreground"

        def is_over() -> bool:
            from kubernetes.client import ApiException

            try:
                found = self._jobsets(context, "get", namespace, name=name)
            except ApiException as error:
                if error.status != 404:
                    raise
                return False  # its pods may still be ending
            return jobset.status(found, ()).state.is_over

        def delete() -> None:
            from kubernetes.client import ApiException

            try:
                self._jobsets(context, "delete", namespace, name=name, propagation_policy=policy)
            except ApiException as error:
                if error.status != 404:
                    raise

        if self._call(say, is_over):
            return  # and what it said can still be read
        self._call(say, delete)
        if now:
            selector = f"{jobset.JOBSET_LABEL}={name}"
            self._call(
                say,
                lambda: (
                    self._core(context)
                    .delete_collection_namespaced_pod(
                        namespace,
                        label_selector=selector,
                        grace_period_seconds=0,
                        _preload_content=False,
                        _request_timeout=self._timeout,
                    )
                    .data
                ),
            )

    def logs(self, handle: str) -> Iterator[bytes]:
        """What the first host has printed."""
        context, namespace, name = _split(handle)
        say = f"the log of {name} cannot be read"
        selector = f"{jobset.JOBSET_LABEL}={name},{jobset.INDEX_LABEL}=0"
        pods = self._call(say, lambda: self._pages(self._listed_pods, context, namespace, selector))
        if not pods:
            raise ExecutorError(
                f"{name} has no pods in {namespace}, or no longer: their log is gone with them"
            )
        pod = max(pods, key=lambda found: str(found["metadata"].get("creationTimestamp", "")))
        answer = self._call(
            say,
            lambda: self._core(context).read_namespaced_pod_log(
                pod["metadata"]["name"], namespace, _preload_content=False, _request_timeout=self._timeout
            ),
        )
        return self._pieces(say, answer)

    def _pieces(self, say: str, answer: Any) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError

        try:
            yield from answer.stream(1 << 16)
        except HTTPError as error:
            raise ExecutorAway(f"{say} to its end: {clear.line(error)}") from None
        finally:
            answer.release_conn()

    def _jobsets(self, context: str, verb: str, namespace: str, **options: Any) -> Any:
        """One request of the JobSet API: create, get, list, delete."""
        from kubernetes.client import CustomObjectsApi

        request = getattr(CustomObjectsApi(self._client(context)), f"{verb}_namespaced_custom_object")
        return request(
            group=jobset.GROUP,
            version=jobset.VERSION,
            namespace=namespace,
            plural=jobset.PLURAL,
            _request_timeout=self._timeout,
            **options,
        )

    def _listed_jobsets(self, context: str, namespace: str, **options: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._jobsets(context, "list", namespace, **options)
        return answer

    def _listed_pods(self, context: str, namespace: str, **options: Any) -> Mapping[str, Any]:
        # As JSON: the client's models refuse what a newer server may say, and are slow.
        answer = self._core(context).list_namespaced_pod(
            namespace, _preload_content=False, _request_timeout=self._timeout, **options
        )
        page: Mapping[str, Any] = json.loads(answer.data)
        return page

    def _pages(
        self, listed: Callable[..., Mapping[str, Any]], context: str, namespace: str, selector: str
    ) -> list[Mapping[str, Any]]:
        """All that a selector selects, however many pages."""
        found: list[Mapping[str, Any]] = []
        more: dict[str, str] = {}
        while True:
            page = listed(context, namespace, label_selector=selector, limit=_PAGE, **more)
            found += page.get("items") or ()
            if not (token := page.get("metadata", {}).get("continue")):
                return found
            more = {"_continue": token}

    def _core(self, context: str) -> Any:
        from kubernetes.client import CoreV1Api

        return CoreV1Api(self._client(context))

    def _context(self) -> str:
        """Where jobs are launched: the configured context, else the current one, else this pod's cluster."""
        if self._settings.context is not None:
            return self._settings.context
        from kubernetes import config

        try:
            name: str = config.list_kube_config_contexts()[1]["name"]
        except config.ConfigException:
            return _IN_CLUSTER
        return name

    def _client(self, context: str) -> Any:
        """The client of a context; made once, shared by all threads."""
        from kubernetes import client, config

        with self._lock:
            if context not in self._clients:
                configuration = client.Configuration()
                if context == _IN_CLUSTER:
                    config.load_incluster_config(client_configuration=configuration)
                else:
                    config.load_kube_config(context=context, client_configuration=configuration)
                configuration.retries = False  # `tries` decides what is tried again
                self._clients[context] = client.ApiClient(configuration)
            return self._clients[context]

    def _call(self, say: str, function: Callable[[], Result]) -> Result:
        """Call the API, and turn what goes wrong into one line."""
        from kubernetes.client import ApiException
        from kubernetes.config import ConfigException
        from urllib3.exceptions import HTTPError
        from yaml import YAMLError

        renewed = False

        def passes(error: Exception) -> bool:
            nonlocal renewed
            if isinstance(error, ApiException):
                if error.status == 401 and not renewed:  # a login ends after an hour or so: read it afresh
                    renewed = True
                    with self._lock:
                        self._clients.clear()
                    return True
                return tries.passing(error.status or None)
            return isinstance(error, HTTPError)

        try:
            return tries.call(function, passes)
        except ApiException as error:
            # A login that has ended is no fault of the job's: it can be renewed while the launcher waits.
            away = error.status == 401 or tries.passing(error.status or None)
            raise (ExecutorAway if away else ExecutorError)(f"{say}: {_words(error)}") from None
        except (ConfigException, YAMLError) as error:
            raise ExecutorError(
                f"{say}: no access to a cluster: {clear.line(error)}: see kubectl config"
            ) from None
        except HTTPError as error:
            raise ExecutorAway(f"{say}: the cluster is not to be reached: {clear.line(error)}") from None


def _split(handle: str) -> tuple[str, str, str]:
    parts = handle.rsplit("/", 2)  # a context may have slashes in it
    if len(parts) != 3 or not all(parts):
        raise ExecutorError(f"{handle!r} is no handle of kubernetes: CONTEXT/NAMESPACE/NAME")
    context, namespace, name = parts
    return context, namespace, name


def _words(error: Any) -> str:
    """What the API said, and what to do about the errors that people meet."""
    try:
        said = json.loads(error.body or "{}").get("message", "")
    except (ValueError, AttributeError):
        said = error.body if isinstance(error.body, str) else ""
    line = clear.line(f"{error.status} {error.reason}: {said}" if said else f"{error.status} {error.reason}")
    if error.status == 403:
        return (
            f"{line}: ask for the right to make, list and delete jobsets, and to list, read and delete pods"
        )
    if error.status == 404:
        return f"{line}: is JobSet installed in the cluster, and is the namespace there?"
    if error.status == 401:
        return f"{line}: log in to the cluster again"
    return line
