"""What Slurm's answers say of a job: lines of `squeue`, `scontrol` and `sacct`, states and reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jestlab.platform.launch.executor import JobState, JobStatus
from jestlab.platform.processes import EXIT_COMPLETED, describe_exit, exit_from_shell
from jestlab.platform.words import ordinal

QUEUE_FORMAT = "%i|%T|%P|%Q|%S|%r|%k"
"""Of `squeue -o`: id, state, partition, priority, start, reason, comment, which may hold a `|`."""

ACCOUNT_FIELDS = "JobID,State,ExitCode,WorkDir"
"""Of `sacct -o`."""

LATER = (
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
)
"""States in which a job waits."""
_NOW = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "EXPEDITING")
_TAKEN = {
    "PREEMPTED": "preempted by a job with a higher priority",
    "NODE_FAIL": "a node of it failed",
    "BOOT_FAIL": "a node of it did not boot",
    "REVOKED": "Slurm gave it to another cluster",
    "DEADLINE": "its deadline had come",
    "TIMEOUT": "stopped at its time limit, before it had saved",
    "LAUNCH_FAILED": "a node could not start it",
    "RECONFIG_FAIL": "a node could not be configured for it",
}
_MEMORY = "out of memory: raise `resources.memory_gb`"

_WAITS: dict[str, tuple[str, str]] = {
    "Priority": ("jobs with a higher priority are before it", ""),
    "Resources": ("it is next, and waits for nodes that are in use", "the end of a job on such nodes"),
    "None": ("Slurm has not yet looked at it", ""),
    "BeginTime": ("its time to begin has not come", ""),
    "Dependency": ("it waits for another job", "the end of that job"),
    "DependencyNeverSatisfied": ("it waits for a job that will not end well", "cancel it and launch again"),
    "JobArrayTaskLimit": ("so many jobs of its array run at a time", "the end of one of them"),
    "JobHeldUser": ("it is held", "scontrol release"),
    "JobHeldAdmin": ("it is held by an administrator", "ask them to release it"),
    "ReqNodeNotAvail": (
        "nodes that it needs are down, drained or reserved",
        "those nodes come back, or fewer `nodes`",
    ),
    "Nodes_required_for_job_are_DOWN": (
        "nodes that it needs are down, drained or reserved",
        "those nodes come back",
    ),
    "PartitionNodeLimit": (
        "its partition has not so many nodes, or not such ones",
        "fewer `nodes`, or another partition",
    ),
    "PartitionTimeLimit": (
        "its time is above what the partition allows",
        "a shorter `time`, or another partition",
    ),
    "PartitionDown": ("its partition starts no jobs now", "an administrator opens the partition"),
    "PartitionInactive": ("its partition starts no jobs now", "an administrator opens the partition"),
    "PartitionConfig": ("its partition does not take such a job", "another partition"),
    "Reservation": ("it waits for its reservation", "the beginning of the reservation"),
    "ReservationDeleted": ("its reservation was deleted", "cancel it and launch without the reservation"),
    "Licenses": ("licenses that it needs are in use", "the end of a job that has one"),
    "BadConstraints": (
        "no node has all that it asks for",
        "less memory, threads or GPUs, or another constraint",
    ),
    "InvalidAccount": ("its account may not run it", "another `slurm: {account: …}`"),
    "InvalidQOS": ("its quality of service is not valid", "another `slurm: {qos: …}`"),
    "NodeDown": ("a node that it needs is down", "that node comes back"),
    "Prolog": ("its nodes are being prepared", ""),
    "Cleaning": ("what it left is being removed before it begins again", ""),
    "launch_failed_requeued_held": (
        "a node could not start it, and Slurm holds it",
        "scontrol release, or retry",
    ),
    "job_requeued_in_held_state": ("it was put back and is held", "scontrol release"),
    "BurstBufferResources": ("room in the burst buffer is in use", "the end of a job that has some"),
}


@dataclass(frozen=True)
class Row:
    """A line of `squeue`."""

    id: str
    state: str
    partition: str
    priority: int
    start: str
    reason: str
    comment: str


def rows(answer: str) -> list[Row]:
    """Parse what `squeue` prints in `QUEUE_FORMAT`; lines that are none are left out."""
    found = []
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split("|", 6)]
        if len(fields) == 7:
            priority = int(fields[3]) if fields[3].isascii() and fields[3].isdecimal() else 0
            found.append(Row(fields[0], fields[1], fields[2], priority, *fields[4:]))
    return found


def details(answer: str) -> dict[str, str]:
    """Parse the first line of `scontrol -o show`: KEY=VALUE, where a value may have blanks in it."""
    line = next(iter(answer.splitlines()), "")
    parts = re.split(r"(?:^|\s)([A-Za-z][\w/:]*)=", line)
    return {key: value.strip() for key, value in zip(parts[1::2], parts[2::2], strict=True)}


class Account(NamedTuple):
    """What accounting knows of a job: its state, exit code and folder, as `sacct` writes them."""

    state: str
    code: str
    folder: str


def accounted(answer: str) -> dict[str, list[Account]]:
    """Parse `sacct -n -P -X --duplicates -o JobID,State,ExitCode,WorkDir`: id → the others.

    An id that was used again has several lines, the latest job last.
    """
    found: dict[str, list[Account]] = {}
    for line in answer.splitlines():
        fields = line.split("|", 3)
        if len(fields) == 4:
            found.setdefault(fields[0], []).append(Account(*fields[1:]))
    return found


def code_of(written: str) -> int | None:
    """Parse an exit code of scontrol and sacct, CODE:SIGNAL; minus the signal's number if there was one.

    NOTE: sacct takes 128 from codes of 128 and more, so of a script that exits with 137 it says 9:0. A job's
    script that was killed has 0:9.
    """
    match = re.fullmatch(r"(\d{1,5}):(\d{1,5})", written.strip())
    if match is None:
        return None
    code, signal = int(match[1]), int(match[2])
    return -signal if signal else exit_from_shell(code)


def is_over(state: str) -> bool:
    """Whether a state of Slurm is one in which a job stays."""
    return _base(state) not in (*LATER, *_NOW)


def status(state: str, reason: str = "", code: int | None = None, place: str = "") -> JobStatus:
    """Return what a state of Slurm is.

    Args:
        state: As squeue, scontrol or sacct say it: `CANCELLED by 1000`, `FAILED+`.
        reason: Slurm's.
        code: Of the job's script, where it is known.
        place: In the queue, in words.
    """
    base = _base(state)
    if base in LATER:
        told, unblock = waits(reason)
        return JobStatus(JobState.QUEUED, told, place=place, unblock=unblock)
    if base in _NOW:
        return JobStatus(JobState.RUNNING, "it is suspended" if base == "SUSPENDED" else "")
    if base == "COMPLETED":
        return JobStatus(JobState.SUCCEEDED, exit_code=EXIT_COMPLETED)
    if base in ("OUT_OF_MEMORY", "OUT_OF_ME"):
        return JobStatus(JobState.FAILED, _MEMORY, code)
    if base == "CANCELLED":
        by = re.search(r" by (\S+)", state)
        return JobStatus(
            JobState.PREEMPTED, f"cancelled in Slurm by user {by[1]}" if by else "cancelled in Slurm"
        )
    if base in _TAKEN:
        return JobStatus(JobState.PREEMPTED, _TAKEN[base])
    if base == "FAILED":
        return ended(code, reason)
    return JobStatus(
        JobState.UNKNOWN, f"Slurm calls it {base or 'nothing'}, which this version does not know"
    )


def ended(code: int | None, reason: str = "") -> JobStatus:
    """Return the status of a job by its exit code; minus a signal's number if one ended it."""
    if code == EXIT_COMPLETED:
        return JobStatus(JobState.SUCCEEDED, exit_code=code)
    if code is None:
        if reason in ("JobLaunchFailure", "NodeDown", "SystemFailure"):
            return JobStatus(JobState.PREEMPTED, f"Slurm could not run it: {reason}")
        return JobStatus(JobState.FAILED, f"failed in Slurm: {reason or 'no reason given'}")
    return JobStatus(JobState.FAILED, describe_exit(code), code)


