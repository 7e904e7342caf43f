"""What executors of clusters share: retries, plain reasons, manifests without passwords, and calls of an API.

Anyone with access to the cluster or the project can read manifests, so they must not contain the store's URL
or other passwords.
"""

from __future__ import annotations

import functools
import re
import threading
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from jestlab.platform.dependencies import missing_client
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.concurrency import map_parallel
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
from jestlab.platform.launch.options import Intervals
from jestlab.platform.logs import one_line
from jestlab.platform.redaction import without_secrets
from jestlab.platform.spec.resources import Resources
from jestlab.platform.store.address import STORE

Result = TypeVar("Result")
Section = TypeVar("Section")

ATTEMPTS = 4
WORKER = ["python", "-m", "jestlab.platform.worker"]
LAUNCHES_NOTHING = "this executor only finds jobs that were launched before"


def retried(act: Callable[[], Result]) -> Result:
    """Call a function, which must be safe to repeat, again while its error is transient.

    The pauses are short: a launch or a poll is repeated later anyway, so a call must not hold up others.
    """
    pause = Intervals.from_environment().api_pause
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, ExecutorError) and error.transient),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential_jitter(initial=pause, jitter=pause / 2),
        reraise=True,
    )
    return retrying(act)


# ---- reasons

_NO_NODE = (
    "Insufficient|Unschedulable|no nodes available|BadConstraints|Resources$|ReqNodeNotAvail|are DOWN"
    "|is not available"
)
_MEANINGS = {
    "OUT_OF_ME|OOMKilled": "out of memory: increase `resources.memory_gb`",
    "TIMEOUT|TimeLimit|DeadlineExceeded|time limit": "time limit: see `resources.time`",
    "NODE_FAIL|BOOT_FAIL|LAUNCH_FAIL|NodeDown|DeletionByTaintManager": "a node failed",
    "Preempt": "preempted: the machines went to another job",
    "ImagePull|InvalidImageName": "can't pull the image: check `image`, and access to its registry",
    r"quota|\b(QOS|Assoc|Max)\w*Limit|QOS policy": "quota: wait until other jobs end, or request more",
    "Invalid ?(Account|QOS|Partition)": "invalid account or partition: see `sinfo` and `sacctmgr show assoc`",
    _NO_NODE: "unschedulable: no node has these resources free; wait, or lower `resources`",
    "CANCELLED": "canceled",
    "Evict": "evicted from its node",
}
"""Pattern of reasons of Slurm and Kubernetes → meaning and remedy. The first match counts."""


def explained(reason: str) -> str:
    """Return an engine's reason, followed by its meaning if it is a common one."""
    meanings = (text for pattern, text in _MEANINGS.items() if re.search(pattern, reason, re.IGNORECASE))
    return next((f"{reason} ({meaning})" for meaning in meanings), reason)


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
    check_arguments(job)
    return [
        root if root is not None and before == "--root" and "://" not in argument else argument
        for before, argument in pairwise(["", *job.arguments])
    ]


def check_arguments(job: Job) -> None:
    """Raise ExecutorError if a job's argument contains the store's URL or a password."""
    for argument in job.arguments:
        _check_public(argument, f"a worker's argument, set {STORE} instead", job)


def public_variables(job: Job) -> dict[str, str]:
    """Return a worker's variables except the store's URL, which comes from a secret.

    Raises:
        ExecutorError: Another variable contains that URL, or a password.
    """
    others = {name: value for name, value in job.environment.items() if name != STORE}
    for name, value in others.items():
        _check_public(value, f"the variable {name}, remove it", job)
    return {"PYTHONUNBUFFERED": "1", **others}


def _check_public(text: str, where: str, job: Job) -> None:
    store = job.environment.get(STORE)
    if (store and store in text) or without_secrets(text) != text:
        raise ExecutorError(f"a password or the store's URL can be read by others: it is in {where}")


# ---- calls of an API


class CloudExecutor(Executor, Generic[Section]):
    """Launches jobs through an API and finds them again. The service queues jobs.

    Attributes:
        required: Settings without which no job can be launched.
    """

    required: tuple[str, ...]

    def __init__(
        self, settings: Section, resources: Resources | None = None, *, answer_seconds: float = 30.0
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
        self._halted = False
        self.chips = resources.machines.chips if resources else 0

    @classmethod
    def create(
        cls, lab: Lab, settings: Settings, resources: Resources | None, _: Callable[[], None]
    ) -> CloudExecutor[Section]:
        """Create an executor; without resources, it launches nothing.

        Raises:
            UserError: A setting that jobs need is missing.
        """
        section = getattr(settings, cls.name)
        if resources is None:
            return cls(section)
        # The study's image goes before the user's.
        given = {"image": resources.image or settings.image}
        given |= {f"{cls.name}.{key}": getattr(section, key) for key in cls.required}
        if lab.remote is None:
            given[f"{cls.name}.root"] = section.root  # where jobs find the lab
        if missing := [key for key, value in given.items() if value is None]:
            raise UserError(f"{cls.name} needs `{'`, `'.join(missing)}` in the config file")
        return cls(section, resources.model_copy(update={"image": given["image"]}))

    def halt(self) -> None:
        """Send no further jobs. Jobs that were sent can still be stopped."""
        self._halted = True

    def render(self, job: Job) -> dict[str, Any]:
        """Return the manifest that `launch` sends."""
        if self._resources is None or self._halted:
            raise ExecutorError("the launch was stopped" if self._halted else LAUNCHES_NOTHING)
        return self._manifest(job, self._resources)

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Start several jobs, some at a time."""
        return map_parallel(functools.partial(launched_or_error, self.launch), jobs)

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of jobs, requested place by place."""
        statuses: dict[LaunchedJob, JobStatus] = {}
        places: dict[str, list[LaunchedJob]] = defaultdict(list)
        for job in jobs:
            place, _, name = job.handle.rpartition("/")
            places[place if name else job.handle].append(job)
        for there in places.values():
            try:
                statuses |= self._statuses(there)
            except ExecutorError as error:
                statuses |= dict.fromkeys(there, JobStatus(JobState.UNKNOWN, str(error)))
        return statuses

    @abstractmethod
    def _manifest(self, job: Job, resources: Resources) -> dict[str, Any]:
        """Describe a job in the API's format."""

    @abstractmethod
    def _statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of jobs whose handles differ only after the last slash.

        Raises:
            ExecutorError: The API doesn't answer, or the handles belong to another executor.
        """

    @abstractmethod
    def _translated(self, error: Exception) -> ExecutorError | None:
        """Translate an error of the API; None for any other error."""

    def _call(self, prefix: str, function: Callable[..., Result], *values: Any, **options: Any) -> Result:
        """Call the API with retries; `function` must be safe to repeat. Errors have a prefix."""

        def act() -> Result:
            try:
                return function(*values, **options)
            except Exception as error:
                if isinstance(error, ExecutorError) or (translated := self._translated(error)) is None:
                    raise
                raise translated from None

        try:
            if (missing := missing_client(self.name)) is not None:
                raise ExecutorError(missing)
            return retried(act)
        except ExecutorError as error:
            raise type(error)(f"{prefix}: {error}") from None

    def _forget_login(self) -> None:
        """Read the credentials again for the next call."""
        with self._lock:
            self._clients.clear()


def http_error(status: int | None, message: str) -> ExecutorError:
    """Translate an HTTP error; None as the status means no answer."""
    if status is None or status in (401, 408, 429) or status >= 500:  # 401: the login may be renewed
        return ExecutorUnavailable(message, transient=True)
    return ExecutorError(message)
