"""Jobs as CustomJobs of Vertex AI. A handle is the CustomJob's resource name.

References:
    The CustomJob API, cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs; TPUs
    in training, cloud.google.com/vertex-ai/docs/training/configure-compute: one replica is a whole
    slice, whatever its topology; spot VMs, cloud.google.com/vertex-ai/docs/training/use-spot-vms: none for
    TPU pods, and a job whose machines are taken away fails with a STOCKOUT error.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.secret import STORE_SECRET
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import Vertex as VertexSettings
from jestlab.platform.launch.executors.base import (
    ExecutorError,
    Job,
    JobKey,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.executors.remote import (
    WORKER,
    CloudExecutor,
    Place,
    arguments_at,
    clean_line,
    http_error,
    public_variables,
)
from jestlab.platform.logs import one_line
from jestlab.platform.processes import EXIT_COMPLETED, exit_from_shell
from jestlab.platform.spec.resources import Resources

NAME_LABEL = "jestlab-job"
"""Label of a CustomJob: the job's name."""

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_CONSOLE = "https://console.cloud.google.com"
_HANDLE = re.compile(r"(projects/([^/]+)/locations/([^/]+))/customJobs/([^/]+)")
_MOST_SINGLE_REQUESTS = 8  # for the statuses of more jobs, all of jestlab's CustomJobs are listed
_PAGE = 100
_LOG_PAGE = 1000

_STATES = {
    "JOB_STATE_QUEUED": JobState.QUEUED,
    "JOB_STATE_PENDING": JobState.QUEUED,
    "JOB_STATE_PAUSED": JobState.QUEUED,
    "JOB_STATE_RUNNING": JobState.RUNNING,
    "JOB_STATE_UPDATING": JobState.RUNNING,
    "JOB_STATE_CANCELLING": JobState.RUNNING,
    "JOB_STATE_SUCCEEDED": JobState.SUCCEEDED,
    "JOB_STATE_PARTIALLY_SUCCEEDED": JobState.FAILED,
    "JOB_STATE_FAILED": JobState.FAILED,
    "JOB_STATE_CANCELLED": JobState.FAILED,
    "JOB_STATE_EXPIRED": JobState.FAILED,
}
_UNREMARKABLE = frozenset({"JOB_STATE_QUEUED", "JOB_STATE_RUNNING", "JOB_STATE_FAILED"})
_WITHDRAWN = frozenset({"JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED"})
_TAKEN_AWAY = re.compile(r"stockout|preempt", re.IGNORECASE)
_EXIT_CODE = re.compile(r"non-zero status of (\d+)")


