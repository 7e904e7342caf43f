"""Jobs as CustomJobs of Vertex AI. A handle is the CustomJob's resource name.

References:
    Spot VMs, cloud.google.com/vertex-ai/docs/training/use-spot-vms: none for TPU pods; a job whose machines
    are taken away fails with a STOCKOUT error.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from jestlab.platform.errors import UserError
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import Vertex as VertexSettings
from jestlab.platform.launch.executor import IDENTITY, ExecutorAway, ExecutorError, Job, JobState, JobStatus
from jestlab.platform.launch.executors import manifest
from jestlab.platform.launch.executors.manifest import VERTEX_LABEL, clean_line
from jestlab.platform.launch.logs import one_line
from jestlab.platform.launch.processes import EXIT_COMPLETED, exit_from_shell
from jestlab.platform.launch.wakeup import api_retries, is_temporary
from jestlab.platform.spec.resources import Resources, Slice, parse_slice

Result = TypeVar("Result")

LOGGING = "https://logging.googleapis.com"
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


class Vertex:
    """Launches jobs as CustomJobs and finds them again.

    Attributes:
        name: `vertex`.
        chips: Chips of each job.
        parallel: None: Vertex AI lets jobs wait until there is quota.
        grace_seconds: Long, since Vertex AI takes minutes to cancel a job.
    """

    name = "vertex"
    parallel: int | None = None
    grace_seconds = 300.0

    def __init__(
        self,
        settings: VertexSettings,
        slice_: Slice | None = None,
        image: str | None = None,
        *,
        spot: bool = False,
        endpoint: str | None = None,
        logging_endpoint: str = LOGGING,
        credentials: Any = None,
        answer_seconds: float = 30.0,
    ) -> None:
        """Create an executor; it sends nothing yet.

        Args:
            settings: The project.
            slice_: TPU slice of each job; None for an executor that launches nothing.
            image: Container that holds jestlab; None likewise.
            spot: Whether to use machines that may be taken away.
            endpoint: Address of Vertex AI; None for the region's.
            logging_endpoint: Address of Cloud Logging.
            credentials: Credentials to use; None for those that Google's libraries find here.
            answer_seconds: How long to wait for an answer.
        """
        self._settings = settings
        self._slice = slice_
        self._image = image
        self._spot = spot
        self._endpoint = endpoint
        self._logging_endpoint = logging_endpoint
        self._credentials = credentials
        self._timeout = answer_seconds
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.chips = slice_.chips if slice_ else 0

    @classmethod
    def of(cls, resources: Resources, settings: Settings, *, mounted: bool = True) -> Vertex:
        """Create an executor that can launch jobs.

        Args:
            resources: What each run gets.
            settings: The user's settings.
            mounted: Whether jobs find the lab in a folder; otherwise it is in a bucket.

        Raises:
            UserError: Something that it needs is not named anywhere, or Vertex AI does not offer it.
        """
        if resources.tpu is None:
            raise UserError("vertex needs a TPU slice: --set resources.tpu=v5e-16x16")
        slice_ = parse_slice(resources.tpu)
        if not slice_.type.on_vertex:
            raise UserError(f"Vertex AI does not train on {slice_}: --on kubernetes")
        if resources.spot and slice_.hosts > 1:
            raise UserError(f"Vertex AI has no spot machines for slices of several hosts, as {slice_} is")
        image = resources.image or settings.image
        if image is None:
            raise UserError(
                "vertex needs an image: say `image` in the config file, NAME@sha256:<64 hex digits>"
            )
        for key in ("project", "region", "store_secret", *(["root"] if mounted else [])):
            if getattr(settings.vertex, key) is None:
                raise UserError(f"vertex needs `vertex.{key}` in the config file")
        return cls(settings.vertex, slice_, image, spot=resources.spot)

    def has_room(self) -> bool:
        """Whether there is room; always, since Vertex AI lets jobs wait for quota."""
        return True

    def render(self, job: Job) -> dict[str, Any]:
        """Return the CustomJob that `launch` would create."""
        if self._slice is None or self._image is None:
            raise ExecutorError("this executor finds jobs and cannot launch any")
        return manifest.custom_job(job, self._slice, self._image, self._settings, spot=self._spot)

    def close(self) -> None:
        """Do nothing: nothing on this machine launches jobs."""

    def launch(self, job: Job) -> str:
        """Create the CustomJob, or find the one of that name."""
        from google.cloud.aiplatform_v1.types import CustomJob
        from google.protobuf.json_format import ParseDict

        body = CustomJob(ParseDict(self.render(job), CustomJob.pb(CustomJob())))
        parent = f"projects/{self._settings.project}/locations/{self._settings.region}"

        def create() -> str:
            client = self._client(str(self._settings.region))
            # Vertex AI takes the same name twice. So: look first, look again after, and the oldest counts.
            if not (before := self._named(client, parent, job)):
                made = client.create_custom_job(
                    parent=parent, custom_job=body, retry=None, timeout=self._timeout
                )
                before = self._named(client, parent, job) or [made]
            oldest, *others = before
            for other in others:
                self._cancel(client, other.name)
            return str(oldest.name)

        return self._call(f"{job.title} was not launched", create)

    def _named(self, client: Any, parent: str, job: Job) -> list[Any]:
        """Return the CustomJobs of a job that still count, oldest first."""
        request = {"parent": parent, "filter": f'display_name="{job.name}"'}
        found = client.list_custom_jobs(request=request, retry=None, timeout=self._timeout)
        ours = [made for made in found if _counts_for(job, made.state.name, made.labels)]
        return sorted(ours, key=lambda made: (made.create_time, made.name))

    def statuses(self, handles: Sequence[str]) -> dict[str, JobStatus]:
        """Return the states of jobs: few are asked for one by one, many by lists."""
        found: dict[str, JobStatus] = {}
        places: dict[tuple[str, str], list[str]] = defaultdict(list)
        for handle in handles:
            if match := _HANDLE.fullmatch(handle):
                places[match[1], match[3]].append(handle)
            else:
                found[handle] = JobStatus(JobState.UNKNOWN, f"{handle!r} is not a CustomJob of Vertex AI")
        for (parent, region), here in places.items():
            try:
                found |= self._statuses(parent, region, here)
            except ExecutorError as error:
                found |= {handle: JobStatus(JobState.UNKNOWN, str(error)) for handle in here}
        return found

    def _statuses(self, parent: str, region: str, handles: Sequence[str]) -> dict[str, JobStatus]:
        say = "Vertex AI does not answer"
        found: dict[str, JobStatus] = {}
        if len(handles) > _ASKED_ONE_BY_ONE:
            found = self._call(say, lambda: self._listed(self._client(region), parent, frozenset(handles)))
        for handle in handles:
            if handle not in found:
                found[handle] = self._call(say, lambda name=handle: self._one(self._client(region), name))  # type: ignore[misc]
        return found

    def _listed(self, client: Any, parent: str, handles: frozenset[str]) -> dict[str, JobStatus]:
        request = {"parent": parent, "filter": f"labels.{VERTEX_LABEL}:*", "page_size": _PAGE}
        found: dict[str, JobStatus] = {}
        for made in client.list_custom_jobs(request=request, retry=None, timeout=self._timeout):
            if made.name in handles:
                found[made.name] = _status(made)
                if len(found) == len(handles):
                    break
        return found

    def _one(self, client: Any, handle: str) -> JobStatus:
        from google.api_core.exceptions import NotFound

        try:
            return _status(client.get_custom_job(name=handle, retry=None, timeout=self._timeout))
        except NotFound:
            return JobStatus(JobState.GONE, f"there is no {handle}")

    def stop(self, handle: str, *, now: bool) -> None:
        """Cancel the CustomJob. Vertex AI has one way to do it, with little time to save."""
        region = _parts(handle)[2]
        self._call(f"{handle} may still be running", lambda: self._cancel(self._client(region), handle))

    def _cancel(self, client: Any, handle: str) -> None:
        from google.api_core.exceptions import BadRequest, NotFound

        try:
            client.cancel_custom_job(name=handle, retry=None, timeout=self._timeout)
        except NotFound:
            return
        except BadRequest:  # one that is over cannot be cancelled
            if not self._one(client, handle).state.is_over:
                raise

    def logs(self, handle: str) -> Iterator[bytes]:
        """Return what the first host has printed, as Cloud Logging has it."""
        _, project, _, number = _parts(handle)
        query = {
            "resourceNames": [f"projects/{project}"],
            "filter": f'resource.type="ml_job" AND resource.labels.job_id="{number}" '
            'AND resource.labels.task_name="workerpool0-0"',
            "orderBy": "timestamp asc",
            "pageSize": _LOG_PAGE,
        }
        first = self._log_page(handle, query)
        if not first.get("entries"):
            raise ExecutorError(f"there is no log of {handle} yet: see {_console(handle)}")
        return self._log_lines(handle, query, first)

    def _log_lines(self, handle: str, query: dict[str, Any], page: dict[str, Any]) -> Iterator[bytes]:
        while True:
            for entry in page.get("entries", ()):
                yield f"{_text(entry)}\n".encode()
            if not (token := page.get("nextPageToken")):
                return
            page = self._log_page(handle, query | {"pageToken": token})

    def _log_page(self, handle: str, query: dict[str, Any]) -> dict[str, Any]:
        from google.auth.transport.requests import AuthorizedSession

        def ask() -> dict[str, Any]:
            with AuthorizedSession(self._credentials or _default_credentials()) as session:
                answer = session.post(
                    f"{self._logging_endpoint}/v2/entries:list", json=query, timeout=self._timeout
                )
            if answer.status_code != 200:
                from google.api_core.exceptions import from_http_response

                raise from_http_response(answer)
            page: dict[str, Any] = answer.json()
            return page

        try:
            return self._call(f"the log of {handle} cannot be read", ask)
        except ExecutorError as error:
            raise type(error)(f"{error}; in the browser: {_console(handle)}") from None

    def _client(self, region: str) -> Any:
        """Return the client of a region; created once, shared by all threads."""
        from google.cloud.aiplatform_v1.services.job_service import JobServiceClient

        with self._lock:
            if region not in self._clients:
                self._clients[region] = JobServiceClient(
                    credentials=self._credentials,
                    transport="rest",
                    client_options={"api_endpoint": self._endpoint or f"{region}-aiplatform.googleapis.com"},
                )
            return self._clients[region]

    def _call(self, say: str, function: Callable[[], Result]) -> Result:
        """Call the API, retry temporary errors, and turn other ones into one line."""
        import requests
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

        def may_pass(error: BaseException) -> bool:
            if isinstance(error, GoogleAPICallError):
                return is_temporary(error.code)
            return isinstance(error, requests.RequestException | TransportError)

        try:
            return api_retries(may_pass)(function)
        except GoogleAPICallError as error:
            if error.code == 401:
                self._forget_login()
            away = error.code == 401 or is_temporary(error.code)
            raise (ExecutorAway if away else ExecutorError)(f"{say}: {_describe(error)}") from None
        except TransportError as error:
            raise ExecutorAway(f"{say}: Google Cloud cannot be reached: {clean_line(error)}") from None
        except GoogleAuthError as error:
            why = clean_line(error).rstrip(".")
            self._forget_login()
            # An expired login can be renewed while the launcher waits; one that never existed cannot.
            raise (ExecutorAway if isinstance(error, RefreshError) else ExecutorError)(
                f"{say}: no credentials of Google Cloud: {why}: gcloud auth application-default login"
            ) from None
        except requests.RequestException as error:
            raise ExecutorAway(f"{say}: Google Cloud cannot be reached: {clean_line(error)}") from None

    def _forget_login(self) -> None:
        """Let the next call read the credentials again."""
        with self._lock:
            self._clients.clear()


def _status(made: Any) -> JobStatus:
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


def _default_credentials() -> Any:
    import google.auth

    credentials, _ = google.auth.default(scopes=[_SCOPE])
    return credentials


def _describe(error: Any) -> str:
    line = clean_line(f"{error.code.value if hasattr(error.code, 'value') else error.code} {error.message}")
    if error.code == 403:
        return f"{line}: ask for the role aiplatform.user in the project"
    return line


# ---- what a CustomJob's state says


def _counts_for(job: Job, state: str, labels: Mapping[str, str]) -> bool:
    """Whether a CustomJob is the one of a job.

    It is not if another lab's has the name, or if it was cancelled as one of two that were created at once.
    One that has ended otherwise is: that attempt has been made.
    """
    ours = manifest.custom_job_labels(job)
    same = all(labels.get(key) == ours.get(key) for key in (VERTEX_LABEL, *IDENTITY))
    return same and state not in _TAKEN_BACK


def status(state: str, code: int, message: str) -> JobStatus:
    """Return the state of a CustomJob's job.

    Args:
        state: Name of its state.
        code: Of its error, as gRPC numbers them; 0 for none.
        message: Of its error.
    """
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
