"""Checks of a Slurm site for `jestlab doctor`. They submit nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab, network_file_system
from jestlab.platform.launch.executors.slurm_tools import SlurmTools, config
from jestlab.platform.spec.slurm import SlurmOptions

_COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "srun", "sinfo")
_CONFIG = Path("/etc/slurm/slurm.conf")
_ANSWER_SECONDS = 20.0

Found = tuple[bool | None, str, str]
"""Whether a check passed (None for a warning), its finding, and the remedy."""


def is_here() -> bool:
    """Whether this machine belongs to a Slurm cluster: it has the commands and their configuration."""
    configured = "SLURM_CONF" in os.environ or _CONFIG.exists()
    return configured and shutil.which("sbatch") is not None


def examine(lab: Lab, options: SlurmOptions, run: Callable[..., str] | None = None) -> Iterator[Found]:
    """Check a site: commands, controller, partitions, the account, and the lab's folder.

    `run` runs a command of Slurm and raises UserError; None for the real one.
    """
    if missing := [name for name in _COMMANDS if shutil.which(name) is None]:
        yield False, f"{', '.join(missing)} not found", "launch on a machine of the cluster that has them"
        return
    run = run or SlurmTools(_ANSWER_SECONDS).run
    try:
        version = run("sbatch", "--version").strip()
        settings = config(run("scontrol", "show", "config"))
        yield True, f"{version}, cluster {settings.get('ClusterName', '?')}", ""
    except UserError as error:
        yield False, "no answer", str(error)
        return
    for check in (_partitions, _account):
        try:
            yield check(run, options)
        except UserError as error:
            yield False, "rejected", str(error)
    yield _folder(lab)


def _partitions(run: Callable[..., str], options: SlurmOptions) -> Found:
    partitions: dict[str, str] = {}
    for line in run("sinfo", "--noheader", "--format=%R|%a|%D|%G").splitlines():
        name, state, nodes, gres = [*line.split("|", 3), "", "", ""][:4]
        gpus = "" if gres in ("", "(null)") else f", {gres}"
        partitions[name] = f"{name} ({nodes} nodes{gpus}{'' if state == 'up' else ', ' + state})"
    wanted = options.partition.split(",") if options.partition else []
    if unknown := [name for name in wanted if name not in partitions]:
        return False, f"no partition {', '.join(unknown)}", f"set one of {', '.join(partitions)}"
    return True, f"partitions {', '.join(partitions.values())}", ""


def _account(run: Callable[..., str], options: SlurmOptions) -> Found:
    """Check whether Slurm would accept a minimal job."""
    names = ("partition", "account", "qos", "constraint")
    given = [f"--{name}={value}" for name in names if (value := getattr(options, name)) is not None]
    run("sbatch", "--test-only", *given, *options.options, "--wrap=true")
    return True, "a job would be accepted", ""


def _folder(lab: Lab) -> Found:
    if lab.remote is not None:
        return False, f"the lab is at {lab.remote}", "--root DIR: a folder that all nodes share"
    if kind := network_file_system(lab.root):
        return True, f"the lab is on a network file system ({kind})", ""
    return None, f"the lab {lab.root} is on a disk of this machine", "nodes must see it under the same path"
