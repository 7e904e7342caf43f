"""Helpers for remote executors: retries, explained reasons, manifests without passwords, and API calls.

Anyone with access to the cluster or project can read a job's manifest, so it must not contain the store's URL
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

from jestlab.platform import dependencies
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
    """Call a function, and repeat the call after transient errors. It must be safe to repeat.

    The pauses are short, so that a failing call doesn't delay other jobs; the launcher repeats it later.
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
"""Pattern of a reason that Slurm or Kubernetes gives → its meaning and remedy. The first match counts."""


def explained(reason: str) -> str:
    """Return a reason of Slurm or Kubernetes, followed by its meaning and remedy if it is a common one."""
    meanings = (text for pattern, text in _MEANINGS.items() if re.search(pattern, reason, re.IGNORECASE))
    return next((f"{reason} ({meaning})" for meaning in meanings), reason)


def clean_line(error: object) -> str:
    """Return the message of an error on one line, without credentials."""
    return one_line(without_secrets(str(error)))


# ---- manifests


def arguments_at(root: str | None, job: Job) -> list[str]:
    """Return a worker's arguments with `--root` replaced by the path of the lab in its container.

    Args:
        root: That path; None to change nothing. A lab in a bucket isn't replaced.
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
    """Raise ExecutorError if an argument of a job contains the store's URL or a password."""
    for argument in job.arguments:
        _check_public(argument, f"a worker's argument, set {STORE} instead", job)


def public_variables(job: Job) -> dict[str, str]:
    """Return a worker's variables without the store's URL, which the worker gets from a secret.

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
    """Base class for executors that launch jobs through the API of a service, which queues them.

    Attributes:
        required: Names of the settings that are required to launch jobs.
        answer_seconds: Timeout of each request.
    """

    required: tuple[str, ...]
    answer_seconds = 30.0

    def __init__(self, settings: Section, resources: Resources | None = None) -> None:
        """Create an executor, without sending requests.

        Args:
            settings: The user's settings for this executor.
            resources: Resources of each job, with an image; None if no jobs will be launched.
        """
        self._settings = settings
        self._resources = resources
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._halted = False
        self.chips = resources.machines.chips if resources else 0

    @classmethod
    def create(
        cls, lab: Lab, settings: Settings, resources: Resources | None, _: Callable[[], None]
    ) -> CloudExecutor[Section]:
        """Create an executor from the settings; with `resources=None`, it can't launch jobs.

        Raises:
            UserError: A setting that is required to launch jobs is missing.
        """
        section = getattr(settings, cls.name)
        if resources is None:
            return cls(section)
        # The study's image takes precedence over the user's.
        given = {"image": resources.image or settings.image}
        given |= {f"{cls.name}.{key}": getattr(section, key) for key in cls.required}
        if lab.remote is None:
            given[f"{cls.name}.root"] = section.root  # where jobs find the lab
        if missing := [key for key, value in given.items() if value is None]:
            raise UserError(f"{cls.name} needs `{'`, `'.join(missing)}` in the config file")
        return cls(section, resources.model_copy(update={"image": given["image"]}))

    def halt(self) -> None:
        """Refuse to launch further jobs. Launched jobs can still be stopped."""
        self._halted = True

    def render(self, job: Job) -> dict[str, Any]:
        """Return the manifest that `launch` sends to the API."""
        if self._resources is None or self._halted:
            raise ExecutorError("the launch was stopped" if self._halted else LAUNCHES_NOTHING)
        return self._manifest(job, self._resources)

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Start several jobs, a few concurrently."""
        return map_parallel(functools.partial(launched_or_error, self.launch), jobs)

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the status of each job. Jobs with the same handle up to the last slash share requests."""
        statuses: dict[LaunchedJob, JobStatus] = {}
        groups: dict[str, list[LaunchedJob]] = defaultdict(list)
        for job in jobs:
            parent, _, name = job.handle.rpartition("/")
            groups[parent if name else job.handle].append(job)
        for group in groups.values():
            try:
                statuses |= self._statuses(group)
            except ExecutorError as error:
                statuses |= dict.fromkeys(group, JobStatus(JobState.UNKNOWN, str(error)))
        return statuses

    @abstractmethod
    def _manifest(self, job: Job, resources: Resources) -> dict[str, Any]:
        """Return a job's manifest in the API's format."""

    @abstractmethod
    def _statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of jobs whose handles differ only after the last slash.

        Raises:
            ExecutorError: The API doesn't answer, or the handles are those of another executor.
        """

    @abstractmethod
    def _translated(self, error: Exception) -> ExecutorError | None:
        """Convert an error of the API to an ExecutorError; return None for any other error."""

    def _call(self, prefix: str, function: Callable[..., Result], *values: Any, **options: Any) -> Result:
        """Call a function of the API, which must be safe to repeat, with retries; prefix its errors."""

        def act() -> Result:
            try:
                return function(*values, **options)
            except Exception as error:
                if isinstance(error, ExecutorError) or (translated := self._translated(error)) is None:
                    raise
                raise translated from None

        try:
            if (missing := dependencies.missing(self.name)) is not None:
                raise ExecutorError(missing)
            return retried(act)
        except ExecutorError as error:
            raise type(error)(f"{prefix}: {error}") from None

    def _forget_login(self) -> None:
        """Discard all clients, so that the next call reads the credentials again."""
        with self._lock:
            self._clients.clear()


def http_error(status: int | None, message: str) -> ExecutorError:
    """Return the ExecutorError for an HTTP status; a status of None means that there was no answer."""
    if status is None or status in (401, 408, 429) or status >= 500:  # 401: the user may log in again
        return ExecutorUnavailable(message, transient=True)
    return ExecutorError(message)
