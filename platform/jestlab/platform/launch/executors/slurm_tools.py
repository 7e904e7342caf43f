"""Slurm's command-line tools: run them, parse their output and errors, and check a site for `jestlab doctor`.

This module uses text formats instead of `--json`: the fields of `squeue -o` and `sacct` are documented and
stable, but the JSON has changed between versions, and some sites build Slurm without it.
"""

import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab, network_file_system
from jestlab.platform.launch.executors.base import (
    ExecutorError,
    ExecutorUnavailable,
    JobState,
    JobStatus,
    ended,
)
from jestlab.platform.launch.executors.remote import explained, retried
from jestlab.platform.logs import one_line
from jestlab.platform.processes import EXIT_COMPLETED, exit_from_shell
from jestlab.platform.spec.resources import SlurmOptions, parse_duration

# ---- commands

_TRANSIENT = re.compile(
    "zero bytes were transmitted|temporarily unavailable|standby mode|connection reset"
    "|protocol authentication|munge|try again|in recovery"
)
_UNAVAILABLE = re.compile(
    "unable to contact|connection refused|timed out|no response|communication|transport|slurmdbd"
    "|could not resolve|unable to establish|connection failure|disk quota"
)
"""Errors if the controller is down. Slurm's commands have already retried for `MessageTimeout`."""

_KEPT_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ"),
    *("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"),
)
_SET_BY_OPTIONS = (
    *("SBATCH_EXPORT", "SBATCH_ARRAY_INX", "SBATCH_REQUEUE", "SBATCH_NO_REQUEUE", "SBATCH_SIGNAL"),
)


def run(*command: str, given: str | None = None, accept: str = "", answer_seconds: float = 20.0) -> str:
    """Run a command and return its output. After a transient error, repeat it if `given` is None.

    Args:
        command: Words of the command.
        given: Standard input; None for none. To run a command only once, give a string, even an empty one.
        accept: Regular expression for lower-case error messages to ignore.
        answer_seconds: Timeout of the command.

    Raises:
        ExecutorUnavailable: Slurm doesn't answer now.
        ExecutorError: The command isn't installed, or was rejected.
    """

    def once() -> str:
        try:
            done = subprocess.run(
                command, input=given or "", env=_environment(), capture_output=True, text=True,
                errors="replace", timeout=answer_seconds,
            )  # fmt: skip
        except FileNotFoundError:
            raise ExecutorError(
                f"{command[0]} not found: launch on a machine with Slurm's commands"
            ) from None
        except subprocess.TimeoutExpired:
            raise ExecutorUnavailable(f"{command[0]}: no answer for {answer_seconds:g} s") from None
        except OSError as error:
            raise ExecutorUnavailable(f"{command[0]} can't be started: {error.strerror}") from None
        if done.returncode and not (accept and re.search(accept, done.stderr.lower())):
            raise _translated(command[0], done.stderr)
        return done.stdout

    return retried(once) if given is None else once()


