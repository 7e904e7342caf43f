"""Jobs on a Slurm cluster: batch jobs and arrays, launched and found with Slurm's command-line tools.

A handle is `CLUSTER:ID:BATCH.NUMBER:LOG`: Slurm's id of the job, its task (see `slurm_batch`), and its log in
the lab, whose folder all machines share. The job's comment contains the batch. An id alone is never trusted:
Slurm reuses ids, and two clusters have the same ones.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
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
)
from jestlab.platform.launch.executors.cloud import LAUNCHES_NOTHING, check_arguments
from jestlab.platform.launch.executors.environment import passed_on, worker_environment
from jestlab.platform.launch.executors.retry import Transient, retried
from jestlab.platform.launch.executors.slurm_batch import (
    Batches,
    Task,
    batch_of,
    sbatch_options,
    script,
    script_by_hand,
)
from jestlab.platform.launch.executors.slurm_tools import QueueRow, SlurmTools
from jestlab.platform.processes import EXIT_COMPLETED, exit_from_shell
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.slurm import SlurmOptions

COMMENT = "jestlab "
"""Prefix of a job's comment, before the name of its batch."""

_NOT_PASSED_ON = (logs.COPIED, "JESTLAB_ROOT", "JESTLAB_CONFIG", "JESTLAB_STORE", "JESTLAB_STORE_SECRET")
"""Variables of the launcher that its jobs don't get."""
_QUEUE_SECONDS = 15.0
"""How long the order of a queue is cached: listing it lists all users' jobs."""
_NO_SUCH_JOB = ("invalid job id", "job/step already completing or completed", "already finished")

Queue = Mapping[str, Sequence[QueueRow]]
"""The user's jobs that Slurm remembers, by batch."""


class _Handle(NamedTuple):
    """Parts of a handle."""

    cluster: str
    id: str
    task: Task
    log: str

    def __str__(self) -> str:
        return f"{self.cluster}:{self.id}:{self.task.batch}.{self.task.number}:{self.log}"

    @classmethod
    def parse(cls, text: str) -> _Handle:
        """Parse a handle; raise ExecutorError if it belongs to another executor."""
        try:
            cluster, id_, task, log = text.split(":", 3)
            batch, number = task.split(".")
            return cls(cluster, id_, Task(batch, int(number)), log)
        except ValueError:
            raise ExecutorError(
                f"{text!r} is not a handle of slurm: expected CLUSTER:ID:BATCH.NUMBER:LOG"
            ) from None


