"""Batch jobs of Slurm: their options, their script, and their files in the lab.

Jobs that are submitted together form a batch: a single job, or an array. Each job is a numbered task of its
batch. A batch has a folder `slurm/BATCH` in the lab, which only its owner can read:

    keys           digests of the attempts' keys, one line per task
    N.sh           environment and arguments of task N, with the store's URL; the job deletes the file
    N.end          exit code of task N, and the id of its job
    N.out          Slurm's output file of task N

The script runs one worker per node. If there are several nodes, `srun` starts the workers and gives each its
number in a variable of JAX. The script forwards requests to stop: SIGTERM, and SIGUSR1, which Slurm sends
before the time limit. Slurm must not requeue the jobs, because the store records one attempt per job.
"""

import hashlib
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import ExecutorUnavailable, Job, JobKey
from jestlab.platform.processes import EXIT_BUSY, EXIT_STOPPED
from jestlab.platform.redaction import without_secrets
from jestlab.platform.spec.resources import Resources, SlurmOptions, stop_early_seconds
from jestlab.platform.store.address import STORE

_WAIT_SECONDS = 300
"""Time after which `srun --wait` ends the other processes once one has ended. Workers end each other sooner:
those of the other nodes wait for the first one, and end within seconds after it (`store.assistant`)."""

_SCRIPT = """\
#!/bin/bash
%(head)sumask 077
here=%(folder)s
task=${SLURM_ARRAY_TASK_ID:-0}
child= asked=

id=$SLURM_JOB_ID
[ -z "${SLURM_ARRAY_JOB_ID:-}" ] || id=${SLURM_ARRAY_JOB_ID}_$task

# Keep the exit code longer than Slurm does.
leave() {
  echo "$1 $id" > "$here/$task.end.new" && mv "$here/$task.end.new" "$here/$task.end"
  exit "$1"
}
stop() { asked=$1; [ -z "$child" ] || kill -s "$1" "$child" 2>/dev/null; }
trap 'stop %(term)s' TERM
trap 'stop USR1' USR1

%(source)sexec >>"$log" 2>&1
cd %(cwd)s || leave %(busy)s
%(setup)s[ -z "$asked" ] || leave %(stopped)s
%(start)s "${arguments[@]}" &
child=$!
[ -z "$asked" ] || stop "$asked"
while kill -0 "$child" 2>/dev/null; do wait "$child"; done
wait "$child"
code=$?
# A signal that ended the worker before Python could handle it is not a failure.
[ -z "$asked" ] || [ $code -le 128 ] || code=%(stopped)s
leave $code
"""
_SOURCE = f"""\
# Environment, log, and arguments. Without the file, the job was given up before it began.
. "$here/$task.sh" || leave {EXIT_BUSY}
rm -f "$here/$task.sh"
"""
_BY_HAND = """\
%(variables)smkdir -p "$here" "$(dirname "$log")"
"""
_REQUIRE_STORE = f': "${{{STORE}:?set it to the URL of the store}}"\n'
_ADDRESS = """\
# Slurm's name of the first node, or its address where other nodes can't resolve the name.
first=$SLURMD_NODENAME
getent hosts "$first" >/dev/null ||
  first=$(scontrol -o show node "$first" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')
export JAX_COORDINATOR_ADDRESS=$first:$((61440 + SLURM_JOB_ID % 4096))
export JAX_NUM_PROCESSES=$SLURM_NNODES
"""


