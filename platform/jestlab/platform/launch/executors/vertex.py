"""Jobs as CustomJobs of Vertex AI. A handle is the CustomJob's resource name.

References:
    Spot VMs, cloud.google.com/vertex-ai/docs/training/use-spot-vms: none for TPU pods; a job whose machines
    are taken away fails with a STOCKOUT error.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from jestlab.platform.errors import UserError
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import Vertex as VertexSettings
from jestlab.platform.launch.executor import (
    ExecutorAway,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
    Marks,
)
from jestlab.platform.launch.executors import manifest
from jestlab.platform.launch.executors.cloud import Cloud, Place, http_error
from jestlab.platform.launch.executors.manifest import VERTEX_LABEL, clean_line
from jestlab.platform.logs import one_line
from jestlab.platform.processes import EXIT_COMPLETED, exit_from_shell
from jestlab.platform.spec.resources import Nodes, Resources, Slice

Answer = TypeVar("Answer")

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_HANDLE = re.compile(r"(projects/([^/]+)/locations/([^/]+))/customJobs/([^/]+)")
_ASKED_ONE_BY_ONE = 8
_PAGE = 100
_LOG_PAGE = 1000

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


class Vertex(Cloud[VertexSettings]):
    """Launches jobs as CustomJobs and finds them again. Vertex AI lets jobs wait until there is quota.

    Attributes:
        grace_seconds: Long, since Vertex AI takes minutes to cancel a job.
        endpoint: Address of Vertex AI; None for the region's.
        logging_endpoint: Address of Cloud Logging.
        credentials: Credentials to use; None for those that Google's libraries find here.
    """

    name = "vertex"
    per_second = 10.0
    grace_seconds = 300.0
    endpoint: str | None = None
    logging_endpoint = "https://logging.googleapis.com"
    credentials: Any = None

    @classmethod
    def of(cls, resources: Resources, settings: Settings, *, mounted: bool = True) -> Vertex:
        """Create an executor that can launch jobs; `mounted` unless the lab is in a bucket.

        Raises:
            UserError: Something that it needs is not named anywhere, or Vertex AI does not offer it.
        """
        slice_ = cls._slice_of(resources)
        if not slice_.type.on_vertex:
            raise UserError(f"Vertex AI does not train on {slice_}: --on kubernetes")
        if resources.spot and slice_.hosts > 1:
            raise UserError(f"Vertex AI has no spot machines for slices of several hosts, as {slice_} is")
        image = cls._image_of(resources, settings)
        for key in ("project", "region", "store_secret", *(["root"] if mounted else [])):
            if getattr(settings.vertex, key) is None:
                raise UserError(f"vertex needs `vertex.{key}` in the config file")
        return cls(settings.vertex, slice_, image, spot=resources.spot)

    def _manifest(self, job: Job, machines: Slice | Nodes, image: str) -> dict[str, Any]:
        if not isinstance(machines, Slice):
            raise ExecutorError(f"vertex runs jobs on TPU slices, not on {machines}")
        return manifest.custom_job(job, machines, image, self._settings, spot=self._spot)

    def launch(self, job: Job) -> LaunchedJob:
        """Create the CustomJob, or find the one of that name."""
        from google.cloud.aiplatform_v1.types import CustomJob
        from google.protobuf.json_format import ParseDict

        body = CustomJob(ParseDict(self.render(job), CustomJob.pb(CustomJob())))
        parent = f"projects/{self._settings.project}/locations/{self._settings.region}"

        def create() -> str:
            # Vertex AI takes the same name twice. So: look first, look again after, and the oldest counts.
            if not (before := self._named(parent, job)):
                made = self._jobs(parent, "create_custom_job", parent=parent, custom_job=body)
                before = self._named(parent, job) or [made]
            oldest, *others = before
            for other in others:
                self._cancel(other.name)
            return str(oldest.name)

        return LaunchedJob(self._call(f"{job.title} was not launched", create), job.marks)

    def _named(self, parent: str, job: Job) -> list[Any]:
        """Return the CustomJobs of a job that still count, oldest first."""
        request = {"parent": parent, "filter": f'display_name="{job.name}"'}
        found = self._jobs(parent, "list_custom_jobs", request=request)
        ours = [made for made in found if _counts_for(job, made.state.name, made.labels)]
        return sorted(ours, key=lambda made: (made.create_time, made.name))

    def _place(self, handle: str) -> Place:
        parent, _, region, _ = _parts(handle)
        return parent, region

    def _statuses(self, place: Place, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """A few jobs are asked for one by one, many by lists."""
        say = "Vertex AI does not answer"
        found: dict[LaunchedJob, JobStatus] = {}
        if len(jobs) > _ASKED_ONE_BY_ONE:
            found = self._call(say, self._listed, place[0], {job.handle: job for job in jobs})
        for job in jobs:
            if job not in found:
                found[job] = self._call(say, self._one, job)
        return found

    def _listed(self, parent: str, jobs: Mapping[str, LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        request = {"parent": parent, "filter": f"labels.{VERTEX_LABEL}:*", "page_size": _PAGE}
        found: dict[LaunchedJob, JobStatus] = {}
        for made in self._jobs(parent, "list_custom_jobs", request=request):
            if (job := jobs.get(made.name)) is not None:
                found[job] = _status(made, job)
                if len(found) == len(jobs):
                    break
        return found

    def _one(self, job: LaunchedJob) -> JobStatus:
        from google.api_core.exceptions import NotFound

        try:
            return _status(self._jobs(job.handle, "get_custom_job", name=job.handle), job)
        except NotFound:
            return JobStatus(JobState.GONE, f"there is no {job.handle}")

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Cancel the CustomJob. Vertex AI has one way to do it, with little time to save."""
        _parts(job.handle)
        say = f"{job.handle} may still be running"
        if not self._call(say, self._one, job).state.is_over:
            self._call(say, self._cancel, job.handle)

    def _cancel(self, handle: str) -> None:
        from google.api_core.exceptions import BadRequest, NotFound

        with contextlib.suppress(NotFound):
            try:
                self._jobs(handle, "cancel_custom_job", name=handle)
            except BadRequest:  # one that is over cannot be cancelled
                made = self._jobs(handle, "get_custom_job", name=handle)
                if not status(made.state.name, made.error.code, made.error.message).state.is_over:
                    raise

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return what the first host has printed, as Cloud Logging has it."""
        handle = job.handle
        _, project, _, number = _parts(handle)
        query = {
            "resourceNames": [f"projects/{project}"],
            "filter": f'resource.type="ml_job" AND resource.labels.job_id="{number}" '
            'AND resource.labels.task_name="workerpool0-0"',
            "orderBy": "timestamp asc",
            "pageSize": _LOG_PAGE,
        }
        if (seen := self._ask_log(handle, lambda: self._one(job))).state == JobState.GONE:
            raise ExecutorError(f"there is no log: {seen.reason}")
        lines = self._log_lines(handle, query)
        if (first := next(lines, None)) is None:
            raise ExecutorError(f"there is no log of {handle} yet: see {_console(handle)}")
        return chain([first], lines)

    def _log_lines(self, handle: str, query: dict[str, Any]) -> Iterator[bytes]:
        token: str | None = ""
        while token is not None:
            page = self._log_page(handle, query | ({"pageToken": token} if token else {}))
            yield from (f"{_text(entry)}\n".encode() for entry in page.get("entries", ()))
            token = page.get("nextPageToken") or None

    def _log_page(self, handle: str, query: dict[str, Any]) -> dict[str, Any]:
        import google.auth
        from google.auth.transport.requests import AuthorizedSession

        def ask() -> dict[str, Any]:
            with AuthorizedSession(self.credentials or google.auth.default(scopes=[_SCOPE])[0]) as session:
                answer = session.post(
                    f"{self.logging_endpoint}/v2/entries:list", json=query, timeout=self._answer_seconds
                )
            if answer.status_code != 200:
                from google.api_core.exceptions import from_http_response

                raise from_http_response(answer)
            page: dict[str, Any] = answer.json()
            return page

        return self._ask_log(handle, ask)

    def _ask_log(self, handle: str, ask: Callable[[], Answer]) -> Answer:
        """Call the API for a log; an error says where else it can be seen."""
        try:
            return self._call(f"the log of {handle} cannot be read", ask)
        except ExecutorError as error:
            raise type(error)(f"{error}; in the browser: {_console(handle)}") from None

    def _jobs(self, name: str, request: str, /, **options: Any) -> Any:
        """Send one request about CustomJobs to the region that a resource's name tells."""
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

    def _too_many(self, error: BaseException) -> Mapping[str, str] | None:
        from google.api_core.exceptions import GoogleAPICallError

        if not isinstance(error, GoogleAPICallError) or error.code != 429:
            return None
        return getattr(error.response, "headers", None) or {}

    def _meaning(self, error: BaseException) -> ExecutorError | None:
        import requests
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

        if isinstance(error, GoogleAPICallError):
            if error.code == 401:
                self._forget_login()
            return http_error(error.code, _describe(error))
        if isinstance(error, TransportError | requests.RequestException):
            return ExecutorAway(f"Google Cloud cannot be reached: {clean_line(error)}")
        if isinstance(error, GoogleAuthError):
            self._forget_login()
            # An expired login can be renewed while the launcher waits; one that never existed cannot.
            kind = ExecutorAway if isinstance(error, RefreshError) else ExecutorError
            why = clean_line(error).rstrip(".")
            return kind(f"no credentials of Google Cloud: {why}: gcloud auth application-default login")
        return None