class VertexExecutor(CloudExecutor[VertexSettings]):
    """Launches jobs as CustomJobs and finds them again. Vertex AI queues jobs until there is quota.

    Attributes:
        grace_seconds: Long, since Vertex AI takes minutes to cancel a job.
        endpoint: Address of Vertex AI; None for the region's.
        logging_endpoint: Address of Cloud Logging.
        credentials: Credentials to use; None for Google's default credentials.
    """

    name = "vertex"
    grace_seconds = 300.0
    endpoint: str | None = None
    logging_endpoint = "https://logging.googleapis.com"
    credentials: Any = None

    @classmethod
    def create(
        cls, lab: Lab, settings: Settings, resources: Resources | None, _: Callable[[], None]
    ) -> VertexExecutor:
        """Create an executor; without resources, it launches nothing.

        Raises:
            UserError: A setting that jobs need is missing.
        """
        if resources is None:
            return cls(settings.vertex)
        resources = cls._with_image(resources, settings)
        for key in ("project", "region", "store_secret", *(["root"] if lab.remote is None else [])):
            if getattr(settings.vertex, key) is None:
                raise UserError(f"vertex needs `vertex.{key}` in the config file")
        return cls(settings.vertex, resources)

    def _manifest(self, job: Job, resources: Resources) -> dict[str, Any]:
        return custom_job(job, resources, self._settings)

    def launch(self, job: Job) -> LaunchedJob:
        """Create the CustomJob, or find the one with that name."""
        from google.cloud.aiplatform_v1.types import CustomJob
        from google.protobuf.json_format import ParseDict

        body = CustomJob(ParseDict(self.render(job), CustomJob.pb(CustomJob())))
        parent = f"projects/{self._settings.project}/locations/{self._settings.region}"

        def create() -> str:
            # Vertex AI accepts a name twice. So look before and after: the oldest CustomJob counts.
            if not (before := self._named(parent, job)):
                made = self._jobs(parent, "create_custom_job", parent=parent, custom_job=body)
                before = self._named(parent, job) or [made]
            oldest, *others = before
            for other in others:
                self._cancel(other.name)
            return str(oldest.name)

        return LaunchedJob(self._call(f"{job.title} was not launched", create), job.key)

    def _named(self, parent: str, job: Job) -> list[Any]:
        """Return the CustomJobs of a job, oldest first, without canceled ones: two may be created at once."""
        request = {"parent": parent, "filter": f'display_name="{job.name}"'}
        ours = [
            made
            for made in self._jobs(parent, "list_custom_jobs", request=request)
            if _has_key(made.labels, job.key) and made.state.name not in _WITHDRAWN
        ]
        return sorted(ours, key=lambda made: (made.create_time, made.name))

    def _place(self, handle: str) -> Place:
        parent, _, region, _ = _parts(handle)
        return parent, region

    def _statuses(self, place: Place, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Request a few jobs one by one, many jobs as a list."""
        prefix = "Vertex AI does not answer"
        statuses: dict[LaunchedJob, JobStatus] = {}
        if len(jobs) > _MOST_SINGLE_REQUESTS:
            statuses = self._call(prefix, self._listed, place[0], {job.handle: job for job in jobs})
        for job in jobs:
            if job not in statuses:
                statuses[job] = self._call(prefix, self._one, job)
        return statuses

    def _listed(self, parent: str, jobs: Mapping[str, LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        request = {"parent": parent, "filter": f"labels.{NAME_LABEL}:*", "page_size": _PAGE}
        statuses: dict[LaunchedJob, JobStatus] = {}
        for made in self._jobs(parent, "list_custom_jobs", request=request):
            if (job := jobs.get(made.name)) is not None:
                statuses[job] = _status(made, job)
                if len(statuses) == len(jobs):
                    break
        return statuses

    def _one(self, job: LaunchedJob) -> JobStatus:
        from google.api_core.exceptions import NotFound

        try:
            return _status(self._jobs(job.handle, "get_custom_job", name=job.handle), job)
        except NotFound:
            return JobStatus(JobState.GONE, f"{job.handle} not found")

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Cancel the CustomJob. Vertex AI has only one way to cancel, with little time to save."""
        _parts(job.handle)
        prefix = f"{job.handle} may still be running"
        if not self._call(prefix, self._one, job).state.is_over:
            self._call(prefix, self._cancel, job.handle)

    def _cancel(self, handle: str) -> None:
        from google.api_core.exceptions import BadRequest, NotFound

        with contextlib.suppress(NotFound):
            try:
                self._jobs(handle, "cancel_custom_job", name=handle)
            except BadRequest:  # a CustomJob that is over can't be canceled
                made = self._jobs(handle, "get_custom_job", name=handle)
                if not status(made.state.name, made.error.code, made.error.message).state.is_over:
                    raise

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return the output of the first host in Cloud Logging."""
        _, project, region, number = _parts(job.handle)
        prefix = f"the log of {job.handle} can't be read"
        try:
            if (seen := self._call(prefix, self._one, job)).state == JobState.GONE:
                raise ExecutorError(f"no log: {seen.reason}")
            lines = self._log_lines(prefix, project, number)
            if (first := next(lines, None)) is None:
                raise ExecutorError(f"no log of {job.handle} yet")
        except ExecutorError as error:
            page = f"{_CONSOLE}/ai/platform/locations/{region}/training/{number}?project={project}"
            raise type(error)(f"{error}; in the browser: {page}") from None
        return chain([first], lines)

    def _log_lines(self, prefix: str, project: str, number: str) -> Iterator[bytes]:
        query: dict[str, Any] = {
            "resourceNames": [f"projects/{project}"],
            "filter": f'resource.type="ml_job" AND resource.labels.job_id="{number}" '
            'AND resource.labels.task_name="workerpool0-0"',
            "orderBy": "timestamp asc",
            "pageSize": _LOG_PAGE,
        }
        while True:
            page = self._call(prefix, self._log_page, query)
            for entry in page.get("entries", ()):
                payload = entry.get("jsonPayload", {})  # a printed line has a textPayload instead
                text = entry.get("textPayload", payload.get("message", payload))
                yield str(text).rstrip("\n").encode() + b"\n"
            if not (token := page.get("nextPageToken")):
                return
            query["pageToken"] = token

    def _log_page(self, query: dict[str, Any]) -> dict[str, Any]:
        import google.auth
        from google.api_core.exceptions import from_http_response
        from google.auth.transport.requests import AuthorizedSession

        url = f"{self.logging_endpoint}/v2/entries:list"
        with AuthorizedSession(self.credentials or google.auth.default(scopes=[_SCOPE])[0]) as session:
            answer = session.post(url, json=query, timeout=self._answer_seconds)
        if answer.status_code != 200:
            raise from_http_response(answer)
        page: dict[str, Any] = answer.json()
        return page

    def _jobs(self, name: str, request: str, /, **options: Any) -> Any:
        """Send one request about CustomJobs to the region of a resource's name."""
        from google.cloud.aiplatform_v1.services.job_service import JobServiceClient

        region = name.split("/")[3]
        with self._lock:
            if region not in self._clients:
                self._clients[region] = JobServiceClient(
                    credentials=self.credentials,
                    transport="rest",
                    client_options={"api_endpoint": self.endpoint or f"{region}-aiplatform.googleapis.com"},
                )
            client = self._clients[region]
        return getattr(client, request)(retry=None, timeout=self._answer_seconds, **options)

    def _translated(self, error: Exception) -> ExecutorError | None:
        import requests
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

        if isinstance(error, GoogleAPICallError):
            if error.code == 401:
                self._forget_login()
            return http_error(error.code, _describe(error))
        if isinstance(error, TransportError | requests.RequestException):
            return http_error(None, f"Google Cloud can't be reached: {clean_line(error)}")
        if isinstance(error, GoogleAuthError):
            self._forget_login()
            reason = clean_line(error).rstrip(".")
            message = f"no credentials of Google Cloud: {reason}: gcloud auth application-default login"
            # An expired login can be renewed while the launcher waits; missing credentials can't.
            return http_error(401, message) if isinstance(error, RefreshError) else ExecutorError(message)
        return None


# ---- the manifest


def custom_job(job: Job, resources: Resources, settings: VertexSettings) -> dict[str, Any]:
    """Create the CustomJob of a job for the REST API.

    `resources` has a TPU slice and an image, `settings` a `store_secret` and a `root`.

    Raises:
        ExecutorError: The manifest would contain a password.
    """
    slice_ = resources.slice
    assert slice_ is not None
    variables = {**public_variables(job), STORE_SECRET: settings.store_secret}
    if slice_.hosts > 1:
        variables["JESTLAB_PROCESSES"] = str(slice_.hosts)
    pool: dict[str, Any] = {
        "machineSpec": {"machineType": slice_.machine_type, "tpuTopology": slice_.topology},
        "replicaCount": "1",
        "containerSpec": {
            "imageUri": resources.image,
            "command": WORKER,
            "args": arguments_at(settings.root, job),
            "env": [{"name": name, "value": value} for name, value in variables.items()],
        },
    }
    if settings.nfs:
        server, _, path = settings.nfs.partition(":/")
        pool["nfsMounts"] = [{"server": server, "path": f"/{path}", "mountPoint": "lab"}]
    spec: dict[str, Any] = {
        "workerPoolSpecs": [pool],
        # The launcher starts and counts further attempts; Vertex AI would start up to three uncounted ones.
        "scheduling": {"disableRetries": True, "strategy": "SPOT" if resources.spot else "STANDARD"},
    }
    if settings.service_account:
        spec["serviceAccount"] = settings.service_account
    if settings.network:
        spec["network"] = settings.network
    if settings.staging:
        spec["baseOutputDirectory"] = {"outputUriPrefix": f"{settings.staging.rstrip('/')}/{job.name}"}
    ours = {_label(key).lstrip("-_0123456789"): _label(value) for key, value in job.labels.items()}
    labels = {key: value for key, value in ours.items() if key} | job.key.labels | {NAME_LABEL: job.name}
    return {"displayName": job.name, "labels": labels, "jobSpec": spec}


def _label(text: str) -> str:
    """Return a label in Google Cloud's alphabet: lower-case letters, digits, `-`, and `_`."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


# ---- answers


def status(state: str, code: int, message: str) -> JobStatus:
    """Return the status of a CustomJob's job from the name of its state and its error (code 0: no error)."""
    job_state = _STATES.get(state, JobState.UNKNOWN)
    if job_state == JobState.SUCCEEDED:
        return JobStatus(job_state, exit_code=EXIT_COMPLETED)
    reason = "" if state in _UNREMARKABLE else state
    if job_state != JobState.FAILED:
        return JobStatus(job_state, reason)
    text = one_line(": ".join(part for part in (reason, message) if part)) or f"error {code}"
    if state == "JOB_STATE_FAILED" and _TAKEN_AWAY.search(message):
        return JobStatus(JobState.PREEMPTED, text)
    match = _EXIT_CODE.search(message)
    return JobStatus(job_state, text, exit_from_shell(int(match[1])) if match else None)


def _status(made: Any, job: LaunchedJob) -> JobStatus:
    if not _has_key(made.labels, job.key):
        return JobStatus(JobState.GONE, f"{job.handle} belongs to another attempt")
    return status(made.state.name, made.error.code, made.error.message)


def _has_key(labels: Mapping[str, str], key: JobKey) -> bool:
    return all(labels.get(name) == value for name, value in key.labels.items())


def _parts(handle: str) -> tuple[str, str, str, str]:
    """Return parent, project, region, and number of a CustomJob."""
    match = _HANDLE.fullmatch(handle)
    if match is None:
        raise ExecutorError(
            f"{handle!r} is not a handle of vertex: expected projects/…/locations/…/customJobs/…"
        )
    parent, project, region, number = match.groups()
    return parent, project, region, number


def _describe(error: Any) -> str:
    code = error.code.value if hasattr(error.code, "value") else error.code
    line = clean_line(f"{code} {error.message}")
    return f"{line}: ask for the role aiplatform.user in the project" if code == 403 else line
