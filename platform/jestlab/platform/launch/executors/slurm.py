"""Jobs on a Slurm cluster: batch jobs and arrays, submitted and queried with Slurm's command-line tools.

A handle is `CLUSTER:ID:BATCH.NUMBER:LOG`: Slurm's job id, the task in its batch (see `slurm_batch`), and the
path of the log in the lab, a folder that all machines share. Slurm reuses ids, and several clusters may have
a job with the same id. So a job is identified by its batch too, which its comment in Slurm contains.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
from jestlab.platform.processes import TIME_LIMIT, exit_from_shell
from jestlab.platform.spec.resources import Resources, SlurmOptions

COMMENT = "jestlab "
"""Prefix of a job's comment in Slurm; the name of its batch follows."""

_NOT_PASSED_ON = (logs.COPIED, "JESTLAB_ROOT", "JESTLAB_CONFIG", "JESTLAB_STORE", "JESTLAB_STORE_SECRET")
"""Variables of the launcher that aren't passed on to its jobs."""
_NO_SUCH_JOB = "invalid job id|job/step already completing or completed|already finished"

Queue = Mapping[Task, QueueRow]
"""The user's jobs that `squeue` lists, including those that ended recently."""


class _OtherAttempt(ExecutorError):
    """The job with a handle has another key, so it belongs to another attempt."""


class _Handle(NamedTuple):
    """Parts of a handle; `log` is relative to the lab's root."""

    cluster: str
    id: str
    task: Task
    log: str

    def __str__(self) -> str:
        return ":".join(map(str, self))


