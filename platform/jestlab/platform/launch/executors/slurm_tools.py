"""Slurm's command-line tools: run them with a timeout, and read their answers and errors.

Text formats instead of `--json`: the letters of `squeue -o` are documented and stable. The JSON has changed
between versions, and some sites build Slurm without it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jestlab.platform.launch.executors.base import ExecutorError, ExecutorUnavailable, JobState, JobStatus
from jestlab.platform.launch.executors.reasons import explained
from jestlab.platform.launch.executors.retry import Transient, retried
from jestlab.platform.logs import one_line
from jestlab.platform.processes import EXIT_COMPLETED, describe_exit
from jestlab.platform.words import ordinal

# ---- commands

_TRANSIENT = (
    *("zero bytes were transmitted", "temporarily unavailable", "standby mode", "connection reset"),
    *("protocol authentication", "munge", "try again", "in recovery"),
)
"""Parts of errors that may pass within seconds."""

_UNAVAILABLE = (
    *("unable to contact", "connection refused", "connection timed out", "timed out", "no response"),
    *("communication", "transport", "slurmdbd", "could not resolve", "unable to establish"),
    *("connection failure", "disk quota"),
)
"""Parts of errors of a controller or database that is down. Slurm's commands have already retried for
`MessageTimeout`."""

_KEPT_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ"),
    *("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"),
)
_SET_BY_OPTIONS = {
    *("SBATCH_EXPORT", "SBATCH_ARRAY_INX", "SBATCH_REQUEUE", "SBATCH_NO_REQUEUE", "SBATCH_SIGNAL"),
}


class SlurmTools:
    """Runs Slurm's commands."""

    def __init__(self, answer_seconds: float) -> None:
        """Create it without running anything; each command has `answer_seconds` to answer."""
        self._answer_seconds = answer_seconds

    def run(self, *command: str, accept: Sequence[str] = ()) -> str:
        """Run a command that is safe to repeat, and return its output.

        Args:
            command: Words of the command.
            accept: Parts of errors, in lower case, to ignore.

        Raises:
            ExecutorUnavailable: Slurm does not answer now.
            ExecutorError: The command isn't installed, or was rejected.
        """
        return retried(lambda: self.run_once(*command, accept=accept))

    def run_once(self, *command: str, given: str = "", accept: Sequence[str] = ()) -> str:
        """Run a command like `run`, but only once, with `given` as its standard input.

        Raises:
            Transient: The error may pass within seconds.
        """
        try:
            done = subprocess.run(
                command,
                input=given,
                env=_environment(),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._answer_seconds,
            )
        except FileNotFoundError:
            raise ExecutorError(
                f"{command[0]} not found: launch on a machine with Slurm's commands"
            ) from None
        except subprocess.TimeoutExpired:
            raise ExecutorUnavailable(f"{command[0]}: no answer for {self._answer_seconds:g} s") from None
        except OSError as error:
            raise ExecutorUnavailable(f"{command[0]} can't be started: {error.strerror}") from None
        if done.returncode and not any(part in done.stderr.lower() for part in accept):
            raise _translated(command[0], done.stderr)
        return done.stdout


