"""Contract test for executors: test cases, and harnesses that control the jobs of an executor."""

import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    Job,
    JobKey,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.launch.executors.custom import guarded
from jestlab.platform.spec.resources import Resources

NAME = "jestlab-0a1b2c3d-1"
_PATIENCE_SECONDS = 30.0
_LATE_SECONDS = 0.5  # wait before counting jobs: a duplicate would have started by then
_STORE = "postgresql+psycopg://ada:correct-horse@db.example/lab"


class Harness(Protocol):
    """Controls the jobs of one executor.

    Attributes:
        remote: Whether jobs run on other machines. Then any process can launch a name again and get its job,
            and jobs with another key must be left alone.
    """

    remote: bool

    def executor(self) -> Executor:
        """Create an executor object, as another process would."""

    def job(self, name: str) -> Job:
        """Return a job that the executor can launch."""

    def count(self) -> int:
        """Count the jobs that are queued or running."""

    def run(self, started: LaunchedJob) -> None:
        """Let a job begin, and wait until it runs."""

    def end(self, started: LaunchedJob, code: int) -> None:
        """Make the first process of a job end with an exit code."""

    def finish_stop(self) -> None:
        """Complete requested stops, if jobs don't stop by themselves."""

    def prints(self, started: LaunchedJob, lines: list[str]) -> None:
        """Make a job print lines."""

    def close(self) -> None:
        """Remove all jobs and close the executors."""


def check_executor(executor: Callable[..., Any], **options: Any) -> None:
    """Check an executor: a class or function that takes `(lab, resources, on_exit, **options)`.

    The test launches real jobs, which require access to the temporary folder (see TMPDIR). The executor must
    report how jobs end, find jobs of other processes by their handles, launch one job per name, stop jobs,
    and return logs. Unless its jobs run `here`, it must not stop or read jobs of other attempts.
    """
    for case in CASES:
        description = (case.__doc__ or case.__name__).strip().rstrip(".")
        # If an executor is faulty, a job may remain that writes to the folder.
        with tempfile.TemporaryDirectory(prefix="jestlab-", ignore_cleanup_errors=True) as folder:
            harness = _LocalHarness(executor, options, Path(folder))
            try:
                case(harness)
            except Exception as error:
                kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                raise AssertionError(f"{description}: {kind}{error}") from error
            finally:
                harness.close()


def key_of(name: str) -> JobKey:
    """Return a key for the job with a name."""
    return JobKey("5e" * 16, "0a1b2c3d" * 8, 1, hashlib.sha256(name.encode()).hexdigest()[:32])


class _LocalHarness:
    """Harness for executors whose jobs can access this machine's files, which control them (see `job`)."""

    def __init__(self, factory: Callable[..., Any], options: dict[str, Any], folder: Path) -> None:
        self._factory = factory
        self._options = options
        self._folder = folder
        self._lab = Lab.find(folder / "lab")
        self._lab.root.mkdir()
        self._executors: list[Any] = []
        self._names: dict[LaunchedJob, str] = {}
        self.remote = not self.executor().here

    def executor(self) -> Executor:
        created = self._factory(self._lab, Resources(), lambda: None, **self._options)
        executor = guarded(type(created).__name__, created)
        launch = executor.launch

        def recorded_launch(job: Job) -> LaunchedJob:
            started = launch(job)
            self._names[started] = job.name
            return started

        executor.launch = recorded_launch  # type: ignore[method-assign]
        self._executors.append(executor)
        return executor

    def job(self, name: str) -> Job:
        return Job(
            name=name,
            title="quickstart joint, seed 1",
            arguments=[str(self._folder), name],
            environment={"JESTLAB_STORE": _STORE, "TZ": "UTC"},
            log=self._lab.root / f"{name}.txt",
            key=key_of(f"{self._folder}/{name}"),
            labels={"experiment": "quickstart", "run": "joint", "seed": "1"},
            module="jestlab.testing.job",
        )

    def count(self) -> int:
        time.sleep(_LATE_SECONDS)
        return len(list(self._folder.glob("*.began")))

    def run(self, started: LaunchedJob) -> None:
        name = self._names[started]
        _until(lambda: any(self._folder.glob(f"{name}.*.began")), "the job has not started")

    def end(self, started: LaunchedJob, code: int) -> None:
        self._write(f"{self._names[started]}.code", str(code))

    def prints(self, started: LaunchedJob, lines: list[str]) -> None:
        name = self._names[started]
        self._write(f"{name}.lines", "".join(f"{line}\n" for line in lines))
        _until(lambda: not (self._folder / f"{name}.lines").exists(), "the job does not run")

    def finish_stop(self) -> None:
        """Do nothing: the jobs stop by themselves."""

    def close(self) -> None:
        for executor in self._executors:
            for started in self._names:
                executor.stop(started, now=True)
            executor.close()

    def _write(self, file: str, text: str) -> None:
        ready = self._folder / "ready"
        ready.write_text(text, encoding="utf-8")
        ready.rename(self._folder / file)


