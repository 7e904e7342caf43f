"""Jobs as processes of this machine: each a session with a log of its own, outliving its launcher.

All processes of a job end with its worker: the worker sees to it, this executor when a worker was killed, and
the next launcher where both were. They are found by their session and by the job's mark.

A job that names modules which take long to import is forked from a server that has imported them (see
`forkserver`, the server's side); any other is a fresh process.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from jestlab.platform.errors import StoreUnreachable, UserError, sentence
from jestlab.platform.gpus import VISIBLE, LocalGpus, TakenGpus
from jestlab.platform.lab.lab import SERVE_TOKEN, Lab
from jestlab.platform.launch.executor import (
    Executor,
    ExecutorAway,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
    Marks,
    StillRuns,
)
from jestlab.platform.launch.executors.environment import ONE_THREAD, worker_environment
from jestlab.platform.processes import (
    EXIT_COMPLETED,
    MARK,
    Process,
    describe_exit,
    end_job,
    is_running,
    still_there,
)
from jestlab.platform.spec.resources import LOCAL_PARALLEL, Resources

PATIENCE_SECONDS = 120.0
"""How long a fork server may take to import and fork before it is abandoned."""

CLOSE_SECONDS = 5.0
"""How long a fork server may take to end by itself: one that was frozen does not."""

_FORK_SERVER = "jestlab.platform.launch.executors.forkserver"
_BLOCK = 1 << 20
_PACKET_BYTES = 1 << 17  # as in `forkserver`
_TOLD_SECONDS = 5.0
"""How long after a process has ended the thread that waits for it may take to be told."""
_HALTED = "the launch was stopped"
_LOST_SECONDS = 0.5  # between looks at a job whose end nobody will tell


class Local(Executor):
    """Launches jobs as processes of this machine. A handle is `machine:pid:start:log`: see `processes`."""

    name = "local"
    here = True
    grace_seconds = 10.0

    def __init__(
        self, lab: Lab, resources: Resources | None = None, on_exit: Callable[[], None] = lambda: None
    ) -> None:
        """Create an executor; nothing runs yet.

        Args:
            lab: Where compiled functions are kept, and logs are.
            resources: Threads of a job, so that parallel jobs do not compete for cores, its memory: no job is
                started while less is free; and its GPUs, which no other job has.
            on_exit: Called from another thread when a job has ended.

        Raises:
            UserError: This machine has fewer GPUs than a job asks for.
        """
        resources = resources or Resources()
        # As many jobs as memory allows, at least one.
        fit = psutil.virtual_memory().total / 1e9 / resources.memory_gb if resources.memory_gb else math.inf
        self._devices = LocalGpus(resources) if resources.gpus else None
        most = LOCAL_PARALLEL if self._devices is None else self._devices.jobs
        self.parallel: int | None = int(max(min(most, fit), 1))
        self._threads = resources.threads
        self._memory_gb = resources.memory_gb
        self._lab = lab
        self._on_exit = on_exit
        self._children: dict[LaunchedJob, _Child] = {}
        self._server: ForkServer | None = None
        self._forks = type(self).command is Local.command
        self._halted = False
        self._launched: dict[Marks, LaunchedJob] = {}
        self._lock = threading.Lock()

    def launch(self, job: Job) -> LaunchedJob:
        """Start a job, unless this object has started the same attempt's."""
        with self._lock:
            if job.marks not in self._launched:
                self._launched[job.marks] = self._start(job)
            return self._launched[job.marks]

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the states of jobs; UNKNOWN for those of other machines and hidden users."""
        return {job: self._status(job) for job in jobs}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Send SIGTERM to a job's process group, or kill all its processes now and wait for their end."""
        process = Process.parse(job.handle)
        if not process.is_here:
            raise ExecutorError(f"process {process.pid} runs on {process.machine}: stop it there")
        child = self._children.get(job)
        if child is not None and child.over.is_set() and not child.left:
            return
        try:
            if process.runs() or process.is_hidden():
                os.killpg(process.pid, signal.SIGKILL if now else signal.SIGTERM)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise ExecutorError(f"process {process.pid} is another user's: let them stop it") from None
        if now and (left := end_job(process, str(job.marks))):
            raise StillRuns(still_there(left))
        if now and child is not None:
            child.over.wait(_TOLD_SECONDS)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return what the job has printed so far: its log, a file of the lab."""
        try:
            with self._lab.inside(job.handle.split(":", 3)[3]).open("rb") as stream:
                while block := stream.read(_BLOCK):
                    yield block
        except (OSError, UserError) as error:
            raise ExecutorError(f"no log: {sentence(error)}") from error

    def halt(self) -> None:
        """Launch nothing any more; a job that a fork server has not yet started never begins."""
        self._halted = True
        if (server := self._server) is not None:
            server.halt()

    def settle(self, seconds: float) -> None:
        """Wait until the jobs that this object launched have ended, with all their processes."""
        deadline = time.monotonic() + seconds
        for child in list(self._children.values()):
            child.over.wait(max(deadline - time.monotonic(), 0.0))

    def close(self) -> None:
        """End the fork server; jobs that it started go on."""
        self.halt()
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None

    def has_room(self) -> bool:
        """Whether there is memory for one more job; yes if the study does not say how much one takes."""
        return self._memory_gb is None or psutil.virtual_memory().available / 1e9 >= self._memory_gb

    def room(self) -> int | None:
        """How many more jobs there are GPUs for; None where they need none."""
        return None if self._devices is None else self._devices.room()

    def _start(self, job: Job) -> LaunchedJob:
        log = job.log.relative_to(self._lab.root)
        self._check_going_on()
        try:
            self._lab.make_folder(log.parent)
        except StoreUnreachable as error:
            raise ExecutorAway(str(error)) from None
        try:
            child = _Child(self._forked(job) or self._executed(job))
        except OSError as error:
            raise ExecutorError(f"cannot start {self.command(job)[0]}: {sentence(error)}") from error
        named = Process.of(child.process.pid)
        launched = LaunchedJob(f"{named}:{log}", job.marks)
        self._children[launched] = child
        threading.Thread(target=self._wait, args=(child, named, launched), name=job.name, daemon=True).start()
        return launched

    def command(self, job: Job) -> list[str]:
        """Return the command of a job's process: a class of one's own may put something before it."""
        return job.command

    def _executed(self, job: Job) -> subprocess.Popen[bytes] | Forked:
        """Start a job as a fresh process."""
        self._check_going_on()  # the fork server may have been waited for
        taken = TakenGpus("", ()) if self._devices is None else self._devices.take()
        if taken is None:
            raise ExecutorAway("all GPUs of this machine are taken")
        own = {VISIBLE: taken.visible} if taken.files else {}
        try:
            with job.log.open("ab") as log:
                return subprocess.Popen(
                    self.command(job),
                    env={
                        **_inherited(),
                        **self.environment(),
                        **own,
                        **job.environment,
                        MARK: str(job.marks),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=taken.files,
                    start_new_session=True,
                )
        finally:
            taken.close()

    def _forked(self, job: Job) -> Forked | None:
        """Fork a job from a process that has imported what it needs; None if it has to be a fresh process."""
        if not job.imports or not self._forks or self._devices is not None:
            return None  # a fork would neither inherit the files that hold its GPUs, nor see these alone
        try:
            if self._server is None:
                self._server = ForkServer({**_inherited(), **self.environment()}, job.log)
            return self._server.start(job, lambda: not self._halted)
        except ForkServerError as error:
            self._forks = False
            if not self._halted:
                with job.log.open("a", encoding="utf-8") as log:
                    log.write(f"jestlab: {error}: from here on each run imports everything itself\n")
            return None

    def _check_going_on(self) -> None:
        if self._halted:
            raise ExecutorError(_HALTED)

    def _wait(self, child: _Child, named: Process, job: LaunchedJob) -> None:
        child.process.wait()
        while isinstance(child.process, Forked) and child.process.lost and named.runs():
            time.sleep(_LOST_SECONDS)
        child.left = end_job(named, str(job.marks))  # what it has left behind
        child.over.set()
        self._on_exit()

    def _status(self, job: LaunchedJob) -> JobStatus:
        child = self._children.get(job)
        if child is None:
            if (running := is_running(job.handle)) is None:
                return JobStatus(JobState.UNKNOWN, "on another machine, or owned by another user")
            return JobStatus(JobState.RUNNING if running else JobState.GONE)
        if child.process.poll() is not None or is_running(job.handle) is False:
            child.over.wait(_TOLD_SECONDS)  # its thread is being told, or ends what is left
        if not child.over.is_set():
            return JobStatus(JobState.RUNNING)
        if (code := child.process.poll()) is None:
            return JobStatus(JobState.GONE)
        state = JobState.SUCCEEDED if code == EXIT_COMPLETED else JobState.FAILED
        return JobStatus(state, "" if code == EXIT_COMPLETED else describe_exit(code), code)

    def environment(self) -> dict[str, str]:
        """Return what a worker's environment has beyond this process's."""
        return worker_environment(self._threads, self._lab)


_OF_KERNELS = ("MPLBACKEND", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "JPY_PARENT_PID")
"""What the kernel of a notebook sets for its cells: where figures go, and that all output takes colours."""


def _inherited() -> dict[str, str]:
    """Return the environment that workers inherit, in a notebook as elsewhere."""
    left_out = (SERVE_TOKEN, *(_OF_KERNELS if "ipykernel" in sys.modules else ()))
    return {name: value for name, value in os.environ.items() if name not in left_out}


class _Child:
    """The process of a job that this object has started.

    Attributes:
        process: Its worker.
        over: Set when the worker has ended, and all that it had started.
        left: Ids of processes that could not be killed.
    """

    def __init__(self, process: subprocess.Popen[bytes] | Forked) -> None:
        self.process = process
        self.over = threading.Event()
        self.left: set[int] = set()


# ---- the launcher's side of the fork server


class ForkServerError(Exception):
    """A job was not forked; the message says why."""


class Forked:
    """A forked job, with the methods of `subprocess.Popen` that are used for other jobs.

    Attributes:
        pid: Its process.
        lost: Whether the server has gone, so that nobody will tell how the job ends.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lost = False
        self._code: int | None = None
        self._told = threading.Event()

    def poll(self) -> int | None:
        """Return the exit code, or minus a signal's number; None while it runs, or if nobody knows."""
        return self._code

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the end is known or never will be, or so many seconds; return as `poll` does."""
        self._told.wait(timeout)
        return self._code

    def tell(self, code: int | None) -> None:
        """Record how it ended; None if nobody will ever know."""
        self._code, self.lost = code, code is None
        self._told.set()


class ForkServer:
    """Starts a fork server and gives it jobs."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        """Start the server; it imports nothing heavy yet.

        Args:
            environment: Environment of the server and its jobs, in which NumPy uses one thread.
            log: Where the server reports its own errors: the log of the first job.

        Raises:
            ForkServerError: It cannot be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", _FORK_SERVER, str(theirs.fileno())]
        try:
            with theirs, log.open("ab") as output:
                self._process = subprocess.Popen(
                    command,
                    env={**environment, **ONE_THREAD},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise ForkServerError(f"cannot start {command[0]}: {sentence(error)}") from error
        self._channel = ours
        self._answers: queue.SimpleQueue[Forked | str] = queue.SimpleQueue()
        # The thread must not hold this object: the server ends once nobody refers to it any more.
        threading.Thread(
            target=_listen, args=(ours, self._process, self._answers), name="forkserver", daemon=True
        ).start()
        self._finalizer = weakref.finalize(self, _hang_up, ours)

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def halt(self) -> None:
        """Wake whoever waits for a job to be forked, which then never begins."""
        self._answers.put(_HALTED)

    def close(self) -> None:
        """End the server and wait for its end; its jobs go on."""
        self._finalizer()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(self, job: Job, may_begin: Callable[[], bool] = lambda: True) -> Forked:
        """Fork a job; return when it leads its own session, writes to its own log, and has been let begin.

        A job that is not let begin, because it may not or because this process has ended, never does.

        Args:
            job: The job.
            may_begin: Asked when it has been forked; `halt` wakes who waits for that.

        Raises:
            ForkServerError: It was not forked, or never begins.
        """
        order = {
            "imports": list(job.imports),
            "arguments": list(job.arguments),
            "environment": {**job.environment, MARK: str(job.marks)},
            "log": str(job.log),
        }
        theirs, ours = os.pipe()
        try:
            try:
                socket.send_fds(self._channel, [json.dumps(order).encode()], [theirs])
            finally:
                os.close(theirs)
            answer = self._answers.get(timeout=PATIENCE_SECONDS)
            if isinstance(answer, Forked) and may_begin():
                os.write(ours, b"go")
                return answer
        except OSError as error:
            raise ForkServerError(f"the fork server has ended: {error}") from error
        except queue.Empty:
            self._process.kill()
            raise ForkServerError(f"the fork server said nothing for {PATIENCE_SECONDS:.0f} s") from None
        finally:
            os.close(ours)
        raise ForkServerError(answer if isinstance(answer, str) else _HALTED)


def _hang_up(channel: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side has done so
        channel.shutdown(socket.SHUT_RDWR)


def _listen(
    channel: socket.socket, process: subprocess.Popen[bytes], answers: queue.SimpleQueue[Forked | str]
) -> None:
    """Receive what the server says, until it ends."""
    children: dict[int, Forked] = {}
    with channel, contextlib.suppress(ConnectionError):  # the other side has gone
        while packet := channel.recv(_PACKET_BYTES):
            said = json.loads(packet)
            if "ended" in said:
                children.pop(said["ended"]).tell(said["code"])
            elif "started" in said:
                child = children[said["started"]] = Forked(said["started"])
                answers.put(child)
            else:
                answers.put(str(said["refused"]))
    code = process.wait()
    answers.put(f"the fork server has ended, exit code {code}")
    for child in children.values():
        child.tell(None)
