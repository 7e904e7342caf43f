"""What every executor promises, one case after the other, by a harness that sets the scene for it."""

from __future__ import annotations

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
from jestlab.platform.launch.executors.custom import Guarded
from jestlab.platform.spec.resources import Resources

NAME = "jestlab-0a1b2c3d-1"
_OBEDIENT = "jestlab.testing.job"
_PATIENCE_SECONDS = 30.0
_LATE_SECONDS = 0.5  # after which a second job of one name would have begun
_STORE = "postgresql+psycopg://ada:correct-horse@db.example/lab"


class Harness(Protocol):
    """Sets scenes for one executor.

    Attributes:
        remote: Whether another process knows as much of a job as the one that launched it.
    """

    remote: bool

    def executor(self) -> Executor:
        """Create one, as another process would."""

    def job(self, name: str) -> Job:
        """Describe a job that the executor can launch."""

    def count(self) -> int:
        """Count the jobs that wait or run."""

    def run(self, started: LaunchedJob) -> None:
        """Let a job begin."""

    def end(self, started: LaunchedJob, code: int) -> None:
        """Let a job's first process end."""

    def finish_stop(self) -> None:
        """Let what was asked to stop have stopped."""

    def prints(self, started: LaunchedJob, lines: list[str]) -> None:
        """Let a job print lines."""

    def close(self) -> None:
        """Leave nothing behind."""


def check_executor(executor: Callable[..., Any], **options: Any) -> None:
    """Check an executor: a class, or function, that takes `(lab, resources, on_exit, **options)`.

    It launches real jobs, which do as they are told, in a temporary folder that they have to see (TMPDIR
    says where that is). Checked: a job runs, succeeds, or fails with its exit code; another process finds it
    by its handle; the same name twice is one job; many are told apart; it is stopped, at once or not, and a
    second time without harm; what it prints is its log; and, unless jobs are `here`, it is left alone where
    its marks are of another attempt.

    Args:
        executor: The class.
        options: Its further arguments.

    Raises:
        AssertionError: It is no executor; the message says why.
    """
    for case in CASES:
        # A job that a bad executor has not ended may still write there; what is to be told is what it broke.
        with tempfile.TemporaryDirectory(prefix="jestlab-", ignore_cleanup_errors=True) as folder:
            harness = _Obedient(executor, options, Path(folder))
            try:
                case(harness)
            except AssertionError as error:
                raise AssertionError(f"{_told(case)}: {error}") from error
            except Exception as error:
                raise AssertionError(f"{_told(case)}: {type(error).__name__}: {error}") from error
            finally:
                harness.close()


def key_of(name: str) -> JobKey:
    """Return marks of a job of this name, with a token of its own."""
    return JobKey("5e" * 16, "0a1b2c3d" * 8, 1, hashlib.sha256(name.encode()).hexdigest()[:32])


class _Obedient:
    """A harness for any executor that can start a Python module.

    Attributes:
        remote: As of `Harness`.
    """

    def __init__(self, make: Callable[..., Any], options: dict[str, Any], folder: Path) -> None:
        self._make = make
        self._options = options
        self._folder = folder
        self._lab = Lab.find(folder / "lab")
        self._lab.root.mkdir()
        self._made: list[tuple[Guarded, dict[LaunchedJob, str]]] = []
        self.remote = not self.executor().here

    def executor(self) -> Executor:
        made = _Watched(self._make(self._lab, Resources(), lambda: None, **self._options))
        self._made.append((made, made.launched))
        return made

    def job(self, name: str) -> Job:
        return Job(
            name=name,
            title="quickstart joint, seed 1",
            arguments=[str(self._folder), name],
            environment={"JESTLAB_STORE": _STORE, "TZ": "UTC"},
            log=self._lab.root / f"{name}.txt",
            key=key_of(f"{self._folder}/{name}"),
            labels={"experiment": "quickstart", "run": "joint", "seed": "1"},
            module=_OBEDIENT,
        )

    def count(self) -> int:
        time.sleep(_LATE_SECONDS)
        return len(list(self._folder.glob("*.began")))

    def run(self, started: LaunchedJob) -> None:
        name = self._name(started)
        _until(lambda: any(self._folder.glob(f"{name}.*.began")), "the job has not begun")

    def end(self, started: LaunchedJob, code: int) -> None:
        self._tell(f"{self._name(started)}.code", str(code))

    def prints(self, started: LaunchedJob, lines: list[str]) -> None:
        name = self._name(started)
        self._tell(f"{name}.lines", "".join(f"{line}\n" for line in lines))
        _until(lambda: not (self._folder / f"{name}.lines").exists(), "the job does not run")

    def finish_stop(self) -> None:
        """It stops by itself."""

    def close(self) -> None:
        for executor, launched in self._made:
            for started in launched:
                executor.stop(started, now=True)
            executor.close()

    def _name(self, started: LaunchedJob) -> str:
        return next(launched[started] for _, launched in self._made if started in launched)

    def _tell(self, file: str, text: str) -> None:
        ready = self._folder / "ready"
        ready.write_text(text, encoding="utf-8")
        ready.rename(self._folder / file)