# ---- the cases


def a_job_waits_runs_and_succeeds(harness: Harness) -> None:
    """A job waits, runs, and succeeds."""
    executor = harness.executor()
    started = executor.launch(harness.job(NAME))
    assert started.handle, "the handle is empty"
    assert started.key == harness.job(NAME).key, "the launched job has another key than the job"
    _expect(executor, started, JobState.QUEUED, JobState.RUNNING)
    harness.run(started)
    _until(lambda: _status(executor, started).state != JobState.QUEUED, "a running job is still queued")
    _expect(executor, started, JobState.RUNNING)
    harness.end(started, 0)
    status = _over(executor, started)
    assert status.state == JobState.SUCCEEDED, f"exit code 0 is {status.state}, not succeeded"
    assert status.exit_code in (0, None), f"exit code 0 became {status.exit_code}"


def a_failed_job_has_a_reason(harness: Harness) -> None:
    """A job that fails has a reason, and its exit code if it is known."""
    executor, started = _run(harness)
    harness.end(started, 137)
    status = _over(executor, started)
    assert status.state == JobState.FAILED, f"a job that was killed is {status.state}, not failed"
    assert status.exit_code in (-9, None), f"the exit code of SIGKILL is {status.exit_code}, not -9"
    assert status.reason, "a job that failed has no reason"


def another_process_finds_a_job_by_its_handle(harness: Harness) -> None:
    """Another process finds a job by its handle, reads its log, and stops it."""
    _, started = _run(harness)
    harness.prints(started, ["step 1"])
    other = harness.executor()
    _expect(other, started, JobState.RUNNING)
    _expect_log(other, started, "step 1\n")
    other.stop(started, now=True)
    harness.finish_stop()
    _over(harness.executor(), started)


def the_same_name_twice_is_one_job(harness: Harness) -> None:
    """Launching a name again finds its job and doesn't start a second one."""
    one = harness.executor()
    two = harness.executor() if harness.remote else one  # a launcher of local jobs launches each name once
    started = one.launch(harness.job(NAME))
    again = (one.launch(harness.job(NAME)), two.launch(harness.job(NAME)))
    assert again == (started, started), f"{started.handle!r} became {[job.handle for job in again]}"
    harness.run(started)
    assert (count := harness.count()) == 1, f"{count} jobs with the same name run"


def statuses_of_many_jobs(harness: Harness) -> None:
    """The statuses of many jobs are correct."""
    executor = harness.executor()
    all_started = [executor.launch(harness.job(f"jestlab-0a1b2c3d-{number}")) for number in range(6)]
    assert len(set(all_started)) == 6, "two jobs have the same handle"
    harness.run(all_started[3])
    harness.run(all_started[5])
    harness.end(all_started[5], 1)
    _over(executor, all_started[5])
    found = executor.statuses(all_started)
    assert set(found) == set(all_started), "the statuses are those of other jobs"
    states = [found[started].state for started in all_started]
    assert states[3] == JobState.RUNNING and states[5] == JobState.FAILED, f"the states are {states}"
    others = {state for number, state in enumerate(states) if number not in (3, 5)}
    assert others <= {JobState.QUEUED, JobState.RUNNING}, f"the states are {states}"


