"""Batch jobs of Slurm: their options, their script, and their files in the lab.

Jobs that are submitted together, one job or an array, form a batch with a folder `slurm/BATCH` in the lab,
which only its owner can read. The batch's name is a digest of its attempts' keys, so anyone with the key of
an attempt can check whether a job with the batch's name is that attempt's. The folder contains

    keys           digests of the attempts' keys, one line per task
    N.sh           environment and arguments of task N with the store's URL; the job removes the file
    N.end          exit code of task N, and the id of its job
    N.out          output of Slurm itself

The script runs one process per node. With several nodes `srun` starts them, and variables that JAX reads
number them. The script passes on requests to stop: SIGTERM, and SIGUSR1 before the time limit. Jobs are not
requeued: the next attempt at a run is a new job, since the store tells attempts apart, but not two lives of
one job.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import ExecutorUnavailable, Job, JobKey
from jestlab.platform.processes import EXIT_BUSY, EXIT_STOPPED
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.slurm import SlurmOptions
from jestlab.platform.store.address import STORE

# ---- options and script

_LONGEST_WARNING_SECONDS, _SHORTEST_WARNING_SECONDS = 120, 20
_WAIT_SECONDS = 300
"""How long the first process may continue after another one has ended: it may be saving."""

_HEAD = """\
umask 077
here={folder}
task=${{SLURM_ARRAY_TASK_ID:-0}}
child= asked=

id=$SLURM_JOB_ID
[ -z "${{SLURM_ARRAY_JOB_ID:-}}" ] || id=${{SLURM_ARRAY_JOB_ID}}_$task

# Keep the exit code longer than Slurm does.
leave() {{
  echo "$1 $id" > "$here/$task.end.new" && mv "$here/$task.end.new" "$here/$task.end"
  exit "$1"
}}
stop() {{ asked=$1; [ -z "$child" ] || kill -s "$1" "$child" 2>/dev/null; }}
trap 'stop {term}' TERM
trap 'stop USR1' USR1