class _Watched(Guarded):
    """An executor that remembers what it has launched."""

    def __init__(self, executor: Any) -> None:
        super().__init__(type(executor).__name__, executor)
        self.launched: dict[LaunchedJob, str] = {}

    def launch(self, job: Job) -> LaunchedJob:
        started = super().launch(job)
        self.launched[started] = job.name
        return started


# ---- the cases


def a_job_waits_runs_and_succeeds(harness: Harness) -> None:
    """A job waits, runs and succeeds."""
    executor = harness.executor()
    started = executor.launch(harness.job(NAME))
    assert started.handle, "the handle is empty, and a store keeps it to find the job"
    assert started.key == harness.job(NAME).key, "the launched job has other marks than the job"
    _expect(executor, started, JobState.QUEUED, JobState.RUNNING)
    harness.run(started)
    # A job may have begun before whoever runs it says so.
    _until(lambda: _state(executor, started) != JobState.QUEUED, "it runs, and its state is still queued")
    _expect(executor, started, JobState.RUNNING)
    harness.end(started, 0)
    status = _over(executor, started)
    assert status.state == JobState.SUCCEEDED, f"exit code 0 is {status.state}, not succeeded"
    assert status.exit_code in (0, None), f"exit code 0 is told as {status.exit_code}"


def a_job_that_fails_says_so(harness: Harness) -> None:
    """A job that fails says so, with its exit code where that is known."""
    executor = harness.executor()
    started = executor.launch(harness.job(NAME))
    harness.run(started)
    harness.end(started, 137)
    status = _over(executor, started)
    assert status.state == JobState.FAILED, f"a job that was killed is {status.state}, not failed"
    assert status.exit_code in (-9, None), f"SIGKILL is told as {status.exit_code}, not as -9"
    assert status.reason, "a job that failed has no reason"


def another_process_finds_a_job_by_its_handle(harness: Harness) -> None:
    """Another process finds a job by its handle, reads its log and stops it."""
    started = harness.executor().launch(harness.job(NAME))
    harness.run(started)
    harness.prints(started, ["step 1"])
    other = harness.executor()
    _expect(other, started, JobState.RUNNING)
    _expect_log(other, started, "step 1\n")
    other.stop(started, now=True)
    harness.finish_stop()
    _over(harness.executor(), started)


def the_same_name_twice_is_one_job(harness: Harness) -> None:
    """Launching a name again finds its job, and starts no second one."""
    one = harness.executor()
    two = harness.executor() if harness.remote else one  # a launcher names each of its jobs once
    started = one.launch(harness.job(NAME))
    again = (one.launch(harness.job(NAME)), two.launch(harness.job(NAME)))
    assert again == (started, started), f"{started.handle!r} became {[job.handle for job in again]}"
    harness.run(started)
    assert (count := harness.count()) == 1, f"{count} jobs of one name run"


def many_jobs_are_told_apart(harness: Harness) -> None:
    """Many jobs are told apart, also when they are asked for together."""
    executor = harness.executor()
    all_started = [executor.launch(harness.job(f"jestlab-0a1b2c3d-{number}")) for number in range(6)]
    assert len(set(all_started)) == 6, "two jobs have one handle"
    harness.run(all_started[3])
    harness.run(all_started[5])
    harness.end(all_started[5], 1)
    _over(executor, all_started[5])
    found = executor.statuses(all_started)
    assert set(found) == set(all_started), "statuses are not of the jobs that were asked for"
    states = [found[started].state for started in all_started]
    assert states[3] == JobState.RUNNING and states[5] == JobState.FAILED, f"the states are {states}"
    others = {state for number, state in enumerate(states) if number not in (3, 5)}
    assert others <= {JobState.QUEUED, JobState.RUNNING}, f"the states are {states}"


