"""The launcher as a small Slurm job, for clusters whose login nodes forbid processes that last.

The command on the login node plans, checks, and records the launch, so errors appear in the terminal. Its job
continues the launch. Before the job's time limit, and if Slurm preempts it, the script kills the launcher and
the job returns to the queue. The jobs of runs continue meanwhile, and the next launcher takes them over.
"""

import shlex
import sys
from contextlib import suppress
from pathlib import Path

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import detached
from jestlab.platform.launch.executors import slurm_tools
from jestlab.platform.launch.executors.base import JobState
from jestlab.platform.launch.executors.environment import passed_on
from jestlab.platform.launch.executors.slurm_batch import sbatch_options, write_private
from jestlab.platform.launch.executors.slurm_tools import QueueRow
from jestlab.platform.launch.options import LaunchOptions
from jestlab.platform.spec.resources import Resources, SlurmOptions
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.address import STORE
from jestlab.platform.store.rows import now

_NAME = "jestlab-launch"
_MEMORY_GB = 2.0
_STOP_SECONDS = 60  # before the time limit

_SCRIPT = """\
#!/bin/bash
here=%(file)s
. "$here" || exit 1
%(setup)s
cd %(cwd)s || exit 1
"${command[@]}" &
child=$!
again() {
  kill -KILL "$child"
  echo "jestlab: the time limit is near: job $SLURM_JOB_ID returns to the queue"
  scontrol requeue "$SLURM_JOB_ID" && sleep 600  # until Slurm ends this script
}
trap again USR1
trap 'kill -KILL "$child" 2>/dev/null; exit 143' TERM
while kill -0 "$child" 2>/dev/null; do wait "$child"; done
wait "$child"
code=$?
rm -f "$here"
exit $code
"""


def refuse_second(lab: Lab, study: str) -> None:
    """Raise UserError if a job that launches the study is already in the queue."""
    if (row := find(lab, study)) is not None:
        raise UserError(
            f"{study} is already launched by Slurm job {row.id}, {row.state}: jestlab attach {study} shows "
            f"it, jestlab cancel {study} stops it"
        )


def submit(lab: Lab, study: StudySpec, options: LaunchOptions) -> str:
    """Submit the job that continues a recorded launch; return a message with its id and output file.

    Raises:
        ExecutorError: Slurm rejects the job, or doesn't answer.
    """
    file, log = _file(lab, study.name), detached.log_of(lab, study.name)
    slurm = study.resources.slurm.laid_over(Settings.find().slurm)
    words = ["continue", study.name, options.model_dump_json(), now().isoformat(), "--root", lab.address]
    command = [slurm.python or sys.executable, "-P", "-c", detached.COMMAND, *words]
    variables = passed_on() | {STORE: lab.store_url}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    write_private(file, f"{exports}command=({shlex.join(command)})\n")
    where = SlurmOptions(partition=slurm.partition, account=slurm.account, qos=slurm.qos)
    resources = Resources(memory_gb=_MEMORY_GB)
    sbatch = [
        *sbatch_options(_NAME, _comment(lab, study.name), log.parent, 1, resources, where),
        *(f"--output={log}", "--requeue", f"--signal=B:USR1@{_STOP_SECONDS}", *slurm.launcher),
    ]
    places = {"file": shlex.quote(str(file)), "cwd": shlex.quote(str(Path.cwd()))}
    script = _SCRIPT % {**places, "setup": "\n".join(slurm.setup)}
    try:
        id_ = slurm_tools.run("sbatch", "--parsable", *sbatch, given=script)
    except UserError:
        file.unlink()
        raise
    return f"Slurm job {id_.strip().partition(';')[0]} continues the launch; its log: {log}"


def find(lab: Lab, study: str) -> QueueRow | None:
    """Return the job in the queue that launches a study; None if there is none or Slurm doesn't answer."""
    if not _file(lab, study).exists():
        return None
    with suppress(UserError):  # on another machine, or now
        format_ = f"--format={slurm_tools.QUEUE_FORMAT}"
        for row in slurm_tools.rows(slurm_tools.run("squeue", "--noheader", f"--name={_NAME}", format_)):
            is_active = slurm_tools.state_of(row) in (JobState.QUEUED, JobState.RUNNING)
            if row.comment == _comment(lab, study) and is_active:
                return row
    return None


def cancel(lab: Lab, study: str) -> None:
    """Cancel the job that launches a study, if there is one. The jobs of its runs continue."""
    if (row := find(lab, study)) is not None:
        slurm_tools.run("scancel", row.id, accept="invalid job id")
    _file(lab, study).unlink(missing_ok=True)


def _file(lab: Lab, study: str) -> Path:
    """Return the private file with the environment and the command of a study's launcher."""
    return lab.root / detached.FOLDER / f".{detached.file_name(study)}.sh"


def _comment(lab: Lab, study: str) -> str:
    return f"{_NAME} {detached.file_name(f'{lab.root} {study}')[-16:]}"