def a_job_is_asked_to_stop(harness: Harness) -> None:
    """A job that is asked to stop ends; a second request changes nothing."""
    _stopped(harness, now=False)


def a_job_is_killed(harness: Harness) -> None:
    """A job that is killed ends; a second request changes nothing."""
    _stopped(harness, now=True)


def a_job_that_is_over_does_not_change(harness: Harness) -> None:
    """Stopping a job that is over changes nothing, and its log is its output in UTF-8."""
    executor, started = _run(harness)
    lines = [f"step {number}" for number in range(7)] + ["größer ≥ 3"]
    harness.prints(started, lines)
    harness.end(started, 0)
    _over(executor, started)
    executor.stop(started, now=False)
    executor.stop(started, now=True)
    harness.finish_stop()
    _expect(executor, started, JobState.SUCCEEDED)
    _expect_log(executor, started, "".join(f"{line}\n" for line in lines))


def a_job_of_another_attempt_is_left_alone(harness: Harness) -> None:
    """A job with another key belongs to another attempt: it is gone, and is neither stopped nor read."""
    if not harness.remote:
        return  # a local process is identified by its handle alone
    executor, other = _run(harness)
    harness.prints(other, ["a secret"])
    forged = LaunchedJob(other.handle, other.key._replace(token="0e" * 16))
    _expect(executor, forged, JobState.GONE)
    for now in (False, True):
        executor.stop(forged, now=now)
    try:
        read = b"".join(executor.logs(forged))
    except ExecutorError:
        read = b""
    assert not read, "the log of another attempt can be read"
    harness.finish_stop()
    _expect(executor, other, JobState.RUNNING)


CASES: tuple[Callable[[Harness], None], ...] = (
    a_job_waits_runs_and_succeeds,
    a_failed_job_has_a_reason,
    another_process_finds_a_job_by_its_handle,
    the_same_name_twice_is_one_job,
    statuses_of_many_jobs,
    a_job_is_asked_to_stop,
    a_job_is_killed,
    a_job_that_is_over_does_not_change,
    a_job_of_another_attempt_is_left_alone,
)
"""Test cases that every executor must pass."""


def _stopped(harness: Harness, *, now: bool) -> None:
    executor, started = _run(harness)
    executor.stop(started, now=now)
    harness.finish_stop()
    after = _over(executor, started).state
    assert after != JobState.SUCCEEDED, "a job that was stopped has succeeded"
    executor.stop(started, now=now)
    executor.stop(started, now=True)
    _expect(executor, started, after)


def _run(harness: Harness) -> tuple[Executor, LaunchedJob]:
    executor = harness.executor()
    started = executor.launch(harness.job(NAME))
    harness.run(started)
    return executor, started


def _status(executor: Executor, started: LaunchedJob) -> JobStatus:
    return executor.statuses([started])[started]


def _expect(executor: Executor, started: LaunchedJob, *states: JobState) -> None:
    status = _status(executor, started)
    wanted = " or ".join(states)
    assert status.state in states, (
        f"its state is {status.state}, not {wanted}: {status.reason or 'no reason'}"
    )


def _expect_log(executor: Executor, started: LaunchedJob, text: str) -> None:
    def read() -> str:
        return b"".join(executor.logs(started)).decode()

    _until(lambda: read() == text, lambda: f"its log is {read()!r}, not {text!r}")


def _over(executor: Executor, started: LaunchedJob) -> JobStatus:
    """Wait until a job is over, and return its status."""
    _until(
        lambda: _status(executor, started).state.is_over,
        lambda: f"it has not ended: {_status(executor, started).state}",
    )
    return _status(executor, started)


def _until(condition: Callable[[], bool], otherwise: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            failure = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(f"after {_PATIENCE_SECONDS:.0f} s {failure}")
        time.sleep(0.02)