def _environment() -> dict[str, str]:
    """Return the environment of Slurm's commands, without passwords and variables of an enclosing job."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_VARIABLES or (name.startswith("SBATCH_") and name not in _SET_BY_OPTIONS)
    }
    return {**kept, "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}


def _translated(command: str, stderr: str) -> ExecutorError:
    lines = [re.sub(f"^({command}: )?(error: )?", "", line).strip() for line in stderr.splitlines()]
    line = one_line("; ".join(dict.fromkeys(filter(None, lines))), 300)
    if _TRANSIENT.search(line.lower()):
        return ExecutorUnavailable(f"{command}: {line}", transient=True)
    if _UNAVAILABLE.search(line.lower()):
        return ExecutorUnavailable(f"{command}: {line}")
    return ExecutorError(f"{command}: {explained(line) or 'failed without an error message'}")


_NO_NODE = "node configuration is not available"
_OUT_OF_SERVICE = "--states=down,drain,fail,maint,power_down,reserved"
_OTHER_JOBS = "violates accounting/qos policy"


def check_job(options: Sequence[str], limit_seconds: int | None, run: Callable[..., str] = run) -> None:
    """Check whether Slurm would accept a job and start it at some time. Submits no job.

    Args:
        options: The job's options of `sbatch`.
        limit_seconds: The job's time limit; None for the partition's.
        run: Runs a command of Slurm.

    Raises:
        ExecutorUnavailable: Slurm doesn't answer.
        ExecutorError: The job would be rejected, or exceeds the limits of its partitions.
    """
    where = [option for option in options if option.startswith("--partition=")]
    try:
        run("sbatch", "--test-only", *options, "--wrap=true")
    except ExecutorError as error:
        reason = str(error).lower()
        # The same reasons are given while suitable nodes are out of service, and while other jobs use up a
        # limit of the user. Then jobs only wait.
        waits = _NO_NODE in reason and run("sinfo", "--noheader", "--Node", _OUT_OF_SERVICE, *where)
        if not waits and _OTHER_JOBS not in reason:
            raise
    if limit_seconds is None or any(option.startswith("--qos=") for option in options):  # it may allow more
        return
    # Many sites accept jobs with longer limits than a partition's, and never start them.
    partitions = dict(
        line.split("|") for line in run("sinfo", "--noheader", "--format=%P|%l", *where).split()
    )
    limits = {name: limit for name, limit in partitions.items() if where or name.endswith("*")}
    if limits and all(limit_seconds > _seconds(limit) for limit in limits.values()):
        longest = ", ".join(f"{name.rstrip('*')}: {limit}" for name, limit in limits.items())
        raise ExecutorError(f"`time` is longer than the limit of the partition ({longest}): shorten it")


# ---- output

QUEUE_FORMAT = "%i|%T|%S|%r|%k"
"""Format of `squeue -o`: id, state, start, reason, and comment. Only the last may contain `|`."""


class QueueRow(NamedTuple):
    """A line of `squeue`."""

    id: str
    state: str
    start: str
    reason: str
    comment: str


def rows(output: str) -> list[QueueRow]:
    """Parse the output of `squeue` in `QUEUE_FORMAT`; ignore other lines."""
    lines = (line.split("|", 4) for line in output.splitlines())
    return [QueueRow(*map(str.strip, fields)) for fields in lines if len(fields) == 5]


def config(output: str) -> dict[str, str]:
    """Parse the output of `scontrol show config`, lines of KEY = VALUE."""
    pairs = (line.partition("=") for line in output.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _seconds(limit: str) -> float:
    """Parse a time limit of `sinfo`: [[DAYS-]HH:]MM:SS, or `infinite`."""
    clock = limit if limit.count(":") == 2 else f"0:{limit.zfill(5)}"
    return parse_duration(clock) if limit[:1].isdigit() else math.inf


_STATES: Mapping[JobState, str] = {
    JobState.QUEUED: "PENDING CONFIGURING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD",
    JobState.RUNNING: "RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING EXPEDITING",
    JobState.SUCCEEDED: "COMPLETED",
    JobState.FAILED: "FAILED OUT_OF_MEMORY",
    # The job ended for a reason outside the run; another attempt continues the run.
    JobState.PREEMPTED: "PREEMPTED NODE_FAIL BOOT_FAIL REVOKED DEADLINE TIMEOUT LAUNCH_FAILED RECONFIG_FAIL "
    "CANCELLED",
}
_FAULTS_OF_NODES = ("JobLaunchFailure", "NodeDown", "SystemFailure")
"""Reasons of FAILED jobs that count as preempted."""


def state_of(row: QueueRow) -> JobState:
    """Return the state of a job in the queue."""
    return next((state for state, names in _STATES.items() if row.state in names.split()), JobState.UNKNOWN)


def status(row: QueueRow, code: int | None = None) -> JobStatus:
    """Return the status of a job in the queue. `code` is the exit code of its script; None if unknown."""
    state, reason = state_of(row), row.reason.strip("()")
    if state == JobState.QUEUED:
        known = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)", row.start)
        place = f"estimated start {known[1]} {known[2]}" if known else ""
        return JobStatus(state, "" if reason == "None" else explained(reason), place=place)
    if state == JobState.RUNNING:
        return JobStatus(state, row.state if row.state == "SUSPENDED" else "")
    if state == JobState.SUCCEEDED or (code == EXIT_COMPLETED and state.is_over):
        return ended(EXIT_COMPLETED)  # the script may have completed just before Slurm ended it
    if row.state != "FAILED":
        return JobStatus(state, explained(row.state), code if state == JobState.FAILED else None)
    if code is not None:
        return ended(code)
    state = JobState.PREEMPTED if reason in _FAULTS_OF_NODES else state
    return JobStatus(state, f"failed in Slurm: {explained(reason)}")


ACCOUNT_FORMAT = "JobID,State,ExitCode,Reason,WorkDir"
"""Format of `sacct`; only the last field may contain `|`."""


def accounts(output: str) -> dict[tuple[str, str], JobStatus]:
    """Parse the output of `sacct`: (job id, name of the job's folder) → status, for jobs that have ended.

    NOTE: sacct subtracts 128 from exit codes from 128: it prints 9:0 for a script that exits with 137. For a
    script that was killed by signal 9, it prints 0:9.
    """
    found = {}
    for line in output.splitlines():
        if match := re.fullmatch(r"(.*?)\|(\w+)[^|]*\|(\d{1,5}):(\d{1,5})\|(.*?)\|(.*)", line):
            id_, state, code, number, reason, folder = match.groups()
            own = -int(number) or exit_from_shell(int(code)) or None
            row = QueueRow(id_, state, "", reason, "")
            found[id_, Path(folder).name] = status(row, None if reason in _FAULTS_OF_NODES else own)
    return {job: status for job, status in found.items() if status.state.is_over}


# ---- checks of a site, which submit no jobs

_COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "srun", "sacct")

CheckFinding = tuple[bool | None, str, str]
"""Result of a check: whether it passed (None for a warning), the finding, and the remedy."""


def is_here() -> bool:
    """Return whether this machine belongs to a Slurm cluster: it has Slurm's commands and configuration."""
    configured = "SLURM_CONF" in os.environ or Path("/etc/slurm/slurm.conf").exists()
    return configured and shutil.which("sbatch") is not None


def examine(lab: Lab, options: SlurmOptions, run: Callable[..., str] = run) -> Iterator[CheckFinding]:
    """Check a site: commands, controller, whether it accepts a minimal job, and the lab's folder.

    `run` runs a command of Slurm, and raises UserError if it fails.
    """
    if missing := [name for name in _COMMANDS if shutil.which(name) is None]:
        yield False, f"{', '.join(missing)} not found", "launch on a machine of the cluster that has them"
        return
    try:
        version, settings = run("sbatch", "--version").strip(), config(run("scontrol", "show", "config"))
    except UserError as error:
        yield False, "no answer", str(error)
        return
    yield True, f"{version}, cluster {settings.get('ClusterName', '?')}", ""
    names = ("partition", "account", "qos", "constraint")
    given = [f"--{name}={value}" for name in names if (value := getattr(options, name)) is not None]
    try:
        run("sbatch", "--test-only", *given, *options.options, "--wrap=true")
        yield True, "a job would be accepted", ""
    except UserError as error:
        yield False, "a job would be rejected", str(error)
    if lab.remote is not None:
        yield False, f"the lab is at {lab.remote}", "--root DIR: a folder that all nodes share"
    elif network_file_system(lab.root) is None:
        disk = f"the lab {lab.root} is on a disk of this machine"
        yield None, disk, "nodes must see it under the same path"
