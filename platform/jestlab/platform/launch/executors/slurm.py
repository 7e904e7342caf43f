"""Jobs on a Slurm cluster: batch jobs and arrays, launched and found with Slurm's command-line tools.

A handle is `CLUSTER:ID:BATCH.NUMBER:LOG`: Slurm's id of the job, its task (see `slurm_batch`), and its log in
the lab, whose folder all machines share. The job's comment contains the batch. An id alone is never trusted:
Slurm reuses ids, and two clusters have the same ones.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jestlab.platform import logs
from jestlab.platform.errors import UserError, sentence
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executors import slurm_tools
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    ExecutorUnavailable,
    Job,
    JobKey,
    JobState,
    JobStatus,
    LaunchedJob,
    ended,
)
from jestlab.platform.launch.executors.environment import passed_on, worker_environment
from jestlab.platform.launch.executors.remote import LAUNCHES_NOTHING, check_arguments, retried
from jestlab.platform.launch.executors.slurm_batch import (
    Batches,
    Task,
    batch_of,
    sbatch_options,
    script,
    script_by_hand,
)
from jestlab.platform.launch.executors.slurm_tools import QueueRow
from jestlab.platform.processes import exit_from_shell
from jestlab.platform.spec.resources import Resources, SlurmOptions

COMMENT = "jestlab "
"""Prefix of a job's comment, before the name of its batch."""

_NOT_PASSED_ON = (logs.COPIED, "JESTLAB_ROOT", "JESTLAB_CONFIG", "JESTLAB_STORE", "JESTLAB_STORE_SECRET")
"""Variables of the launcher that its jobs don't get."""
_NO_SUCH_JOB = "invalid job id|job/step already completing or completed|already finished"

Queue = Mapping[Task, QueueRow]
"""The user's jobs that Slurm remembers."""


class _OtherAttempt(ExecutorError):
    """A handle's job has another key."""


class _Handle(NamedTuple):
    """Parts of a handle."""

    cluster: str
    id: str
    task: Task
    log: str

    def __str__(self) -> str:
        return ":".join(map(str, self))


