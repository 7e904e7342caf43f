"""The batch script of a job, or of an array of them: what Slurm is asked for, and what runs on its nodes.

One process a node. With several nodes `srun` starts them, and variables that JAX reads say which is which.
The script passes on what asks the job to stop: SIGTERM, and SIGUSR1 before its time limit. It asks for no
requeue: the next attempt at a run is a job of its own, since the store tells attempts apart, and two lives of
one job it could not.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from jestlab.platform.processes import EXIT_BUSY, EXIT_STOPPED
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.slurm import Slurm

LONGEST_WARNING_SECONDS, SHORTEST_WARNING_SECONDS = 120, 20
_WAIT_SECONDS = 300
"""How long the first process may go on when another one has ended: it may be saving."""

_COMMON = """\
umask 077
here={folder}
task=${{SLURM_ARRAY_TASK_ID:-0}}
child= asked=

id=$SLURM_JOB_ID
[ -z "${{SLURM_ARRAY_JOB_ID:-}}" ] || id=${{SLURM_ARRAY_JOB_ID}}_$task

# How it ended is kept where it outlasts what Slurm remembers.
leave() {{
  echo "$1 $id" > "$here/$task.end.new" && mv "$here/$task.end.new" "$here/$task.end"
  exit "$1"
}}
stop() {{ asked=$1; [ -z "$child" ] || kill -s "$1" "$child" 2>/dev/null; }}
trap 'stop {term}' TERM
trap 'stop USR1' USR1

# Its environment, the log and the arguments. What is not there was given up before it began.
. "$here/$task.sh" || leave {busy}
rm -f "$here/$task.sh"
exec >>"$log" 2>&1
cd {cwd} || leave {busy}
"""
_ADDRESS = """\
# The name that Slurm gives the first node, or its address where names of nodes mean nothing to others.
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
# What ended it before Python could hear that it was asked to stop is no failure.
[ -z "$asked" ] || [ $code -le 128 ] || code={stopped}
leave $code
"""


def options(
    name: str, comment: str, folder: Path, count: int, resources: Resources, slurm: Slurm
) -> list[str]:
    """Return the options of `sbatch`.

    Args:
        name: Of the job.
        comment: What the job is found by.
        folder: Of the batch.
        count: Number of jobs: more than one are an array.
        resources: What each job gets.
        slurm: What the site wants to be told.
    """
    asked: dict[str, object] = {
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
        "mem": None
        if resources.memory_gb is None
        else f"{max(round(resources.memory_gb * 1e9 / 2**20), 1)}M",
        "time": None if resources.time_seconds is None else minutes(resources.time_seconds),
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
    }
    if resources.gpus:
        asked |= (
            {"gres": f"{slurm.gres}:{resources.gpus}"} if slurm.gres else {"gpus-per-node": resources.gpus}
        )
    said = [f"--{key}={value}" for key, value in asked.items() if value is not None]
    return [*said, "--no-requeue", *(["--exclusive"] if slurm.exclusive else []), *slurm.options]


def warning_seconds(limit: int | None) -> int:
    """Return how long before its time limit a job is told: a tenth of it, within bounds."""
    longest = LONGEST_WARNING_SECONDS
    return longest if limit is None else min(max(limit // 10, SHORTEST_WARNING_SECONDS), longest)


def minutes(seconds: int) -> str:
    """Write a time limit as Slurm takes it: in minutes, rounded up, as Slurm does."""
    return str(max(-(-seconds // 60), 1))


def script(folder: Path, cwd: Path, shared: Sequence[Path], resources: Resources, slurm: Slurm) -> str:
    """Return the batch script.

    Args:
        folder: Of the batch.
        cwd: Where jobs run: relative paths in configs are from there.
        shared: Folders that a container has to see.
        resources: What each job gets.
        slurm: What the site wants to be told.
    """
    several = resources.nodes > 1
    values = {
        "folder": shlex.quote(str(folder)),
        "cwd": shlex.quote(str(cwd)),
        "busy": EXIT_BUSY,
        "stopped": EXIT_STOPPED,
        "term": "USR2" if _by_srun(resources, slurm) else "TERM",  # srun passes SIGUSR2 on, and obeys SIGTERM
        "start": " ".join(_start(cwd, shared, resources, slurm)),
    }
    parts = ["#!/bin/bash\n", _COMMON.format(**values), *(f"{line}\n" for line in slurm.setup)]
    return "".join([*parts, _ADDRESS if several else "", _RUN.format(**values)])


def _start(cwd: Path, shared: Sequence[Path], resources: Resources, slurm: Slurm) -> list[str]:
    """Return the words that come before a worker's arguments."""
    python = shlex.quote(slurm.python or ("python3" if slurm.container else sys.executable))
    mounts = [*dict.fromkeys(f"{path}:{path}" for path in shared), *slurm.mounts]
    words: list[str] = []
    if _by_srun(resources, slurm):
        words += [
            *("srun", f"--nodes={resources.nodes}", f"--ntasks={resources.nodes}", "--ntasks-per-node=1"),
            *(f"--cpus-per-task={resources.threads}", "--kill-on-bad-exit=0", f"--wait={_WAIT_SECONDS}"),
        ]
    if slurm.container and slurm.runtime == "pyxis":
        words += [f"--container-image={shlex.quote(slurm.container)}"]
        words += [f"--container-mounts={shlex.quote(','.join(mounts))}"]
        words += [f"--container-workdir={shlex.quote(str(cwd))}"]
    if resources.nodes > 1:
        words += ["bash", "-c", shlex.quote('export JAX_PROCESS_ID=$SLURM_PROCID; exec "$@"'), "jestlab"]
    if slurm.container and slurm.runtime == "apptainer":
        words += ["apptainer", "exec", *(["--nv"] if resources.gpus else [])]
        words += [
            "--bind",
            shlex.quote(",".join(mounts)),
            "--pwd",
            shlex.quote(str(cwd)),
            shlex.quote(slurm.container),
        ]
    return [*words, python]


def _by_srun(resources: Resources, slurm: Slurm) -> bool:
    """Whether `srun` starts the processes."""
    return resources.nodes > 1 or (slurm.container is not None and slurm.runtime == "pyxis")
