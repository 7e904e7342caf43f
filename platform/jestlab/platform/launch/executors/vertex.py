"""Jobs as CustomJobs of Vertex AI. A handle is the CustomJob's resource name.

References:
    The CustomJob API: cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs.
    TPUs: cloud.google.com/vertex-ai/docs/training/configure-compute. One replica is a whole slice.
    Spot VMs: cloud.google.com/vertex-ai/docs/training/use-spot-vms. Slices of several hosts have none; a job
    whose machines are preempted fails with a STOCKOUT error.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from jestlab.platform.lab.secret import STORE_SECRET
from jestlab.platform.lab.settings import Vertex as VertexSettings
from jestlab.platform.launch.concurrency import MAX_CONCURRENT
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

ENDPOINT = "https://{}-aiplatform.googleapis.com"  # of a region
LOGGING = "https://logging.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_CONSOLE = "https://console.cloud.google.com"
_HANDLE = re.compile(r"(projects/([^/]+)/locations/([^/]+))/customJobs/([^/]+)")
_MOST_SINGLE_REQUESTS = 8  # above, list all of jestlab's CustomJobs
_PAGE = 100
_LOG_PAGE = 1000

Answer = dict[str, Any]
"""An object of the REST API."""

_MEANINGS = {
    JobState.QUEUED: "QUEUED PENDING PAUSED",
    JobState.RUNNING: "RUNNING UPDATING CANCELLING",
    JobState.SUCCEEDED: "SUCCEEDED",
    JobState.FAILED: "FAILED PARTIALLY_SUCCEEDED CANCELLED EXPIRED",
}
_STATES = {f"JOB_STATE_{name}": state for state, names in _MEANINGS.items() for name in names.split()}
_UNREMARKABLE = frozenset({"JOB_STATE_QUEUED", "JOB_STATE_RUNNING", "JOB_STATE_FAILED"})
_WITHDRAWN = frozenset({"JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED"})
_TAKEN_AWAY = re.compile(r"stockout|preempt", re.IGNORECASE)
_EXIT_CODE = re.compile(r"non-zero status of (\d+)")


class VertexExecutor(CloudExecutor[VertexSettings]):
    """Launches jobs as CustomJobs, which Vertex AI queues until there is quota.

    Attributes:
        grace_seconds: Long, since Vertex AI takes minutes to cancel a job.
    """

    name = "vertex"
    grace_seconds = 300.0
    required = ("project", "region", "store_secret")

    def _manifest(self, job: Job, resources: Resources) -> dict[str, Any]:
        return custom_job(job, resources, self._settings)

    def check(self) -> None:
        """Raise UserError without credentials, or if this user can't use the project or the region."""
        jobs = f"projects/{self._settings.project}/locations/{self._settings.region}/customJobs"
        self._call("vertex can't launch jobs", self._vertex, "GET", jobs, params={"pageSize": 1})

    def launch(self, job: Job) -> LaunchedJob:
        """Create a CustomJob, or find the existing one with the job's name and key."""
        body = self.render(job)
        parent = f"projects/{self._settings.project}/locations/{self._settings.region}"

        def create() -> str:
            # Names of CustomJobs aren't unique. So list them before and after: keep the oldest one.
            if not (before := self._named(parent, job)):
                made = self._vertex("POST", f"{parent}/customJobs", json=body)
                before = self._named(parent, job) or [made]
            oldest, *others = before
            for other in others:
                self._cancel(other["name"])
            return str(oldest["name"])

        return LaunchedJob(self._call("not launched", create), job.key)

    def _named(self, parent: str, job: Job) -> list[Answer]:
        """Return the CustomJobs of a job that aren't canceled, oldest first; launchers may create several."""
        ours = [
            made
            for made in self._list(parent, f'display_name="{job.name}"')
            if _has_key(made, job.key) and made["state"] not in _WITHDRAWN
        ]
        return sorted(ours, key=lambda made: (made["createTime"], made["name"]))

    def _statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Request a few jobs individually, but many jobs as a list."""
        parent, *_ = _parts(jobs[0].handle)
        return self._call("Vertex AI does not answer", self._found, parent, jobs)

    def _found(self, parent: str, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        statuses: dict[LaunchedJob, JobStatus] = {}
        if len(jobs) > _MOST_SINGLE_REQUESTS:
            wanted = {job.handle: job for job in jobs}
            listed = self._list(parent, f"labels.{NAME_LABEL}:*")
            ours = ((wanted[made["name"]], made) for made in listed if made["name"] in wanted)
            statuses = {job: _status_of(job, made) for job, made in islice(ours, len(wanted))}
        return statuses | {job: self._one(job) for job in jobs if job not in statuses}

    def _one(self, job: LaunchedJob) -> JobStatus:
        return _status_of(job, self._vertex("GET", job.handle, accept=404))

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Cancel the CustomJob, whether `now` or not: Vertex AI always leaves little time to save."""
        _parts(job.handle)
        prefix = f"{job.handle} may still be running"
        if not self._call(prefix, self._one, job).state.is_over:
            self._call(prefix, self._cancel, job.handle)

    def _cancel(self, handle: str) -> None:
        try:
            self._vertex("POST", f"{handle}:cancel", accept=404)
        except ExecutorError:  # a CustomJob that has ended can't be canceled
            made = self._vertex("GET", handle, accept=404)
            if made and not status(made).state.is_over:
                raise

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return the output so far of the first host, from Cloud Logging."""
        _, project, region, number = _parts(job.handle)
        prefix = f"the log of {job.handle} can't be read"
        query = {
            "resourceNames": [f"projects/{project}"],
            "filter": f'resource.type="ml_job" AND resource.labels.job_id="{number}" '
            'AND resource.labels.task_name="workerpool0-0"',
            "orderBy": "timestamp asc",
            "pageSize": _LOG_PAGE,
        }
        try:
            if (seen := self._call(prefix, self._one, job)).state == JobState.GONE:
                raise ExecutorError(f"no log: {seen.reason}")
            request = functools.partial(self._call, prefix, self._request, "POST")
            url = f"{LOGGING}/v2/entries:list"
            entries = _items(lambda page: request(url, json=query | page), "entries")
            if (first := next(entries, None)) is None:
                raise ExecutorError(f"no log of {job.handle} yet")
        except ExecutorError as error:
            page = f"{_CONSOLE}/ai/platform/locations/{region}/training/{number}?project={project}"
            raise type(error)(f"{error}; in the browser: {page}") from None
        return map(_line, chain([first], entries))

    # ---- requests

    def _list(self, parent: str, which: str) -> Iterator[Answer]:
        query = {"filter": which, "pageSize": _PAGE}
        url = f"{parent}/customJobs"
        return _items(lambda page: self._vertex("GET", url, params=query | page), "customJobs")

    def _vertex(self, method: str, name: str, **options: Any) -> Answer:
        """Send one request about a resource to its region, which its name contains."""
        return self._request(method, f"{ENDPOINT.format(name.split('/')[3])}/v1/{name}", **options)

    def _request(self, method: str, url: str, *, accept: int | None = None, **options: Any) -> Answer:
        """Send one request and return the answer, or an empty dict if its status is `accept`."""
        import google.auth
        from google.auth.transport.requests import AuthorizedSession
        from requests.adapters import HTTPAdapter

        with self._lock:
            if (session := self._clients.get("session")) is None:
                credentials, _ = google.auth.default(scopes=[_SCOPE])
                session = self._clients["session"] = AuthorizedSession(credentials)
                session.mount("https://", HTTPAdapter(pool_maxsize=MAX_CONCURRENT))
        answer = session.request(method, url, timeout=self.answer_seconds, **options)
        if answer.status_code == accept:
            return {}
        if not answer.ok:
            if answer.status_code == 401:
                self._forget_login()
            raise http_error(answer.status_code, _describe(answer))
        content: Answer = answer.json()
        return content

    def _translated(self, error: Exception) -> ExecutorError | None:
        from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError
        from requests import RequestException

        if isinstance(error, TransportError | RequestException):
            return http_error(None, f"Google Cloud can't be reached: {clean_line(error)}")
        if isinstance(error, GoogleAuthError):
            self._forget_login()
            reason = clean_line(error).rstrip(".")
            message = f"can't authenticate with Google Cloud: {reason}: gcloud auth application-default login"
            # An expired login can be renewed while the launcher waits; missing credentials can't.
            return http_error(401, message) if isinstance(error, RefreshError) else ExecutorError(message)
        return None


# ---- the manifest


def custom_job(job: Job, resources: Resources, settings: VertexSettings) -> dict[str, Any]:
    """Return the CustomJob of a job for the REST API.

    `resources` must have a TPU slice and an image; `settings` must have a `store_secret` and, unless the lab
    is in a bucket, a `root`.

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
    spec: dict[str, Any] = {
        "workerPoolSpecs": [pool],
        # The launcher starts and counts further attempts. Vertex AI would restart jobs without counting.
        "scheduling": {"disableRetries": True, "strategy": "SPOT" if resources.spot else "STANDARD"},
    }
    if settings.service_account:
        spec["serviceAccount"] = settings.service_account
    if settings.network:
        spec["network"] = settings.network
    ours = {_label(key).lstrip("-_0123456789"): _label(value) for key, value in job.labels.items()}
    labels = {key: value for key, value in ours.items() if key} | job.key.labels | {NAME_LABEL: job.name}
    return {"displayName": job.name, "labels": labels, "jobSpec": spec}