def _status(made: Any, job: LaunchedJob) -> JobStatus:
    if not _bears(made.labels, job.marks):
        return JobStatus(JobState.GONE, f"{job.handle} is another attempt's")
    return status(made.state.name, made.error.code, made.error.message)


def _parts(handle: str) -> tuple[str, str, str, str]:
    """Return parent, project, region and number of a CustomJob."""
    match = _HANDLE.fullmatch(handle)
    if match is None:
        raise ExecutorError(
            f"{handle!r} is not a CustomJob of Vertex AI: expected projects/…/locations/…/customJobs/…"
        )
    parent, project, region, number = match.groups()
    return parent, project, region, number


def _console(handle: str) -> str:
    _, project, region, number = _parts(handle)
    return (
        f"https://console.cloud.google.com/ai/platform/locations/{region}/training/{number}?project={project}"
    )


def _text(entry: dict[str, Any]) -> str:
    """Return the text of an entry of Cloud Logging: a printed line, or the message of one in JSON."""
    if "textPayload" in entry:
        return str(entry["textPayload"]).rstrip("\n")
    payload = entry.get("jsonPayload", {})
    return str(payload.get("message", payload)).rstrip("\n")


def _describe(error: Any) -> str:
    line = clean_line(f"{error.code.value if hasattr(error.code, 'value') else error.code} {error.message}")
    if error.code == 403:
        return f"{line}: ask for the role aiplatform.user in the project"
    return line


