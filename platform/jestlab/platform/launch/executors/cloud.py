"""Base of the executors for Kubernetes and Vertex AI: calls of an API that may fail, and manifests.

Anyone with access to the cluster or the project can read manifests, so they must not contain the store's URL
or other passwords.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

from jestlab.platform.dependencies import missing_client
from jestlab.platform.errors import UserError
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.concurrency import each
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    ExecutorUnavailable,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
    launched_or_error,
)
from jestlab.platform.launch.executors.retry import Transient, retried, retry_after
from jestlab.platform.logs import one_line
from jestlab.platform.redaction import without_secrets
from jestlab.platform.spec.resources import Resources
from jestlab.platform.store.address import STORE

Result = TypeVar("Result")
Section = TypeVar("Section")

Place = tuple[str, str]
"""Where a job is: context and namespace of a cluster, or project with location, and region."""

WORKER = ["python", "-m", "jestlab.platform.worker"]
LAUNCHES_NOTHING = "this executor only finds jobs that were launched before"


class CloudExecutor(Executor, Generic[Section]):
    """Launches jobs through an API and finds them again. The service queues jobs.

    Attributes:
        chips: Chips of each job.
    """

    def __init__(
        self,
        settings: Section,
        resources: Resources | None = None,
        *,
        answer_seconds: float = 30.0,
    ) -> None:
        """Create an executor; it sends no requests yet.

        Args:
            settings: The user's settings for this executor.
            resources: Resources of each job, with an image; None for an executor that launches nothing.
            answer_seconds: Timeout of each request.
        """
        self._settings = settings
        self._resources = resources
        self._answer_seconds = answer_seconds
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._halted = threading.Event()
        self.chips = resources.machines.chips if resources else 0

    @classmethod
    def _with_image(cls, resources: Resources, settings: Settings) -> Resources:
        """Return resources with the user's image, unless the study has one."""
        image = resources.image or settings.image
        if image is None:
            raise UserError(
                f"{cls.name} needs an image: set `image` in the config file, NAME@sha256:<64 hex digits>"
            )
        return resources.model_copy(update={"image": image})

    def halt(self) -> None:
        """Send no further jobs. Jobs that were sent can still be stopped."""
        self._halted.set()

    def render(self, job: Job) -> dict[str, Any]:
        """Return the manifest that `launch` would send."""
        if self._resources is None:
            raise ExecutorError(LAUNCHES_NOTHING)
        return self._manifest(job, self._resources)

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Start several jobs, some at a time."""

        def launch(job: Job) -> LaunchedJob:
            if self._halted.is_set():
                raise ExecutorError("the launch was stopped")
            return self.launch(job)

        return each(lambda job: launched_or_error(launch, job), jobs)

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of jobs, requested place by place."""
        statuses: dict[LaunchedJob, JobStatus] = {}
        places: dict[Place, list[LaunchedJob]] = defaultdict(list)
        for job in jobs:
            try:
                places[self._place(job.handle)].append(job)
            except ExecutorError as error:
                statuses[job] = JobStatus(JobState.UNKNOWN, str(error))
        for place, there in places.items():
            try:
                statuses |= self._statuses(place, there)
            except ExecutorError as error:
                statuses |= dict.fromkeys(there, JobStatus(JobState.UNKNOWN, str(error)))
        return statuses

    @abstractmethod
    def _manifest(self, job: Job, resources: Resources) -> dict[str, Any]:
        """Describe a job in the API's format."""

    @abstractmethod
    def _place(self, handle: str) -> Place:
        """Return where a job is; raise ExecutorError if the handle belongs to another executor."""

    @abstractmethod
    def _statuses(self, place: Place, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of the jobs in one place."""

    @abstractmethod
    def _translated(self, error: Exception) -> Exception:
        """Return the `Transient` or ExecutorError for an error of the API; any other error itself."""

    def _call(self, prefix: str, function: Callable[..., Result], *values: Any, **options: Any) -> Result:
        """Call the API with retries; `function` must be safe to repeat. Errors have a prefix."""
        if (missing := missing_client(self.name)) is not None:
            raise ExecutorError(missing)

        def act() -> Result:
            try:
                return function(*values, **options)
            except ExecutorError:
                raise
            except Exception as error:
                translated = self._translated(error)
                if translated is error:
                    raise
                raise translated from None

        try:
            return retried(act, self._halted)
        except ExecutorError as error:
            raise type(error)(f"{prefix}: {error}") from None

    def _forget_login(self) -> None:
        """Read the credentials again for the next call."""
        with self._lock:
            self._clients.clear()


def http_error(status: int | None, message: str, headers: Mapping[str, str] | None = None) -> Exception:
    """Translate an HTTP error; None as the status means no answer. Some errors may pass within seconds."""
    if status is None or status in (401, 408, 429) or status >= 500:  # 401: the login may be renewed
        return Transient(ExecutorUnavailable(message), retry_after(headers))
    return ExecutorError(message)


def clean_line(error: object) -> str:
    """Return an error on one line, without credentials."""
    return one_line(without_secrets(str(error)))


# ---- manifests


def arguments_at(root: str | None, job: Job) -> list[str]:
    """Return a worker's arguments with the lab's root as its container sees it.

    Args:
        root: The lab's folder there; None to keep the arguments. Addresses in buckets don't change.
        job: The job, with arguments for this machine.

    Raises:
        ExecutorError: An argument contains the store's URL or a password.
    """
    check_arguments(job, "manifests can be read by others")
    return [
        root if root is not None and before == "--root" and "://" not in argument else argument
        for before, argument in pairwise(["", *job.arguments])
    ]


def check_arguments(job: Job, because: str) -> None:
    """Raise ExecutorError if a job's argument contains the store's URL or a password."""
    for argument in job.arguments:
        if _is_secret(argument, job):
            raise ExecutorError(
                f"a worker's argument contains the store's URL or a password, and {because}: "
                f"set {STORE} instead"
            )


def public_variables(job: Job) -> dict[str, str]:
    """Return a worker's variables except the store's URL, which comes from a secret.

    Raises:
        ExecutorError: Another variable contains that URL, or a password.
    """
    others = {name: value for name, value in job.environment.items() if name != STORE}
    for name, value in others.items():
        if _is_secret(value, job):
            raise ExecutorError(
                f"the variable {name} contains a password, and manifests can be read by others: remove it"
            )
    return {"PYTHONUNBUFFERED": "1", **others}


def _is_secret(text: str, job: Job) -> bool:
    store = job.environment.get(STORE)
    return bool(store and store in text) or without_secrets(text) != text