def _environment() -> dict[str, str]:
    """Return an environment without the variables of a surrounding job, and without passwords."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_VARIABLES or (name.startswith("SBATCH_") and name not in _SET_BY_OPTIONS)
    }
    return {**kept, "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}


def _translated(command: str, stderr: str) -> Exception:
    lines = [line.removeprefix(f"{command}: ").removeprefix("error: ") for line in stderr.splitlines()]
    line = one_line("; ".join(dict.fromkeys(line.strip() for line in lines if line.strip())), 300)
    lower = line.lower()
    if any(part in lower for part in _TRANSIENT):
        return Transient(ExecutorUnavailable(f"{command}: {line}"))
    if any(part in lower for part in _UNAVAILABLE):
        return ExecutorUnavailable(f"{command}: {line}")
    return ExecutorError(f"{command}: {explained(line) or 'failed without an error message'}")


# ---- answers

QUEUE_FORMAT = "%i|%T|%P|%Q|%S|%r|%k"
"""Format of `squeue -o`: id, state, partition, priority, start, reason, comment (which may contain `|`)."""


@dataclass(frozen=True)
class QueueRow:
    """A line of `squeue`."""

    id: str
    state: str
    partition: str
    priority: int
    start: str
    reason: str
    comment: str


def rows(answer: str) -> list[QueueRow]:
    """Parse the output of `squeue` in `QUEUE_FORMAT`, without other lines."""
    parsed = []
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split("|", 6)]
        if len(fields) == 7:
            priority = int(fields[3]) if fields[3].isascii() and fields[3].isdecimal() else 0
            parsed.append(QueueRow(fields[0], fields[1], fields[2], priority, *fields[4:]))
    return parsed


def config(answer: str) -> Mapping[str, str]:
    """Parse `scontrol show config`: lines of KEY = VALUE."""
    pairs = (line.partition("=") for line in answer.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


# ---- states

WAITING = (
    *("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
)
"""States of jobs that have not started."""
_ACTIVE = (
    *("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "EXPEDITING"),
)
_PREEMPTED = (
    *("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED", "DEADLINE", "TIMEOUT", "LAUNCH_FAILED"),
    *("RECONFIG_FAIL", "CANCELLED"),
)
"""States of jobs that ended for a reason outside the run: it continues in another job."""
_FAULTS_OF_NODES = ("JobLaunchFailure", "NodeDown", "SystemFailure")
"""Reasons of FAILED jobs."""


def is_over(state: str) -> bool:
    """Whether a job stays in a state."""
    return _base(state) not in (*WAITING, *_ACTIVE)


def status(state: str, reason: str = "", code: int | None = None, place: str = "") -> JobStatus:
    """Return the status of a job by its state from squeue, such as `CANCELLED by 1000` or `FAILED+`.

    `code` is the exit code of the job's script, if known.
    """
    base = _base(state)
    if base in WAITING:
        reason = reason.strip("()")
        return JobStatus(JobState.QUEUED, "" if reason == "None" else explained(reason), place=place)
    if base in _ACTIVE:
        return JobStatus(JobState.RUNNING, base if base == "SUSPENDED" else "")
    if base == "COMPLETED":
        return JobStatus(JobState.SUCCEEDED, exit_code=EXIT_COMPLETED)
    if base.startswith("OUT_OF_ME"):
        return JobStatus(JobState.FAILED, explained(state), code)
    if base in _PREEMPTED:
        return JobStatus(JobState.PREEMPTED, explained(state))
    if base == "FAILED":
        return ended(code, reason)
    return JobStatus(JobState.UNKNOWN, f"unknown state {base!r} of Slurm")


def ended(code: int | None, reason: str = "") -> JobStatus:
    """Return the status of a job by its exit code, negative for a signal, or else by Slurm's reason."""
    if code == EXIT_COMPLETED:
        return JobStatus(JobState.SUCCEEDED, exit_code=code)
    if code is not None:
        return JobStatus(JobState.FAILED, describe_exit(code), code)
    state = JobState.PREEMPTED if reason in _FAULTS_OF_NODES else JobState.FAILED
    return JobStatus(state, f"failed in Slurm: {explained(reason) or 'no reason given'}")


def queue_position(row: QueueRow, pending: Iterable[tuple[int, str]]) -> str:
    """Return a job's position in its partition's queue and its estimated start.

    `pending` has the priority and the id of each pending job of the partition.
    """
    ids = [id_ for _, id_ in sorted(pending, key=lambda job: -job[0])]
    parts = []
    if row.id in ids:
        parts.append(f"{ordinal(ids.index(row.id) + 1)} of {len(ids)} in partition {row.partition}")
    if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", row.start):
        parts.append(f"estimated start {row.start[:16].replace('T', ' ')}")
    return ", ".join(parts)


def _base(state: str) -> str:
    words = state.split()
    return words[0].rstrip("+") if words else ""