def _label(text: str) -> str:
    """Convert a text to a label of Google Cloud: lower-case letters, digits, `-`, and `_`."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


# ---- answers


def status(made: Answer) -> JobStatus:
    """Return the status of a CustomJob's job."""
    name, message = made.get("state", ""), made.get("error", {}).get("message", "")
    state = _STATES.get(name, JobState.UNKNOWN)
    if state == JobState.SUCCEEDED:
        return JobStatus(state, exit_code=EXIT_COMPLETED)
    reason = "" if name in _UNREMARKABLE else name
    if state != JobState.FAILED:
        return JobStatus(state, reason)
    text = (
        one_line(": ".join(part for part in (reason, message) if part)) or "failed without an error message"
    )
    if name == "JOB_STATE_FAILED" and _TAKEN_AWAY.search(message):
        return JobStatus(JobState.PREEMPTED, text)
    match = _EXIT_CODE.search(message)
    return JobStatus(state, text, exit_from_shell(int(match[1])) if match else None)


def _status_of(job: LaunchedJob, made: Answer) -> JobStatus:
    if not made:
        return JobStatus(JobState.GONE, f"{job.handle} not found")
    if not _has_key(made, job.key):
        return JobStatus(JobState.GONE, f"{job.handle} belongs to another attempt")
    return status(made)


