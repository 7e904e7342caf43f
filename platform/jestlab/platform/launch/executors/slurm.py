"""Jobs on a cluster with Slurm: batch jobs and arrays of them, launched and found by its command line tools.

A handle is `CLUSTER:ID:BATCH.NUMBER:LOG`: Slurm's id of the job, its place among what was submitted together
(see `slurm_files`), and its log in the lab, whose folder all machines share. The batch's name is the job's
comment. An id alone is never trusted: Slurm uses ids again, and two clusters have the same ones.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jestlab.platform import logs
from jestlab.platform.errors import UserError, sentence
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executor import (
    Executor,
    ExecutorAway,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
    Marks,
)
from jestlab.platform.launch.executors import slurm_script, slurm_states
from jestlab.platform.launch.executors.cloud import three_attempts
from jestlab.platform.launch.executors.environment import passed_on, worker_environment
from jestlab.platform.launch.executors.manifest import check_arguments
from jestlab.platform.launch.executors.slurm_files import Batches, Task, batch_of
from jestlab.platform.launch.executors.slurm_states import Account, Row
from jestlab.platform.launch.executors.slurm_tools import Tools
from jestlab.platform.processes import EXIT_COMPLETED, exit_from_shell
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.slurm import Slurm as SlurmOptions

COMMENT = "jestlab "
"""Begins the comment of jobs; the name of their batch follows."""

_NOT_THEIRS = (logs.COPIED, "JESTLAB_ROOT", "JESTLAB_CONFIG", "JESTLAB_STORE", "JESTLAB_STORE_SECRET")
"""Variables of this process that are no business of its jobs."""
_BLOCK = 1 << 20
_PLACES_SECONDS = 15.0
"""How long the order of a queue is remembered: whoever asks for it asks for everybody's jobs."""
_NO_SUCH_JOB = ("invalid job id", "job/step already completing or completed", "already finished")


class _Handle(NamedTuple):
    """A handle's parts."""

    cluster: str
    id: str
    task: Task
    log: str

    def __str__(self) -> str:
        return f"{self.cluster}:{self.id}:{self.task.batch}.{self.task.number}:{self.log}"

    @classmethod
    def parse(cls, text: str) -> _Handle:
        """Parse a handle; ExecutorError if it is another executor's."""
        try:
            cluster, id_, task, log = text.split(":", 3)
            batch, number = task.split(".")
            return cls(cluster, id_, Task(batch, int(number)), log)
        except ValueError:
            raise ExecutorError(
                f"{text!r} is not a handle of slurm: expected CLUSTER:ID:BATCH.NUMBER:LOG"
            ) from None