class SlurmExecutor(Executor):
    """Launches jobs with Slurm and finds them again.

    Attributes:
        grace_seconds: Longer than Slurm's own wait before it kills.
    """

    name = "slurm"
    shares_folders = True
    grace_seconds = 90.0

    def __init__(
        self,
        lab: Lab,
        resources: Resources | None = None,
        options: SlurmOptions | None = None,
        *,
        answer_seconds: float = 60.0,
    ) -> None:
        """Create an executor; it runs no command yet.

        Args:
            lab: Lab in a folder that the nodes see under the same path.
            resources: Resources of each job; None for an executor that launches nothing.
            options: Options of the site.
            answer_seconds: Timeout of each of Slurm's commands.
        """
        self._lab = lab
        self._resources = resources
        self._options = options or SlurmOptions()
        self._run: Callable[..., str] = functools.partial(slurm_tools.run, answer_seconds=answer_seconds)
        self._batches = Batches(lab)
        self.chips = resources.machines.chips if resources else 0

    @classmethod
    def create(
        cls, lab: Lab, settings: Settings, resources: Resources | None, _: Callable[[], None]
    ) -> SlurmExecutor:
        """Create an executor; without resources, it launches nothing.

        Raises:
            UserError: The lab is not in a folder.
        """
        if resources is None:
            return cls(lab)
        if lab.remote is not None:
            raise UserError(f"slurm needs a lab in a shared folder, not at {lab.remote}: --root DIR")
        return cls(lab, resources, resources.slurm.laid_over(settings.slurm))

    # ---- launching

    def launch(self, job: Job) -> LaunchedJob:
        """Submit a job, or find the one with that name."""
        [launched] = self.launch_all([job])
        if isinstance(launched, ExecutorError):
            raise launched
        return launched

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Submit several jobs as arrays, or find those whose names were launched before."""
        answers: dict[JobKey, LaunchedJob | ExecutorError] = {}
        try:
            resources = self._launching()
            for job in jobs:
                check_arguments(job)
            answers |= self._launched_before(jobs)
            new = [job for job in jobs if job.key not in answers]
            limits = {"MaxArraySize": "1001", "MaxJobCount": "10000"} | self._config
            most = max(min(int(limits["MaxArraySize"]), int(limits["MaxJobCount"])) - 1, 1)
            for start in range(0, len(new), most):
                answers |= self._submit(new[start : start + most], resources)
        except ExecutorError as error:
            for job in jobs:
                answers.setdefault(job.key, type(error)(f"{job.title} was not launched: {error}"))
        return [answers[job.key] for job in jobs]

    def _launching(self) -> Resources:
        """Return the resources of each job; raise ExecutorError if this object launches nothing."""
        if self._resources is None:
            raise ExecutorError(LAUNCHES_NOTHING)
        return self._resources

    def _launched_before(self, jobs: Sequence[Job]) -> dict[JobKey, LaunchedJob]:
        """Find jobs that were submitted before, by the batches with their names."""
        tasks = [(job, task) for job in jobs if (task := self._batches.find(job)) is not None]
        queue = self._queue() if tasks else {}
        launched: dict[JobKey, LaunchedJob] = {}
        for job, task in tasks:
            if (end := self._batches.end(task)) is not None:
                launched[job.key] = self._launched(job, end[1], task)
            elif task in queue:
                launched[job.key] = self._launched(job, queue[task].id, task)
        return launched

    def _submit(self, jobs: Sequence[Job], resources: Resources) -> dict[JobKey, LaunchedJob]:
        """Submit jobs together. If the answer is lost, look for them before submitting them again."""
        inherited = {**passed_on(), **worker_environment(resources.threads, self._lab)}
        inherited = {name: value for name, value in inherited.items() if name not in _NOT_PASSED_ON}
        batch = self._batches.write([_uncopied(job, inherited) for job in jobs])
        folder = self._batches.folder(batch)
        several = len(jobs) > 1
        name = f"jestlab-{jobs[0].key.store[:6]}-{batch[:8]}" if several else jobs[0].name
        options = sbatch_options(name, f"{COMMENT}{batch}", folder, len(jobs), resources, self._options)
        text = script(folder, self._lab.root, resources, self._options)
        tried = False

        def submit() -> str:
            nonlocal tried
            try:
                if tried and (row := self._queue(given="").get(Task(batch, 0))):
                    return row.id
                tried = True
                return self._run("sbatch", "--parsable", *options, given=text)
            except ExecutorUnavailable as error:
                error.transient = True
                raise

        try:
            [id_] = re.findall(r"^\d+", retried(submit))
        except ExecutorError:
            self._batches.discard(batch)
            raise
        return {
            job.key: self._launched(job, f"{id_}_{number}" if several else id_, Task(batch, number))
            for number, job in enumerate(jobs)
        }

    def _launched(self, job: Job, id_: str, task: Task) -> LaunchedJob:
        log = str(job.log.relative_to(self._lab.root))
        return LaunchedJob(str(_Handle(self._cluster, id_, task, log)), job.key)

    def render(self, job: Job) -> str:
        """Return a batch script that a user can submit with `sbatch`."""
        resources = self._launching()
        folder = self._batches.folder(batch_of([job.key]))
        job = _uncopied(job, worker_environment(resources.threads, self._lab))
        return script_by_hand(job, folder, self._lab.root, resources, self._options)

    # ---- finding

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of jobs. The lab or accounting has those of jobs that Slurm has forgotten."""
        try:
            queue = self._queue() if jobs else {}
        except ExecutorError as error:
            return dict.fromkeys(jobs, JobStatus(JobState.UNKNOWN, str(error)))
        found = {job: self._status(job, queue) for job in jobs}
        statuses = {job: status for job, status in found.items() if isinstance(status, JobStatus)}
        forgotten = {job: handle for job, handle in found.items() if isinstance(handle, _Handle)}
        return statuses | self._accounted(forgotten)

    def _status(self, job: LaunchedJob, queue: Queue) -> JobStatus | _Handle:
        """Return a job's status, or its handle if neither the queue nor the lab has it."""
        try:
            handle = self._here(job)
        except _OtherAttempt as error:
            return JobStatus(JobState.GONE, str(error))
        except ExecutorError as error:
            return JobStatus(JobState.UNKNOWN, str(error))
        row, end = queue.get(handle.task), self._batches.end(handle.task)
        id_ = handle.id if row is None else row.id
        code = exit_from_shell(end[0]) if end is not None and end[1] == id_ else None
        if row is not None:
            return slurm_tools.status(row, code)
        return handle if code is None else ended(code)

    def _accounted(self, forgotten: Mapping[LaunchedJob, _Handle]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of jobs that neither the queue nor the lab has, by accounting if there is one.

        Ids are used again, but a job's folder is its batch's.
        """
        answer = ""
        if forgotten and not self._config.get("AccountingStorageType", "none").endswith("none"):
            try:
                answer = self._run(
                    "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates",
                    "--starttime=2000-01-01", f"--jobs={','.join(job.id for job in forgotten.values())}",
                    f"--format={slurm_tools.ACCOUNT_FORMAT}",
                )  # fmt: skip
            except ExecutorError as error:
                return dict.fromkeys(forgotten, JobStatus(JobState.UNKNOWN, str(error)))
        known, gone = slurm_tools.accounts(answer), "Slurm has no record of job {}, nor has the lab"
        return {
            job: known.get((handle.id, handle.task.batch)) or JobStatus(JobState.GONE, gone.format(handle.id))
            for job, handle in forgotten.items()
        }

    def _queue(self, given: str | None = None) -> Queue:
        """Return the user's jobs that Slurm remembers; of a task that was submitted twice, the last one."""
        answer = self._run(
            "squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}", "--sort=i",
            f"--format={slurm_tools.QUEUE_FORMAT}", given=given,
        )  # fmt: skip
        queue: dict[Task, QueueRow] = {}
        for row in slurm_tools.rows(answer):
            match = re.fullmatch(r"\d+(?:_(\d+))?", row.id)
            if match and row.comment.startswith(COMMENT):
                task = Task(row.comment.removeprefix(COMMENT), int(match[1] or 0))
                if task not in queue or not slurm_tools.state_of(row).is_over:
                    queue[task] = row
        return queue

    def _owned(self, job: LaunchedJob) -> _Handle:
        """Parse the handle of a job, and check its key.

        Raises:
            _OtherAttempt: The key belongs to another attempt.
            ExecutorUnavailable: The key can't be read.
            ExecutorError: The handle belongs to another executor.
        """
        try:
            cluster, id_, task, log = job.handle.split(":", 3)
            handle = _Handle(cluster, id_, Task.parse(task), log)
        except ValueError:
            raise ExecutorError(
                f"{job.handle!r} is not a handle of slurm: expected CLUSTER:ID:BATCH.NUMBER:LOG"
            ) from None
        try:
            if self._batches.has_key(handle.task, job.key):
                return handle
        except OSError as error:
            raise ExecutorUnavailable(sentence(error)) from None
        raise _OtherAttempt(f"job {handle.id} belongs to another attempt")

    def _here(self, job: LaunchedJob) -> _Handle:
        """Do the same as `_owned`; raise ExecutorUnavailable for a job on another cluster."""
        handle = self._owned(job)
        if handle.cluster != self._cluster:
            raise ExecutorUnavailable(f"on cluster {handle.cluster}; this is {self._cluster}")
        return handle

    # ---- stopping, logs

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Ask a job's script to stop, which asks the worker; or kill it now."""
        try:
            handle = self._here(job)
            row = self._queue().get(handle.task)
            if row is None or (state := slurm_tools.state_of(row)).is_over:
                return
            if now:
                self._scancel("--full", "--signal=KILL", row.id)
            if now or state == JobState.QUEUED:
                self._scancel(row.id)  # NOTE: not with --state, which cancels all waiting tasks of its array
            else:
                self._scancel("--batch", "--signal=TERM", row.id)
        except _OtherAttempt:
            return
        except ExecutorError as error:
            raise type(error)(f"{job.handle} may still be running: {error}") from None

    def _scancel(self, *words: str) -> None:
        self._run("scancel", *words, accept=_NO_SUCH_JOB)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Yield the job's output so far from its log in the lab, or else Slurm's own output."""
        try:
            handle = self._owned(job)
            log = self._lab.inside(handle.log)
            if not log.exists():
                log = self._batches.folder(handle.task.batch) / f"{handle.task.number}.out"
            yield from logs.blocks(log)
        except (OSError, UserError) as error:
            kind = ExecutorUnavailable if isinstance(error, ExecutorUnavailable) else ExecutorError
            raise kind(f"no log: {sentence(error)}") from error

    @functools.cached_property
    def _config(self) -> dict[str, str]:
        """The cluster's settings, which are read once."""
        return slurm_tools.config(self._run("scontrol", "show", "config"))

    @property
    def _cluster(self) -> str:
        return self._config.get("ClusterName", "slurm")


def _uncopied(job: Job, environment: Mapping[str, str]) -> Job:
    """Return a job with more variables, whose worker doesn't copy its output: the script logs it."""
    variables = {**environment, **job.environment}
    variables.pop(logs.COPIED, None)
    return dataclasses.replace(job, environment=variables)