class SlurmExecutor(Executor):
    """Launches jobs with Slurm and finds them again.

    Attributes:
        grace_seconds: Longer than Slurm's own wait before it kills.
    """

    name = "slurm"
    here = False
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
        self._tools = SlurmTools(answer_seconds)
        self._batches = Batches(lab)
        self._pending_jobs: dict[str, tuple[float, list[tuple[int, str]]]] = {}
        self._lock = threading.Lock()
        self._config: Mapping[str, str] = {}
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
                check_arguments(job, "processes of a node can be seen by others")
            answers |= self._launched_before(jobs)
            new = [job for job in jobs if job.key not in answers]
            most = min(int(self._setting("MaxArraySize", "1001")), int(self._setting("MaxJobCount", "10000")))
            while new:
                together, new = new[: max(most - 1, 1)], new[max(most - 1, 1) :]
                answers |= self._submit(together, resources)
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
        tasks = {job.key: task for job in jobs if (task := self._batches.find(job)) is not None}
        if not tasks:
            return {}
        queue = self._queue()
        launched: dict[JobKey, LaunchedJob] = {}
        for job in jobs:
            if (task := tasks.get(job.key)) is None:
                continue
            if (end := self._batches.end(task)) is not None:
                launched[job.key] = self._launched(job, end.job, task)
            elif (row := self._row(queue, task)) is not None:
                launched[job.key] = self._launched(job, row.id, task)
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
        text = script(folder, Path.cwd(), [self._lab.root, Path.cwd()], resources, self._options)
        tried = False

        def submit() -> str:
            nonlocal tried
            try:
                if tried and (rows := self._queue(self._tools.run_once).get(batch)):
                    return rows[0].id.partition("_")[0]
                tried = True
                answer = self._tools.run_once("sbatch", "--parsable", *options, given=text)
            except ExecutorUnavailable as error:
                raise Transient(error) from None
            return answer.strip().split(";")[0]

        try:
            id_ = retried(submit)
        except ExecutorError:
            self._batches.discard(batch)
            raise
        return {
            job.key: self._launched(job, f"{id_}_{number}" if several else id_, Task(batch, number))
            for number, job in enumerate(jobs)
        }

    def _launched(self, job: Job, id_: str, task: Task) -> LaunchedJob:
        log = str(job.log.relative_to(self._lab.root))
        return LaunchedJob(str(_Handle(self._setting("ClusterName", "slurm"), id_, task, log)), job.key)

    def render(self, job: Job) -> str:
        """Return a batch script that a user can submit with `sbatch`."""
        resources, shared = self._launching(), [self._lab.root, Path.cwd()]
        folder = self._batches.folder(batch_of([job.key]))
        job = _uncopied(job, worker_environment(resources.threads, self._lab))
        return script_by_hand(job, folder, shared, resources, self._options)

    # ---- status

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the statuses of jobs. Jobs that Slurm has forgotten left their exit codes in the lab."""
        statuses: dict[LaunchedJob, JobStatus] = {}
        handles: dict[LaunchedJob, _Handle] = {}
        for job in jobs:
            try:
                handle = _Handle.parse(job.handle)
                if (status := self._not_ours(handle, job)) is None:
                    handles[job] = handle
                else:
                    statuses[job] = status
            except ExecutorError as error:
                statuses[job] = JobStatus(JobState.UNKNOWN, str(error))
        try:
            queue = self._queue() if handles else {}
            for job, handle in handles.items():
                row = self._row(queue, handle.task)
                known = self._forgotten(handle) if row is None else self._of_row(handle, row)
                statuses[job] = self._elsewhere(handle) or known
        except ExecutorError as error:
            statuses |= dict.fromkeys(handles, JobStatus(JobState.UNKNOWN, str(error)))
        return statuses

    def _not_ours(self, handle: _Handle, job: LaunchedJob) -> JobStatus | None:
        """Return the status of a job whose key differs, or can't be read; None if the key is the job's."""
        has_key = self._batches.has_key(handle.task, job.key)
        if has_key is None:
            return JobStatus(JobState.UNKNOWN, f"{self._batches.folder(handle.task.batch)} can't be read")
        return None if has_key else JobStatus(JobState.GONE, f"job {handle.id} belongs to another attempt")

    def _elsewhere(self, handle: _Handle) -> JobStatus | None:
        """Return the status of a job on another cluster; None if it is on this one."""
        cluster = self._setting("ClusterName", "slurm")
        if handle.cluster == cluster:
            return None
        return JobStatus(JobState.UNKNOWN, f"on cluster {handle.cluster}; this is {cluster}")

    def _queue(self, run: Callable[..., str] | None = None) -> Queue:
        """Return the user's jobs that Slurm remembers."""
        answer = (run or self._tools.run)(
            "squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}", "--sort=i",
            f"--format={slurm_tools.QUEUE_FORMAT}",
        )  # fmt: skip
        queue: dict[str, list[QueueRow]] = defaultdict(list)
        for row in slurm_tools.rows(answer):
            if row.comment.startswith(COMMENT):
                queue[row.comment.removeprefix(COMMENT)].append(row)
        return queue

    @staticmethod
    def _row(queue: Queue, task: Task) -> QueueRow | None:
        """Return the row of a task; the last one if its batch was submitted twice."""
        rows = [
            row for row in queue.get(task.batch, ()) if (row.id.partition("_")[2] or "0") == str(task.number)
        ]
        alive = [row for row in rows if not slurm_tools.is_over(row.state)]
        return (alive or rows)[-1] if rows else None

    def _of_row(self, handle: _Handle, row: QueueRow) -> JobStatus:
        end = self._batches.end(handle.task)
        if end is not None and (end.job != row.id or row.state == "COMPLETING"):
            end = None
        code = None if end is None else exit_from_shell(end.code)
        if slurm_tools.is_over(row.state) and code == EXIT_COMPLETED:
            return slurm_tools.ended(code)  # it had completed before Slurm ended it
        place = slurm_tools.queue_position(row, self._pending(row)) if row.state == "PENDING" else ""
        return slurm_tools.status(row.state, row.reason, code, place)

    def _pending(self, waiting: QueueRow) -> list[tuple[int, str]]:
        """Return priority and id of the pending jobs in a job's partition, cached for some seconds."""
        partition = waiting.partition
        at, pending = self._pending_jobs.get(partition, (-_QUEUE_SECONDS, []))
        if time.monotonic() - at > _QUEUE_SECONDS or all(id_ != waiting.id for _, id_ in pending):
            answer = self._tools.run(
                "squeue", "--noheader", "--array", "--states=PENDING", f"--partition={partition}",
                "--sort=-p,i", f"--format={slurm_tools.QUEUE_FORMAT}",
            )  # fmt: skip
            pending = [(row.priority, row.id) for row in slurm_tools.rows(answer)]
            self._pending_jobs[partition] = (time.monotonic(), pending)
        return pending

    def _forgotten(self, handle: _Handle) -> JobStatus:
        """Return the status of a job that squeue doesn't list, from its `.end` file.

        Slurm's accounting isn't asked: a job without the file was killed with its node, or by Slurm. Then the
        run continues in another job, as if it was preempted.
        """
        end = self._batches.end(handle.task)
        if end is not None and end.job == handle.id:
            return slurm_tools.ended(exit_from_shell(end.code))
        return JobStatus(JobState.GONE, f"Slurm has no record of job {handle.id}, nor has the lab")

    # ---- stopping, logs

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Ask a job's script to stop, which asks the worker; or kill it now."""
        handle = _Handle.parse(job.handle)
        prefix = f"{handle.id} may still be running"
        if (status := self._not_ours(handle, job) or self._elsewhere(handle)) is not None:
            if status.state == JobState.UNKNOWN:
                raise ExecutorUnavailable(f"{prefix}: {status.reason}")
            return
        try:
            row = self._row(self._queue(), handle.task)
            if row is None or slurm_tools.is_over(row.state):
                return
            if now:
                self._scancel("--full", "--signal=KILL", row.id)
                self._scancel(row.id)
            elif row.state in slurm_tools.WAITING:
                self._scancel(row.id)  # NOTE: not with --state, which cancels all waiting tasks of its array
            else:
                self._scancel("--batch", "--signal=TERM", row.id)
        except ExecutorError as error:
            raise type(error)(f"{prefix}: {error}") from None

    def _scancel(self, *words: str) -> None:
        self._tools.run("scancel", *words, accept=_NO_SUCH_JOB)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Yield the job's output so far from its log in the lab, or else Slurm's own output."""
        handle = _Handle.parse(job.handle)
        if (status := self._not_ours(handle, job)) is not None:
            kind = ExecutorUnavailable if status.state == JobState.UNKNOWN else ExecutorError
            raise kind(f"no log: {status.reason}")
        task = handle.task
        try:
            log = self._lab.inside(handle.log)
            if not log.exists():
                log = self._batches.folder(task.batch) / f"{task.number}.out"
            yield from logs.blocks(log)
        except (OSError, UserError) as error:
            raise ExecutorError(f"no log: {sentence(error)}") from error

    def _setting(self, key: str, default: str) -> str:
        """Return one of the cluster's settings, which are read once."""
        with self._lock:
            if not self._config:
                self._config = slurm_tools.config(self._tools.run("scontrol", "show", "config"))
        return self._config.get(key, default)


def _uncopied(job: Job, environment: Mapping[str, str]) -> Job:
    """Return a job with more variables, whose worker doesn't copy its output: the script logs it."""
    variables = {**environment, **job.environment}
    variables.pop(logs.COPIED, None)
    return dataclasses.replace(job, environment=variables)