class Slurm(Executor):
    """Launches jobs by Slurm and finds them again.

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
        """Create an executor; it asks for nothing yet.

        Args:
            lab: In a folder that the nodes see under the same path.
            resources: What each job gets; None for an executor that launches nothing.
            options: What the site wants to be told.
            answer_seconds: How long each of Slurm's commands may take.
        """
        self._lab = lab
        self._resources = resources
        self._options = options or SlurmOptions()
        self._tools = Tools(answer_seconds)
        self._batches = Batches(lab)
        self._given_up: set[str] = set()
        self._places: dict[str, tuple[float, list[tuple[int, str]]]] = {}
        self._lock = threading.Lock()
        self._config: Mapping[str, str] = {}
        self.chips = resources.machines.chips if resources else 0

    @classmethod
    def of(cls, resources: Resources, settings: Settings, lab: Lab) -> Slurm:
        """Create an executor that can launch jobs.

        Raises:
            UserError: The lab is not in a folder, or a TPU is asked for.
        """
        if lab.remote is not None:
            raise UserError(
                f"slurm needs a lab in a folder that all nodes share, not at {lab.remote}: --root DIR"
            )
        if resources.tpu is not None:
            raise UserError(f"slurm has no {resources.tpu}: say `nodes` and `gpus` instead of `tpu`")
        return cls(lab, resources, resources.slurm.laid_over(settings.slurm))

    # ---- launching

    def launch(self, job: Job) -> LaunchedJob:
        """Submit a job, or find the one of that name."""
        [launched] = self.launch_all([job])
        if isinstance(launched, ExecutorError):
            raise launched
        return launched

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Submit several jobs, as arrays, or find those whose names were launched before."""
        answers: dict[Marks, LaunchedJob | ExecutorError] = {}
        try:
            if self._resources is None:
                raise ExecutorError("this executor finds jobs and cannot launch any")
            for job in jobs:
                # They are words of a process, which others who use its node may see.
                check_arguments(job, "processes of a node can be seen by others")
            answers |= self._launched_before(jobs)
            new = [job for job in jobs if job.marks not in answers]
            most = min(int(self._setting("MaxArraySize", "1001")), int(self._setting("MaxJobCount", "10000")))
            while new:
                together, new = new[: max(most - 1, 1)], new[max(most - 1, 1) :]
                answers |= self._submitted(together)
        except ExecutorError as error:
            kind = ExecutorAway if isinstance(error, ExecutorAway) else ExecutorError
            for job in jobs:
                answers.setdefault(job.marks, kind(f"{job.title} was not launched: {error}"))
        return [answers[job.marks] for job in jobs]

    def _launched_before(self, jobs: Sequence[Job]) -> dict[Marks, LaunchedJob | ExecutorError]:
        """Find jobs that were submitted before, by the batches that their names are in."""
        tasks = {job.marks: task for job in jobs if (task := self._batches.find(job)) is not None}
        if not tasks:
            return {}
        queued = self._queued()
        self._cancel_given_up(queued)
        found: dict[Marks, LaunchedJob | ExecutorError] = {}
        for job in jobs:
            if (task := tasks.get(job.marks)) is None or task.batch in self._given_up:
                continue
            if (end := self._batches.end(task)) is not None:
                found[job.marks] = self._launched(job, end.job, task)
            elif (row := self._row(queued, task)) is not None:
                found[job.marks] = self._launched(job, row.id, task)
        return found

    def _submitted(self, jobs: Sequence[Job]) -> dict[Marks, LaunchedJob | ExecutorError]:
        """Submit jobs as one; the answer may be lost, and is looked for before they are submitted again."""
        assert self._resources is not None
        environment = {**passed_on(), **worker_environment(self._resources.threads, self._lab)}
        # The script sends their output to their logs: no worker has to copy it.
        plain = [
            dataclasses.replace(
                job, environment={key: value for key, value in job.environment.items() if key != logs.COPIED}
            )
            for job in jobs
        ]
        environment = {name: value for name, value in environment.items() if name not in _NOT_THEIRS}
        batch = self._batches.write(plain, environment)
        self._given_up.discard(batch)  # launched again, it is wanted
        command = ["sbatch", "--parsable", *self._sbatch(batch, jobs)]
        text = self._script(batch)
        tried = False

        def submit() -> str:
            nonlocal tried
            if tried and (rows := self._queued().get(batch)):
                return rows[0].id.partition("_")[0]
            tried = True
            return self._tools.run_once(*command, given=text).strip().split(";")[0]

        try:
            id_: str = three_attempts(lambda error: isinstance(error, ExecutorAway))(submit)
        except ExecutorError:
            self._given_up.add(batch)
            self._batches.discard(batch)
            raise
        several = len(jobs) > 1
        return {
            job.marks: self._launched(job, f"{id_}_{number}" if several else id_, Task(batch, number))
            for number, job in enumerate(jobs)
        }

    def _launched(self, job: Job, id_: str, task: Task) -> LaunchedJob:
        log = str(job.log.relative_to(self._lab.root))
        return LaunchedJob(str(_Handle(self._setting("ClusterName", "slurm"), id_, task, log)), job.marks)

    def _sbatch(self, batch: str, jobs: Sequence[Job]) -> list[str]:
        assert self._resources is not None
        name = jobs[0].name if len(jobs) == 1 else f"jestlab-{jobs[0].marks.store[:6]}-{batch[:8]}"
        folder = self._batches.folder(batch)
        return slurm_script.options(
            name, f"{COMMENT}{batch}", folder, len(jobs), self._resources, self._options
        )

    def _script(self, batch: str) -> str:
        assert self._resources is not None
        shared = [self._lab.root, Path.cwd()]
        return slurm_script.script(
            self._batches.folder(batch), Path.cwd(), shared, self._resources, self._options
        )

    def render(self, job: Job) -> dict[str, Any]:
        """Return the options of `sbatch`, the script, and the names of the variables that it sets."""
        if self._resources is None:
            raise ExecutorError("this executor finds jobs and cannot launch any")
        batch = batch_of([job.marks])
        return {
            "sbatch": self._sbatch(batch, [job]),
            "script": self._script(batch),
            "arguments": ["-m", job.module, *job.arguments],
            "variables": sorted(job.environment),
        }

    # ---- finding

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the states of jobs, by one question; those that Slurm has forgotten have left their ends."""
        found: dict[LaunchedJob, JobStatus] = {}
        asked: dict[LaunchedJob, _Handle] = {}
        for job in jobs:
            try:
                handle = _Handle.parse(job.handle)
                if (status := self._without_marks(handle, job)) is None:
                    asked[job] = handle
                else:
                    found[job] = status
            except ExecutorError as error:
                found[job] = JobStatus(JobState.UNKNOWN, str(error))
        try:
            found |= self._asked(asked) if asked else {}
        except ExecutorError as error:
            found |= dict.fromkeys(asked, JobStatus(JobState.UNKNOWN, str(error)))
        return found

    def _asked(self, handles: Mapping[LaunchedJob, _Handle]) -> dict[LaunchedJob, JobStatus]:
        """Ask Slurm for jobs that bear their marks."""
        found: dict[LaunchedJob, JobStatus] = {}
        queued = self._queued()
        self._cancel_given_up(queued)
        rows = {job: self._row(queued, handle.task) for job, handle in handles.items()}
        accounts = self._accounts([handle for job, handle in handles.items() if rows[job] is None])
        for job, handle in handles.items():
            row = rows[job]
            if (status := self._elsewhere(handle)) is None:
                status = self._forgotten(handle, accounts) if row is None else self._of_row(handle, row)
            found[job] = status
        return found

    def _without_marks(self, handle: _Handle, job: LaunchedJob) -> JobStatus | None:
        """Return the status of a job that does not bear the marks, or may not; None if it does."""
        bears = self._batches.bears(handle.task, job.marks)
        if bears is None:
            return JobStatus(JobState.UNKNOWN, f"{self._batches.folder(handle.task.batch)} cannot be read")
        return None if bears else JobStatus(JobState.GONE, f"the job {handle.id} is another attempt's")

    def _elsewhere(self, handle: _Handle) -> JobStatus | None:
        """Return the status of a job of another cluster, which this one does not know; None if it is here."""
        cluster = self._setting("ClusterName", "slurm")
        if handle.cluster == cluster:
            return None
        return JobStatus(JobState.UNKNOWN, f"it is on the cluster {handle.cluster}, and this is {cluster}")

    def _queued(self) -> dict[str, list[Row]]:
        """Return the user's jobs that Slurm remembers, by batch."""
        answer = self._tools.run(
            "squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}", "--sort=i",
            f"--format={slurm_states.QUEUE_FORMAT}",
        )  # fmt: skip
        found: dict[str, list[Row]] = defaultdict(list)
        for row in slurm_states.rows(answer):
            if row.comment.startswith(COMMENT):
                found[row.comment.removeprefix(COMMENT)].append(row)
        return found

    @staticmethod
    def _row(queued: Mapping[str, Sequence[Row]], task: Task) -> Row | None:
        """Return the line of a task: batches may have been submitted twice, and the last one counts."""
        own = [
            row for row in queued.get(task.batch, ()) if (row.id.partition("_")[2] or "0") == str(task.number)
        ]
        alive = [row for row in own if not slurm_states.is_over(row.state)]
        return (alive or own)[-1] if own else None

    def _of_row(self, handle: _Handle, row: Row) -> JobStatus:
        end = self._batches.end(handle.task)
        if end is not None and (end.job != row.id or row.state == "COMPLETING"):
            end = None
        code = None if end is None else exit_from_shell(end.code)
        if row.state == "FAILED" and code is None:
            told = slurm_states.details(
                self._tools.run("scontrol", "-o", "show", "job", row.id, accept=_NO_SUCH_JOB)
            )
            code = (
                slurm_states.code_of(told.get("ExitCode", ""))
                if told.get("Reason") == "NonZeroExitCode"
                else code
            )
        place = ""
        if row.state == "PENDING":
            place = slurm_states.place(row, self._pending(row), row.start)
        if slurm_states.is_over(row.state) and code == EXIT_COMPLETED:
            return slurm_states.ended(code)  # it had ended by itself before Slurm ended it
        return slurm_states.status(row.state, row.reason, code, place)

    def _pending(self, waiting: Row) -> list[tuple[int, str]]:
        """Return priority and id of the jobs that wait in a job's partition, as of some seconds ago."""
        partition = waiting.partition
        at, pending = self._places.get(partition, (-_PLACES_SECONDS, []))
        if time.monotonic() - at > _PLACES_SECONDS or all(id_ != waiting.id for _, id_ in pending):
            answer = self._tools.run(
                "squeue", "--noheader", "--array", "--states=PENDING", f"--partition={partition}",
                "--sort=-p,i", f"--format={slurm_states.QUEUE_FORMAT}",
            )  # fmt: skip
            pending = [(row.priority, row.id) for row in slurm_states.rows(answer)]
            self._places[partition] = (time.monotonic(), pending)
        return pending

    def _accounts(self, handles: Sequence[_Handle]) -> dict[str, list[Account]]:
        """Return what accounting knows of jobs; nothing where the site has none."""
        if not handles or self._setting("AccountingStorageType", "").endswith("/none"):
            return {}
        ids = ",".join(handle.id for handle in handles)
        answer = self._tools.run(
            "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--jobs={ids}",
            f"--format={slurm_states.ACCOUNT_FIELDS}", "--starttime=2000-01-01",
        )  # fmt: skip
        return slurm_states.accounted(answer)

    def _forgotten(self, handle: _Handle, accounts: Mapping[str, Sequence[Account]]) -> JobStatus:
        """Return the status of a job that squeue does not know: as it said itself, or accounting says."""
        end = self._batches.end(handle.task)
        own = None if end is None or end.job != handle.id else slurm_states.ended(exit_from_shell(end.code))
        # Others' jobs may have had its id before or after; a batch's jobs run in the folder of the batch.
        ours = [
            known for known in accounts.get(handle.id, ()) if Path(known.folder).name == handle.task.batch
        ]
        latest = ours[-1] if ours else None
        if latest and latest.state and slurm_states.is_over(latest.state):
            # A job that Slurm has ended may have left an exit code all the same.
            told = slurm_states.status(latest.state, "", slurm_states.code_of(latest.code))
            own_counts = own is not None and JobState.SUCCEEDED in (own.state, told.state)
            return own if own is not None and (own_counts or told.state == JobState.FAILED) else told
        if own is not None:
            return own
        return JobStatus(
            JobState.GONE, f"Slurm knows no job {handle.id} of it any more, and it left no exit code"
        )

    # ---- acting

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Ask a job's script to stop, which passes it on; or kill it now."""
        handle = _Handle.parse(job.handle)
        say = f"{handle.id} may still be running"
        if not self._is_ours(handle, job, say):
            return
        try:
            row = self._row(self._queued(), handle.task)
            if row is None or slurm_states.is_over(row.state):
                return
            if now:
                self._scancel("--full", "--signal=KILL", row.id)
                self._scancel(row.id)
            elif row.state in slurm_states.LATER:
                self._scancel(row.id)  # NOTE: not with --state, which cancels all that waits of its array
            else:
                self._scancel("--batch", "--signal=TERM", row.id)
        except ExecutorError as error:
            raise type(error)(f"{say}: {error}") from None

    def _scancel(self, *words: str) -> None:
        self._tools.run("scancel", *words, accept=_NO_SUCH_JOB)

    def _cancel_given_up(self, queued: Mapping[str, Sequence[Row]]) -> None:
        """Cancel what was submitted all the same, after nobody had answered."""
        for batch in self._given_up & queued.keys():
            for id_ in {
                row.id.partition("_")[0] for row in queued[batch] if not slurm_states.is_over(row.state)
            }:
                self._scancel(id_)

    def _is_ours(self, handle: _Handle, job: LaunchedJob, say: str) -> bool:
        status = self._without_marks(handle, job) or self._elsewhere(handle)
        if status is not None and status.state == JobState.UNKNOWN:
            raise ExecutorAway(f"{say}: {status.reason}")
        return status is None

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return what the job has printed so far: its log, a file of the lab; else what Slurm said."""
        handle = _Handle.parse(job.handle)
        if (status := self._without_marks(handle, job)) is not None:
            kind = ExecutorAway if status.state == JobState.UNKNOWN else ExecutorError
            raise kind(f"no log: {status.reason}")
        task = handle.task
        try:
            log = self._lab.inside(handle.log)
            if not log.exists():
                log = self._batches.folder(task.batch) / f"{task.number}.out"
            with log.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    yield block
        except (OSError, UserError) as error:
            raise ExecutorError(f"no log: {sentence(error)}") from error

    def _setting(self, key: str, default: str) -> str:
        """Return one of the cluster's settings; asked for once."""
        with self._lock:
            if not self._config:
                self._config = slurm_states.settings(self._tools.run("scontrol", "show", "config"))
        return self._config.get(key, default)