def a_job_is_asked_to_stop(harness: Harness) -> None:
    """A job that is asked to stop ends, and a second time changes nothing."""
    _stopped(harness, now=False)


def a_job_is_killed(harness: Harness) -> None:
    """A job that is stopped now ends, and a second time changes nothing."""
    _stopped(harness, now=True)


def nothing_happens_to_one_that_is_over(harness: Harness) -> None:
    """A job that is over stays as it is when it is stopped, and its log can be read."""
    executor = harness.executor()
    started = executor.launch(harness.job(NAME))
    harness.run(started)
    harness.prints(started, ["done"])
    harness.end(started, 0)
    _over(executor, started)
    executor.stop(started, now=False)
    executor.stop(started, now=True)
    harness.finish_stop()
    _expect(executor, started, JobState.SUCCEEDED)
    _expect_log(executor, started, "done\n")


def logs_are_what_was_printed(harness: Harness) -> None:
    """The log is what the job has printed, in UTF-8."""
    executor = harness.executor()
    started = executor.launch(harness.job(NAME))
    harness.run(started)
    lines = [f"step {number}" for number in range(7)] + ["größer ≥ 3"]
    harness.prints(started, lines)
    _expect_log(executor, started, "".join(f"{line}\n" for line in lines))


def a_job_of_another_attempt_is_left_alone(harness: Harness) -> None:
    """A job whose marks are of another attempt is gone for it: neither watched, nor stopped, nor read."""
    if not harness.remote:
        return  # the handle of a process of this machine is of that process alone
    executor = harness.executor()
    theirs = executor.launch(harness.job(NAME))
    harness.run(theirs)
    harness.prints(theirs, ["a secret"])
    forged = LaunchedJob(theirs.handle, theirs.key._replace(token="0e" * 16))
    _expect(executor, forged, JobState.GONE)
    for now in (False, True):
        executor.stop(forged, now=now)
    try:
        read = b"".join(executor.logs(forged))
    except ExecutorError:
        read = b""
    assert not read, "the log of another attempt's job is read"
    harness.finish_stop()
    _expect(executor, theirs, JobState.RUNNING)


CASES: tuple[Callable[[Harness], None], ...] = (
    a_job_waits_runs_and_succeeds,
    a_job_that_fails_says_so,
    another_process_finds_a_job_by_its_handle,
    the_same_name_twice_is_one_job,
    many_jobs_are_told_apart,
    a_job_is_asked_to_stop,
    a_job_is_killed,
    nothing_happens_to_one_that_is_over,
    logs_are_what_was_printed,
    a_job_of_another_attempt_is_left_alone,
)
"""Every executor passes each of them."""


def _stopped(harness: Harness, *, now: bool) -> None:
    executor = harness.executor()
    started = executor.launch(harness.job(NAME))
    harness.run(started)
    executor.stop(started, now=now)
    harness.finish_stop()
    after = _over(executor, started).state
    assert after != JobState.SUCCEEDED, "a job that was stopped has succeeded"
    executor.stop(started, now=now)
    executor.stop(started, now=True)
    _expect(executor, started, after)


def _state(executor: Executor, started: LaunchedJob) -> JobState:
    return executor.statuses([started])[started].state


def _expect(executor: Executor, started: LaunchedJob, *states: JobState) -> None:
    status = executor.statuses([started])[started]
    wanted = " or ".join(states)
    assert status.state in states, (
        f"its state is {status.state}, not {wanted}: {status.reason or 'no reason'}"
    )


def _expect_log(executor: Executor, started: LaunchedJob, text: str) -> None:
    def read() -> str:
        return b"".join(executor.logs(started)).decode()

    _until(lambda: read() == text, lambda: f"its log is {read()!r}, not {text!r}")


def _over(executor: Executor, started: LaunchedJob) -> JobStatus:
    """Wait until a job is over; return how."""
    found: list[JobStatus] = []

    def is_over() -> bool:
        found[:] = executor.statuses([started]).values()
        return found[0].state.is_over

    _until(is_over, lambda: f"it has not ended: {found[0].state}, {found[0].reason or 'no reason'}")
    return found[0]


def _until(condition: Callable[[], bool], otherwise: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            told = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(f"after {_PATIENCE_SECONDS:.0f} s {told}")
        time.sleep(0.02)


def _told(case: Callable[[Harness], None]) -> str:
    return (case.__doc__ or case.__name__).strip().rstrip(".")