class SlurmExecutor(Executor):
    """Launches jobs with Slurm.

    Attributes:
        grace_seconds: Longer than Slurm waits before it kills processes (KillWait, 30 s by default).
        answer_seconds: Timeout of each Slurm command.
    """

    name = "slurm"
    shares_folders = True
    grace_seconds = 90.0
    answer_seconds = 60.0

    def __init__(
        self, lab: Lab, resources: Resources | None = None, options: SlurmOptions | None = None
    ) -> None:
        """Create an executor, without running any command.

        Args:
            lab: Lab in a folder that all nodes see under the same path.
            resources: Resources of each job; None if no jobs will be launched.
            options: Options for the site.
        """
        self._lab = lab
        self._resources = resources
        self._options = options or SlurmOptions()
        self._batches = Batches(lab)
        self.chips = resources.machines.chips if resources else 0

    @classmethod
    def create(
        cls, lab: Lab, settings: Settings, resources: Resources | None, _: Callable[[], None]
    ) -> "SlurmExecutor":
        """Create an executor from the settings; with `resources=None`, it can't launch jobs.

        Raises:
            UserError: The lab is in a bucket, not in a folder.
        """
        if resources is None:
            return cls(lab)
        if lab.remote is not None:
            raise UserError(f"slurm needs a lab in a shared folder, not at {lab.remote}: --root DIR")
        return cls(lab, resources, resources.slurm.laid_over(settings.slurm))

    # ---- launching

    def check(self) -> None:
        """Raise ExecutorError if Slurm's controller doesn't answer, or would reject or never start a job."""
        _ = self._config  # which the launch needs anyway
        resources = self._required_resources()
        folder = self._batches.folder("check")
        options = sbatch_options("jestlab-check", COMMENT, folder, 1, resources, self._options)
        slurm_tools.check_job(options, resources.time_seconds, self._run)

    def launch(self, job: Job) -> LaunchedJob:
        """Submit a job, or find the existing one with its name."""
        [launched] = self.launch_all([job])
        if isinstance(launched, ExecutorError):
            raise launched
        return launched

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Submit several jobs as arrays, except those whose names were submitted before."""
        answers: dict[JobKey, LaunchedJob | ExecutorError] = {}
        try:
            resources = self._required_resources()
            for job in jobs:
                check_arguments(job)
            answers |= self._launched_before(jobs)
            new = [job for job in jobs if job.key not in answers]
            limits = {"MaxArraySize": "1001", "MaxJobCount": "10000"} | self._config
            most = max(min(int(limits["MaxArraySize"]), int(limits["MaxJobCount"])) - 1, 1)
            together: dict[tuple[str, ...], list[Job]] = {}
            for job in new:
                after = sorted({self._here(other).id for other in job.after})
                together.setdefault(tuple(after), []).append(job)
            for after_ids, group in together.items():
                for start in range(0, len(group), most):
                    answers |= self._submit(group[start : start + most], after_ids, resources)
        except ExecutorError as error:
            for job in jobs:
                answers.setdefault(job.key, type(error)(f"not launched: {error}"))
        return [answers[job.key] for job in jobs]

    def _required_resources(self) -> Resources:
        """Return the resources of each job; raise ExecutorError if this object can't launch jobs."""
        if self._resources is None:
            raise ExecutorError(LAUNCHES_NOTHING)
        return self._resources

    def _launched_before(self, jobs: Sequence[Job]) -> dict[JobKey, LaunchedJob]:
        """Find jobs that were submitted before, by their names in the lab, and are queued or have ended."""
        tasks = [(job, task) for job in jobs if (task := self._batches.find(job)) is not None]
        queue = self._queue() if tasks else {}
        launched: dict[JobKey, LaunchedJob] = {}
        for job, task in tasks:
            if (end := self._batches.end(task)) is not None:
                launched[job.key] = self._launched(job, end[1], task)
            elif task in queue:
                launched[job.key] = self._launched(job, queue[task].id, task)
        return launched

    def _submit(
        self, jobs: Sequence[Job], after: Sequence[str], resources: Resources
    ) -> dict[JobKey, LaunchedJob]:
        """Submit jobs as one batch. If Slurm's answer is lost, look for them before submitting them again."""
        inherited = {**passed_on(), **worker_environment(resources.threads_per_task, self._lab)}
        inherited = {name: value for name, value in inherited.items() if name not in _NOT_PASSED_ON}
        batch = self._batches.write([_with_variables(job, inherited) for job in jobs])
        folder = self._batches.folder(batch)
        several = len(jobs) > 1
        name = f"jestlab-{jobs[0].key.store[:6]}-{batch[:8]}" if several else jobs[0].name
        comment = f"{COMMENT}{batch}"
        options = sbatch_options(name, comment, folder, len(jobs), resources, self._options, after)
        text = script(folder, resources, self._options)
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
        """Return a batch script that users can submit with `sbatch`."""
        resources = self._required_resources()
        folder = self._batches.folder(batch_of([job.key]))
        job = _with_variables(job, worker_environment(resources.threads_per_task, self._lab))
        return script_by_hand(job, folder, resources, self._options)

    # ---- finding

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the status of each job. Jobs that have left the queue are in the lab or in accounting."""
        try:
            queue = self._queue() if jobs else {}
        except ExecutorError as error:
            return dict.fromkeys(jobs, JobStatus(JobState.UNKNOWN, str(error)))
        found = {job: self._status(job, queue) for job in jobs}
        statuses = {job: status for job, status in found.items() if isinstance(status, JobStatus)}
        unknown = {job: handle for job, handle in found.items() if isinstance(handle, _Handle)}
        return statuses | self._accounted(unknown)

    def _status(self, job: LaunchedJob, queue: Queue) -> JobStatus | _Handle:
        """Return a job's status from the queue or the lab; if neither has it, return its handle."""
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

    def _accounted(self, unknown: Mapping[LaunchedJob, _Handle]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of jobs that neither the queue nor the lab has, from accounting, if enabled.

        Since Slurm reuses ids, a job's working directory must be the folder of its batch.
        """
        answer = ""
        if unknown and not self._config.get("AccountingStorageType", "none").endswith("none"):
            try:
                answer = self._run(
                    "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates",
                    "--starttime=2000-01-01", f"--jobs={','.join(job.id for job in unknown.values())}",
                    f"--format={slurm_tools.ACCOUNT_FORMAT}",
                )  # fmt: skip
            except ExecutorError as error:
                return dict.fromkeys(unknown, JobStatus(JobState.UNKNOWN, str(error)))
        known, gone = slurm_tools.accounts(answer), "Slurm has no record of job {}, nor has the lab"
        return {
            job: known.get((handle.id, handle.task.batch)) or JobStatus(JobState.GONE, gone.format(handle.id))
            for job, handle in unknown.items()
        }

    def _queue(self, given: str | None = None) -> Queue:
        """Run `squeue`, and return the user's jobs by task; of several jobs, the last that hasn't ended."""
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
        """Parse the handle of a job, and check that its key belongs to the handle's task.

        Raises:
            _OtherAttempt: The task belongs to another attempt.
            ExecutorUnavailable: The keys of the batch can't be read.
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
        """Do the same as `_owned`, but raise ExecutorUnavailable if the job is on another cluster."""
        handle = self._owned(job)
        if handle.cluster != self._cluster:
            raise ExecutorUnavailable(f"on cluster {handle.cluster}; this is {self._cluster}")
        return handle

    def _run(self, *command: str, **options: Any) -> str:
        return slurm_tools.run(*command, answer_seconds=self.answer_seconds, **options)

    # ---- stopping, logs

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Send SIGTERM to a job's script, which forwards it to the worker; with `now`, kill all processes."""
        try:
            handle = self._here(job)
            row = self._queue().get(handle.task)
            if row is None or (state := slurm_tools.state_of(row)).is_over:
                return
            if now:
                self._scancel("--full", "--signal=KILL", row.id)
            if now or state == JobState.QUEUED:
                self._scancel(row.id)  # NOTE: --state would cancel all pending tasks of its array
            else:
                self._scancel("--batch", "--signal=TERM", row.id)
        except _OtherAttempt:
            return
        except ExecutorError as error:
            raise type(error)(f"{job.handle} may still be running: {error}") from None

    def _scancel(self, *words: str) -> None:
        self._run("scancel", *words, accept=_NO_SUCH_JOB)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Yield the content of the job's log in the lab; if it doesn't exist, that of Slurm's output file."""
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
        """The cluster's configuration, which is read once."""
        return slurm_tools.config(self._run("scontrol", "show", "config"))

    @property
    def _cluster(self) -> str:
        return self._config.get("ClusterName", "slurm")


def _with_variables(job: Job, environment: Mapping[str, str]) -> Job:
    """Return a job with further variables. Slurm ends it in time, and its script logs its output."""
    variables = {**environment, **job.environment}
    for name in (logs.COPIED, TIME_LIMIT):
        variables.pop(name, None)
    return dataclasses.replace(job, environment=variables)
