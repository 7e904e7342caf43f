"""What the executors of clusters and clouds share: manifests, and calls of an API that may fail."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from jestlab.platform.dependencies import missing_client
from jestlab.platform.errors import UserError
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.concurrency import AT_A_TIME, each
from jestlab.platform.launch.executor import (
    Executor,
    ExecutorAway,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
    launched_or_error,
)
from jestlab.platform.launch.executors.rate import Rate, retry_after
from jestlab.platform.launch.options import Intervals
from jestlab.platform.spec.resources import Nodes, Resources, Slice, parse_slice

Result = TypeVar("Result")
Section = TypeVar("Section")
_REFUSALS = 4
"""How often one call is put off because the API says that there are too many, before that is an error."""

Place = tuple[str, str]
"""Where a job is: context and namespace of a cluster, or project with location, and region."""


class Cloud(Executor, Generic[Section]):
    """Launches jobs elsewhere and finds them again. The cloud lets jobs wait: there is always room.

    Attributes:
        chips: Chips of each job.
        per_second: Calls a second, of all threads together.
    """

    per_second: float = 20.0

    def __init__(
        self,
        settings: Section,
        machines: Slice | Nodes | None = None,
        image: str | None = None,
        *,
        spot: bool = False,
        answer_seconds: float = 30.0,
    ) -> None:
        """Create an executor; it sends nothing yet.

        Args:
            settings: The user's section of the settings for this executor.
            machines: What each job occupies; None, as `image`, for an executor that launches nothing.
            image: Container that holds jestlab.
            spot: Whether to use machines that may be taken away.
            answer_seconds: How long to wait for an answer.
        """
        self._settings = settings
        self._machines = machines
        self._image = image
        self._spot = spot
        self._answer_seconds = answer_seconds
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._rate = Rate(self.per_second, AT_A_TIME)
        self.chips = machines.chips if machines else 0

    @classmethod
    def _slice_of(cls, resources: Resources) -> Slice:
        if resources.tpu is None:
            raise UserError(f"{cls.name} needs a TPU slice: --set resources.tpu=v5e-16x16")
        return parse_slice(resources.tpu)

    @classmethod
    def _image_of(cls, resources: Resources, settings: Settings) -> str:
        image = resources.image or settings.image
        if image is None:
            raise UserError(
                f"{cls.name} needs an image: say `image` in the config file, NAME@sha256:<64 hex digits>"
            )
        return image

    def halt(self) -> None:
        """Send no further job; what has been sent is stopped there."""
        self._rate.halt()

    def render(self, job: Job) -> dict[str, Any]:
        """Return the manifest that `launch` would send."""
        if self._machines is None or self._image is None:
            raise ExecutorError("this executor finds jobs and cannot launch any")
        return self._manifest(job, self._machines, self._image)

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Start several jobs, so many requests at a time, and at most `per_second`."""

        def launch(job: Job) -> LaunchedJob:
            if self._rate.halted:
                raise ExecutorError("the launch was stopped")
            return self.launch(job)

        return each(lambda job: launched_or_error(launch, job), jobs)

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the states of jobs, asked for place by place."""
        found: dict[LaunchedJob, JobStatus] = {}
        places: dict[Place, list[LaunchedJob]] = defaultdict(list)
        for job in jobs:
            try:
                places[self._place(job.handle)].append(job)
            except ExecutorError as error:
                found[job] = JobStatus(JobState.UNKNOWN, str(error))
        for place, here in places.items():
            try:
                found |= self._statuses(place, here)
            except ExecutorError as error:
                found |= dict.fromkeys(here, JobStatus(JobState.UNKNOWN, str(error)))
        return found

    @abstractmethod
    def _manifest(self, job: Job, machines: Slice | Nodes, image: str) -> dict[str, Any]:
        """Describe a job as the API takes it."""

    @abstractmethod
    def _place(self, handle: str) -> Place:
        """Return where a job is; raise ExecutorError if the handle is another executor's."""

    @abstractmethod
    def _statuses(self, place: Place, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the states of the jobs of one place."""

    @abstractmethod
    def _meaning(self, error: BaseException) -> ExecutorError | None:
        """Return an error of the API in one line; None for a bug of ours. A login that failed is forgotten.

        An `ExecutorAway` may pass: too many requests, the server's fault, no answer, or an expired login,
        which can be renewed while the launcher waits.
        """

    @abstractmethod
    def _too_many(self, error: BaseException) -> Mapping[str, str] | None:
        """Return the headers of an answer that says 429, too many requests; None for any other error."""

    def _call(self, say: str, function: Callable[..., Result], *values: Any, **options: Any) -> Result:
        """Call the API, which must be safe to repeat; an error that stays becomes one line.

        Three attempts, because a launch or a poll is repeated later anyway: one call must not hold up others
        for long. Where the API says that there are too many, all threads wait for as long as it asks.
        """
        if (missing := missing_client(self.name)) is not None:
            raise ExecutorError(missing)

        def paced() -> Result:
            for _ in range(_REFUSALS):
                self._rate.take()
                try:
                    return function(*values, **options)
                except Exception as error:
                    if (headers := self._too_many(error)) is None or self._rate.halted:
                        raise
                    asked = retry_after(headers, time.time())
                    self._rate.pause(Intervals.from_environment().api_pause if asked is None else asked)
                    refused = error
            raise refused

        retrying = three_attempts(
            lambda error: self._too_many(error) is None and isinstance(self._meaning(error), ExecutorAway)
        )
        try:
            return retrying(paced)
        except Exception as error:
            if (meaning := self._meaning(error)) is None:
                raise
            raise type(meaning)(f"{say}: {meaning}") from None

    def _forget_login(self) -> None:
        """Let the next call read the credentials again."""
        with self._lock:
            self._clients.clear()


def three_attempts(passes: Callable[[BaseException], bool]) -> Retrying:
    """Return what calls a function up to three times, while its errors are such that pass.

    Three, because a launch or a poll is repeated later anyway: one call must not hold up others for long.
    """
    return Retrying(
        retry=retry_if_exception(passes),
        stop=stop_after_attempt(3),
        wait=wait_exponential(multiplier=Intervals.from_environment().api_pause, exp_base=4),
        reraise=True,
    )


def http_error(status: int | None, words: str) -> ExecutorError:
    """Return the error of an HTTP status: `ExecutorAway` if the same request may succeed later."""
    passes = status is None or status in (401, 408, 429) or status >= 500
    return ExecutorAway(words) if passes else ExecutorError(words)