def sbatch_options(
    name: str,
    comment: str,
    folder: Path,
    count: int,
    resources: Resources,
    slurm: SlurmOptions,
    after: Sequence[str] = (),
) -> list[str]:
    """Return the options of `sbatch` for a batch of `count` jobs in a folder; several jobs form an array.

    They start after the jobs with the ids `after` have completed.
    """
    memory_mib = resources.memory_gb and max(round(resources.memory_gb * 1e9 / 2**20), 1)
    limit, gpus = resources.time_seconds, resources.gpus or None
    values: dict[str, object] = {
        "job-name": name,
        "comment": comment,
        "chdir": folder,
        "output": folder / ("%a.out" if count > 1 else "0.out"),
        "open-mode": "append",
        "nodes": resources.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": resources.threads,
        "signal": f"B:USR1@{stop_early_seconds(limit or math.inf):.0f}",
        "array": f"0-{count - 1}" if count > 1 else None,
        "mem": memory_mib and f"{memory_mib}M",
        "time": limit and -(-limit // 60),  # minutes, rounded up as Slurm does
        "gres": gpus and slurm.gres and f"{slurm.gres}:{gpus}",
        "gpus-per-node": None if slurm.gres else gpus,
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "dependency": f"afterok:{':'.join(after)}" if after else None,
        "kill-on-invalid-dep": "yes" if after else None,
    }
    options = [f"--{key}={value}" for key, value in values.items() if value is not None]
    return [*options, "--no-requeue", *(["--exclusive"] if slurm.exclusive else []), *slurm.options]


def script(
    folder: Path, resources: Resources, slurm: SlurmOptions, head: str = "", source: str = _SOURCE
) -> str:
    """Return the script of a batch. Its jobs run in this process's working directory.

    Args:
        folder: Folder of the batch.
        resources: Resources of each job.
        slurm: Options for the site.
        head: Lines with `#SBATCH` options.
        source: Lines of the script that set the environment, the log, and the arguments.
    """
    several = resources.nodes > 1
    start = shlex.quote(slurm.python or sys.executable)
    if several:
        number = shlex.quote('export JAX_PROCESS_ID=$SLURM_PROCID; exec "$@"')
        start = (
            f"srun --nodes={resources.nodes} --ntasks={resources.nodes} --ntasks-per-node=1 "
            f"--cpus-per-task={resources.threads} --kill-on-bad-exit=0 --wait={_WAIT_SECONDS} "
            f"bash -c {number} jestlab {start}"
        )
    setup = "".join(f"{line}\n" for line in slurm.setup)
    return _SCRIPT % {
        "head": head,
        "folder": shlex.quote(str(folder)),
        "cwd": shlex.quote(str(Path.cwd())),
        "busy": EXIT_BUSY,
        "stopped": EXIT_STOPPED,
        "term": "USR2" if several else "TERM",  # srun forwards SIGUSR2, but ends the job on SIGTERM
        "start": start,
        "source": source,
        "setup": setup + (_ADDRESS if several else ""),
    }


def script_by_hand(job: Job, folder: Path, resources: Resources, slurm: SlurmOptions) -> str:
    """Return a complete script that users can submit with `sbatch`.

    If the store's URL has a password, the script requires it in the environment.
    """
    ours = ("--comment=", "--chdir=", "--output=")
    options = sbatch_options(job.name, job.title, folder, 1, resources, slurm)
    options = [option for option in options if not option.startswith(ours)] + [f"--output={job.log}"]
    head = "".join(f"#SBATCH {option}\n" for option in options)
    public = {name: value for name, value in job.environment.items() if without_secrets(value) == value}
    required = _REQUIRE_STORE if STORE not in public else ""
    source = _BY_HAND % {"variables": required + _sourced(job, public)}
    return script(folder, resources, slurm, head, source)


# ---- files

_NAMES = "names"


class Task(NamedTuple):
    """Job of an attempt, identified by its batch and its number in the batch."""

    batch: str
    number: int

    def __str__(self) -> str:
        return f"{self.batch}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> "Task":
        """Parse `BATCH.NUMBER`; raise ValueError if the text is invalid."""
        batch, number = text.split(".")
        return cls(batch, int(number))


def batch_of(keys: Sequence[JobKey]) -> str:
    """Return the name of the batch whose tasks have these keys, in order."""
    return hashlib.sha256("\n".join(map(_digest, keys)).encode()).hexdigest()[:32]


def _digest(key: JobKey) -> str:
    """Return the digest of a key. The lab contains digests, so that its copies don't contain tokens."""
    return hashlib.sha256(str(key).encode()).hexdigest()


class Batches:
    """The batch folders of one lab."""

    def __init__(self, lab: Lab) -> None:
        """Create the object, without creating folders."""
        self._lab = lab
        self._digests: dict[str, list[str]] = {}

    def folder(self, batch: str) -> Path:
        """Return the folder of a batch."""
        return self._lab.slurm / batch

    def find(self, job: Job) -> Task | None:
        """Return the task of a job that was submitted before, by the job's name; None if it wasn't."""
        try:
            task = Task.parse((self.folder(_NAMES) / job.name).read_text())
            return task if self.has_key(task, job.key) else None
        except (OSError, ValueError):
            return None

    def write(self, jobs: Sequence[Job]) -> str:
        """Write the files that the jobs of a new batch read, before it is submitted; return the batch's name.

        Raises:
            ExecutorUnavailable: The lab can't be written to now.
        """
        batch = batch_of([job.key for job in jobs])
        folder = self.folder(batch)
        try:
            for path in (folder, self.folder(_NAMES), *{job.log.parent for job in jobs}):
                self._lab.make_folder(path.relative_to(self._lab.root))
            folder.chmod(0o700)
            write_private(folder / "keys", "".join(f"{_digest(job.key)}\n" for job in jobs))
            for number, job in enumerate(jobs):
                write_private(folder / f"{number}.sh", _sourced(job, job.environment))
                write_private(self.folder(_NAMES) / job.name, str(Task(batch, number)))
        except StoreUnreachable as error:
            raise ExecutorUnavailable(str(error)) from None
        except OSError as error:
            raise ExecutorUnavailable(f"{error.filename} can't be written: {error.strerror}") from None
        return batch

    def has_key(self, task: Task, key: JobKey) -> bool:
        """Return whether a task belongs to the attempt with a key; raise OSError if `keys` can't be read."""
        if batch_of([key]) == task.batch:
            return task.number == 0
        if (digests := self._digests.get(task.batch)) is None:
            digests = (self.folder(task.batch) / "keys").read_text().splitlines()
            self._digests[task.batch] = digests
        return _digest(key) in digests[task.number : task.number + 1]

    def end(self, task: Task) -> tuple[int, str] | None:
        """Return a task's exit code, as in a shell, and job id; None if it hasn't ended or was killed."""
        try:
            code, id_ = (self.folder(task.batch) / f"{task.number}.end").read_text().split()
            return int(code), id_
        except (OSError, ValueError):
            return None

    def discard(self, batch: str) -> None:
        """Delete files that the jobs of a batch require: if they were submitted, they end at their start."""
        for file in self.folder(batch).glob("*.sh"):
            file.unlink(missing_ok=True)


def _sourced(job: Job, variables: Mapping[str, str]) -> str:
    """Return the lines that a job's script sources: variables, the log, and arguments of Python."""
    lines = [
        f"export {name}={shlex.quote(value)}" for name, value in variables.items() if name.isidentifier()
    ]
    words = shlex.join(["-m", job.module, *job.arguments])
    return "\n".join([*lines, f"log={shlex.quote(str(job.log))}", f"arguments=({words})", ""])


def write_private(path: Path, text: str) -> None:
    """Atomically write a file that only its owner can read."""
    new = path.with_name(f"{path.name}.new")
    new.touch(0o600)
    new.write_text(text, encoding="utf-8")
    new.replace(path)
