"""Slurm's command line tools: run with a deadline, and what their errors mean.

Text formats, not `--json`: the letters of `squeue -o`, the keys of `scontrol -o` and the fields of `sacct -P`
are documented and old, while forms of the JSON have changed from version to version, and some sites build
Slurm without it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from jestlab.platform.launch.executor import ExecutorAway, ExecutorError
from jestlab.platform.launch.executors.cloud import three_attempts
from jestlab.platform.logs import one_line

_PASS_SOON = (
    *("zero bytes were transmitted", "temporarily unavailable", "standby mode", "connection reset"),
    *("protocol authentication", "munge", "try again", "in recovery"),
)
"""Words of errors that may pass in a moment."""

_PASS = (
    *("unable to contact", "connection refused", "connection timed out", "timed out", "no response"),
    *("communication", "transport", "slurmdbd", "could not resolve", "unable to establish"),
    *("connection failure", "disk quota"),
)
"""Words of errors that may pass: the controller or its database are away. Slurm's commands have already tried
for a while (`MessageTimeout`) before they say so."""

_REMEDIES = {
    "configuration source": "no cluster is known here: launch on a machine of it, or set SLURM_CONF",
    "invalid partition": "say `slurm: {partition: …}`, one of those that `sinfo` shows",
    "invalid account": "say `slurm: {account: …}`, one of `sacctmgr show associations user=$USER`",
    "invalid qos": "say `slurm: {qos: …}`, one of `sacctmgr show qos`",
    "invalid feature": "say `slurm: {constraint: …}`, features that `sinfo -o %f` shows",
    "node configuration is not available": "no node has that much: ask for less memory, threads or GPUs",
    "generic resource": "the partition has no such GPUs: see `sinfo -o %G`, and `slurm: {gres: …}`",
    "memory specification": "no node has that much memory: lower `resources.memory_gb`",
    "time limit": "lower `resources.time` to what the partition allows: see `sinfo -o %l`",
    "policy": "your account has reached a limit: set `resources.parallel`, or `slurm: {account: …}`",
}


class _PassesSoon(ExecutorAway):
    """Slurm does not answer now, and may do so in a moment."""


class Tools:
    """Runs Slurm's commands; one that does not answer in time is away."""

    def __init__(self, answer_seconds: float) -> None:
        """Run nothing yet; each command may take so many seconds."""
        self._answer_seconds = answer_seconds

    def run(self, *command: str, accept: Sequence[str] = ()) -> str:
        """Run a command that is safe to repeat, and return what it prints; errors that pass soon are waited
        out.

        Args:
            command: Its words.
            accept: Errors, in lower case, that are no errors here: then what was printed is returned.

        Raises:
            ExecutorAway: Slurm does not answer now.
            ExecutorError: The command is not here, or was refused.
        """
        repeated = three_attempts(lambda error: isinstance(error, _PassesSoon))
        said: str = repeated(self.run_once, *command, accept=accept)
        return said

    def run_once(self, *command: str, given: str = "", accept: Sequence[str] = ()) -> str:
        """Run a command, as `run` does, but never twice; `given` is its standard input."""
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
                f"{command[0]} is not found: launch on a machine of the cluster that has Slurm's commands"
            ) from None
        except subprocess.TimeoutExpired:
            raise ExecutorAway(f"{command[0]} has not answered for {self._answer_seconds:g} s") from None
        except OSError as error:
            raise ExecutorAway(f"{command[0]} cannot be started now: {error.strerror}") from None
        said = done.stderr.lower()
        if done.returncode and not any(words in said for words in accept):
            raise _meaning(command[0], done.stderr)
        return done.stdout


def _environment() -> dict[str, str]:
    """Return what commands are run with: nothing of a job that this process may itself be a part of, and no
    password, since Slurm keeps the environment in which `sbatch` is called."""
    kept = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "TZ")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    sbatch = {name: value for name, value in os.environ.items() if name.startswith("SBATCH_")}
    for ours in ("SBATCH_EXPORT", "SBATCH_ARRAY_INX", "SBATCH_REQUEUE", "SBATCH_NO_REQUEUE", "SBATCH_SIGNAL"):
        sbatch.pop(ours, None)
    return {**environment, **sbatch, "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}


def _meaning(command: str, said: str) -> ExecutorError:
    """Return an error of a command in one line."""
    lines = [line.removeprefix(f"{command}: ").removeprefix("error: ") for line in said.splitlines()]
    line = one_line("; ".join(dict.fromkeys(line.strip() for line in lines if line.strip())), 300)
    words = line.lower()
    if any(passing in words for passing in _PASS_SOON):
        return _PassesSoon(f"{command}: {line}")
    if any(passing in words for passing in _PASS):
        return ExecutorAway(f"{command}: {line}")
    remedy = next((remedy for key, remedy in _REMEDIES.items() if key in words), None)
    told = f"{command}: {line or 'failed and says nothing'}"
    return ExecutorError(f"{told}: {remedy}" if remedy else told)