def _has_key(made: Answer, key: JobKey) -> bool:
    labels: dict[str, str] = made.get("labels", {})
    return key.labels.items() <= labels.items()


def _items(request: Callable[[dict[str, str]], Answer], key: str) -> Iterator[Any]:
    """Yield the items of all pages. `request` takes `{"pageToken": token}`, or `{}` for the first page."""
    token: str | None = ""
    while token is not None:
        page = request({"pageToken": token} if token else {})
        yield from page.get(key, ())
        token = page.get("nextPageToken") or None


def _line(entry: Answer) -> bytes:
    payload = entry.get("jsonPayload", {})  # printed lines have a textPayload instead
    text = entry.get("textPayload", payload.get("message", payload))
    return str(text).rstrip("\n").encode() + b"\n"


def _parts(handle: str) -> tuple[str, str, str, str]:
    """Return parent, project, region, and number of a CustomJob from its handle."""
    match = _HANDLE.fullmatch(handle)
    if match is None:
        raise ExecutorError(
            f"{handle!r} is not a handle of vertex: expected projects/…/locations/…/customJobs/…"
        )
    parent, project, region, number = match.groups()
    return parent, project, region, number


def _describe(answer: Any) -> str:
    try:
        message = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.text or answer.reason
    line = clean_line(f"{answer.status_code} {message}")
    return f"{line}: ask for the role aiplatform.user in the project" if answer.status_code == 403 else line