def waits(reason: str) -> tuple[str, str]:
    """Return why a job waits, in words that begin with Slurm's own, and what would let it begin."""
    reason = reason.strip("() ")
    # Some reasons are sentences, and followed by names of nodes: `ReqNodeNotAvail, UnavailableNodes:n1`.
    joined = reason.replace(" ", "_")
    key = next((key for key in _WAITS if re.match(rf"{key}(?![A-Za-z])", joined)), None)
    if key is not None:
        words, unblock = _WAITS[key]
        return (
            words if key in ("None", "Nodes_required_for_job_are_DOWN") else f"{reason}: {words}"
        ), unblock
    whose = next((who for key, who in _LIMITS.items() if reason.startswith(key)), None)
    if whose is not None:
        return f"{reason}: a limit of {whose} is reached", "the end of jobs that count, or a higher limit"
    return reason, ""


_LIMITS = {
    "QOS": "the quality of service",
    "Assoc": "the account or user",
    "MaxJobs": "the user",
    "Max": "the site",
}


def place(row: Row, pending: Iterable[tuple[int, str]], start: str) -> str:
    """Say a job's place in its partition's queue and its estimated start.

    Args:
        row: Of the job.
        pending: Priority and id of each job that waits in the partition.
        start: Estimated, as squeue has it.
    """
    ids = [id_ for _, id_ in sorted(pending, key=lambda job: -job[0])]
    parts = []
    if row.id in ids:
        parts.append(f"{ordinal(ids.index(row.id) + 1)} of {len(ids)} in partition {row.partition}")
    if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", start):
        parts.append(f"estimated start {start[:16].replace('T', ' ')}")
    return ", ".join(parts)


def _base(state: str) -> str:
    words = state.split()
    return words[0].rstrip("+") if words else ""


def settings(answer: str) -> Mapping[str, str]:
    """Parse `scontrol show config`: KEY = VALUE, a line each."""
    pairs = (line.partition("=") for line in answer.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}