# ---- what a CustomJob's state says


def _bears(labels: Mapping[str, str], marks: Marks) -> bool:
    """Whether a CustomJob with these labels bears the marks."""
    return all(labels.get(key) == value for key, value in marks.labels.items())


def _counts_for(job: Job, state: str, labels: Mapping[str, str]) -> bool:
    """Whether a CustomJob is the one of a job.

    It is not if another lab's has the name, or if it was cancelled as one of two that were created at once.
    One that ended otherwise is: that attempt has been made.
    """
    return _bears(labels, job.marks) and labels.get(VERTEX_LABEL) == job.name and state not in _TAKEN_BACK


def status(state: str, code: int, message: str) -> JobStatus:
    """Return the state of a CustomJob's job, by the name of its state and its error (code 0: none)."""
    found, reason = _STATES.get(state, (JobState.UNKNOWN, f"Vertex AI says {state}"))
    if found == JobState.SUCCEEDED:
        return JobStatus(found, exit_code=EXIT_COMPLETED)
    if found != JobState.FAILED:
        return JobStatus(found, reason)
    said = one_line(": ".join(part for part in (reason, message) if part)) or f"error {code}"
    if state == "JOB_STATE_FAILED" and _TAKEN_AWAY.search(message):
        return JobStatus(JobState.PREEMPTED, said)
    match = _EXIT_CODE.search(message)
    exit_code = exit_from_shell(int(match[1])) if match else None
    return JobStatus(found, said, exit_code)