{source}exec >>"$log" 2>&1
cd {cwd} || leave {busy}
"""
_SOURCE = """\
# Environment, log, and arguments. Without the file, the job was given up before it began.
. "$here/$task.sh" || leave {busy}
rm -f "$here/$task.sh"
"""
_BY_HAND = """\
: "${{{store}:?set it to the URL of the store}}"
{variables}mkdir -p "$here" "$(dirname "$log")"
"""
_ADDRESS = """\
# Slurm's name of the first node, or its address where other nodes can't resolve the name.
first=$SLURMD_NODENAME
getent hosts "$first" >/dev/null ||
  first=$(scontrol -o show node "$first" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')
export JAX_COORDINATOR_ADDRESS=$first:$((61440 + SLURM_JOB_ID % 4096))
export JAX_NUM_PROCESSES=$SLURM_NNODES
"""
_RUN = """\
[ -z "$asked" ] || leave {stopped}
{start} "${{arguments[@]}}" &
child=$!
[ -z "$asked" ] || stop "$asked"
while kill -0 "$child" 2>/dev/null; do wait "$child"; done
wait "$child"
code=$?
# A signal that ended the worker before Python could handle it is not a failure.
[ -z "$asked" ] || [ $code -le 128 ] || code={stopped}
leave $code
"""


def sbatch_options(
    name: str, comment: str, folder: Path, count: int, resources: Resources, slurm: SlurmOptions
) -> list[str]:
    """Return the options of `sbatch` for a batch in a folder; more than one job form an array."""
    memory_mib = resources.memory_gb and max(round(resources.memory_gb * 1e9 / 2**20), 1)
    values: dict[str, object] = {
        "job-name": name,
        "comment": comment,
        "chdir": folder,
        "output": folder / ("%a.out" if count > 1 else "0.out"),
        "open-mode": "append",
        "nodes": resources.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": resources.threads,
        "signal": f"B:USR1@{warning_seconds(resources.time_seconds)}",
        "array": f"0-{count - 1}" if count > 1 else None,
        "mem": memory_mib and f"{memory_mib}M",
        "time": None if resources.time_seconds is None else minutes(resources.time_seconds),
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
    }
    if resources.gpus and slurm.gres:
        values["gres"] = f"{slurm.gres}:{resources.gpus}"
    elif resources.gpus:
        values["gpus-per-node"] = resources.gpus
    options = [f"--{key}={value}" for key, value in values.items() if value is not None]
    return [*options, "--no-requeue", *(["--exclusive"] if slurm.exclusive else []), *slurm.options]


def warning_seconds(limit: int | None) -> int:
    """Return how long before its time limit a job is asked to stop: a tenth of the limit, within bounds."""
    longest = _LONGEST_WARNING_SECONDS
    return longest if limit is None else min(max(limit // 10, _SHORTEST_WARNING_SECONDS), longest)


def minutes(seconds: int) -> str:
    """Write a time limit in minutes, rounded up like Slurm does."""
    return str(max(-(-seconds // 60), 1))


def script(
    folder: Path,
    cwd: Path,
    shared: Sequence[Path],
    resources: Resources,
    slurm: SlurmOptions,
    head: str = "",
    source: str = "",
) -> str:
    """Return the script of a batch in a folder.

    Args:
        folder: Folder of the batch.
        cwd: Working directory of the jobs, for relative paths in configs.
        shared: Folders to mount in a container.
        resources: Resources of each job.
        slurm: Options of the site.
        head: Lines of `#SBATCH`.
        source: Lines that set the environment, the log, and the arguments; empty to source the task's file.
    """
    values = {
        "folder": shlex.quote(str(folder)),
        "cwd": shlex.quote(str(cwd)),
        "busy": EXIT_BUSY,
        "stopped": EXIT_STOPPED,
        # srun passes SIGUSR2 on, but ends the job at SIGTERM.
        "term": "USR2" if _by_srun(resources, slurm) else "TERM",
        "start": " ".join(_start(cwd, shared, resources, slurm)),
        "source": source or _SOURCE.format(busy=EXIT_BUSY),
    }
    address = _ADDRESS if resources.nodes > 1 else ""
    setup = "".join(f"{line}\n" for line in slurm.setup)
    return f"#!/bin/bash\n{head}{_HEAD.format(**values)}{setup}{address}{_RUN.format(**values)}"


def script_by_hand(
    job: Job, folder: Path, shared: Sequence[Path], resources: Resources, slurm: SlurmOptions
) -> str:
    """Return a complete script that a user can submit with `sbatch`, without the store's URL."""
    options = sbatch_options(job.name, job.title, folder, 1, resources, slurm)
    ours = ("--comment=", "--chdir=", "--output=")
    options = [option for option in options if not option.startswith(ours)] + ["--output=%x.out"]
    head = "".join(f"#SBATCH {option}\n" for option in options)
    public = {name: value for name, value in job.environment.items() if name != STORE}
    source = _BY_HAND.format(store=STORE, variables=_sourced(job, public))
    return script(folder, Path.cwd(), shared, resources, slurm, head, source)


def _start(cwd: Path, shared: Sequence[Path], resources: Resources, slurm: SlurmOptions) -> list[str]:
    """Return the words before a worker's arguments."""
    python = shlex.quote(slurm.python or ("python3" if slurm.container else sys.executable))
    mounts = shlex.quote(",".join([*dict.fromkeys(f"{path}:{path}" for path in shared), *slurm.mounts]))
    folder, image = shlex.quote(str(cwd)), shlex.quote(slurm.container or "")
    words: list[str] = []
    if _by_srun(resources, slurm):
        words += [
            *("srun", f"--nodes={resources.nodes}", f"--ntasks={resources.nodes}", "--ntasks-per-node=1"),
            *(f"--cpus-per-task={resources.threads}", "--kill-on-bad-exit=0", f"--wait={_WAIT_SECONDS}"),
        ]
    if slurm.container and slurm.runtime == "pyxis":
        words += [f"--container-image={image}", f"--container-mounts={mounts}"]
        words += [f"--container-workdir={folder}"]
    if resources.nodes > 1:
        words += ["bash", "-c", shlex.quote('export JAX_PROCESS_ID=$SLURM_PROCID; exec "$@"'), "jestlab"]
    if slurm.container and slurm.runtime == "apptainer":
        gpus = ["--nv"] if resources.gpus else []
        words += ["apptainer", "exec", *gpus, "--bind", mounts, "--pwd", folder, image]
    return [*words, python]


def _by_srun(resources: Resources, slurm: SlurmOptions) -> bool:
    """Whether `srun` starts the processes."""
    return resources.nodes > 1 or (slurm.container is not None and slurm.runtime == "pyxis")


# ---- files

_NAMES = "names"


class Task(NamedTuple):
    """Place of an attempt: a batch, and the number there."""

    batch: str
    number: int


class TaskEnd(NamedTuple):
    """End of a job: the exit code of its shell, and its id."""

    code: int
    job: str


def batch_of(keys: Sequence[JobKey]) -> str:
    """Return the name of the batch of these attempts."""
    return _batch(list(map(_digest, keys)))


def _batch(digests: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:32]


def _digest(key: JobKey) -> str:
    """Return the digest of a key: a copy of the lab must not contain tokens."""
    return hashlib.sha256(str(key).encode()).hexdigest()


class Batches:
    """The batch folders of one lab."""

    def __init__(self, lab: Lab) -> None:
        """Create no folder yet."""
        self._lab = lab
        self._digests: dict[str, list[str]] = {}

    def folder(self, batch: str) -> Path:
        """Return the folder of a batch."""
        return self._lab.slurm / batch

    def find(self, job: Job) -> Task | None:
        """Return the task of a job whose name was submitted before; None if it was not."""
        try:
            batch, number = (self._lab.slurm / _NAMES / job.name).read_text().split()
        except (OSError, ValueError):
            return None
        task = Task(batch, int(number))
        return task if self.has_key(task, job.key) else None

    def write(self, jobs: Sequence[Job]) -> str:
        """Write all files that a batch's jobs read, before it is submitted; return the batch.

        Raises:
            ExecutorUnavailable: The lab can't be written to now.
        """
        digests = [_digest(job.key) for job in jobs]
        batch = _batch(digests)
        try:
            folder = self._lab.make_folder(f"{self._lab.slurm.name}/{batch}")
            folder.chmod(0o700)
            names = self._lab.make_folder(f"{self._lab.slurm.name}/{_NAMES}")
            _write(folder / "keys", "".join(f"{digest}\n" for digest in digests))
            for number, job in enumerate(jobs):
                self._lab.make_folder(job.log.parent.relative_to(self._lab.root))
                _write(folder / f"{number}.sh", _sourced(job, job.environment))
                _write(names / job.name, f"{batch} {number}\n")
        except StoreUnreachable as error:
            raise ExecutorUnavailable(str(error)) from None
        except OSError as error:
            raise ExecutorUnavailable(f"{error.filename} can't be written: {error.strerror}") from None
        return batch

    def has_key(self, task: Task, key: JobKey) -> bool | None:
        """Whether a task is the attempt with this key; None if that can't be read now."""
        if batch_of([key]) == task.batch:
            return task.number == 0
        if task.batch not in self._digests:
            try:
                lines = (self.folder(task.batch) / "keys").read_text().splitlines()
            except OSError:
                return None
            if _batch(lines) != task.batch:
                return False
            self._digests[task.batch] = lines
        lines = self._digests[task.batch]
        return task.number < len(lines) and lines[task.number] == _digest(key)

    def end(self, task: Task) -> TaskEnd | None:
        """Return the end of a job; None if it has not ended, or was killed."""
        try:
            code, job = (self.folder(task.batch) / f"{task.number}.end").read_text().split()
            return TaskEnd(int(code), job)
        except (OSError, ValueError):
            return None

    def discard(self, batch: str) -> None:
        """Make jobs that may have been submitted end at once, without having done anything."""
        for file in self.folder(batch).glob("*.sh"):
            file.unlink(missing_ok=True)


def _sourced(job: Job, variables: Mapping[str, str]) -> str:
    """Return the lines that a job's script sources: variables, the log, and the command's arguments."""
    lines = [
        f"export {name}={shlex.quote(value)}" for name, value in variables.items() if name.isidentifier()
    ]
    words = " ".join(map(shlex.quote, ["-m", job.module, *job.arguments]))
    return "\n".join([*lines, f"log={shlex.quote(str(job.log))}", f"arguments=({words})", ""])


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    new.replace(path)
