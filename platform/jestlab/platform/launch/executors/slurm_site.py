"""What `jestlab doctor` finds out of a site with Slurm; it submits nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab, network_file_system
from jestlab.platform.spec.slurm import Slurm

_COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "srun", "sacct", "sinfo")
_CONFIG = Path("/etc/slurm/slurm.conf")
_ANSWER_SECONDS = 20.0

Found = tuple[bool | None, str, str]
"""Whether it is well, None for a warning; what was found; what to do."""


def is_here() -> bool:
    """Whether this machine is part of a cluster with Slurm: it has the commands, and their configuration."""
    configured = "SLURM_CONF" in os.environ or _CONFIG.exists()
    return configured and shutil.which("sbatch") is not None


def examine(lab: Lab, options: Slurm, run: Callable[..., str] | None = None) -> Iterator[Found]:
    """Check a site: commands, controller, partitions, the account, accounting, and the lab's folder.

    Args:
        lab: Whose folder nodes have to see.
        options: The user's settings.
        run: Runs a command of Slurm, and raises UserError; None for the real one.
    """
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        yield False, f"{', '.join(missing)} not found", "launch on a machine of the cluster that has them"
        return
    from jestlab.platform.launch.executors.slurm_states import settings
    from jestlab.platform.launch.executors.slurm_tools import Tools

    if run is None:
        run = Tools(_ANSWER_SECONDS).run
    try:
        version = run("sbatch", "--version").strip()
        config = settings(run("scontrol", "show", "config"))
        yield True, f"{version}, cluster {config.get('ClusterName', '?')}", ""
    except UserError as error:
        yield False, "no answer", str(error)
        return
    for check in (_partitions, _account):
        try:
            yield check(run, options)
        except UserError as error:
            yield False, "refused", str(error)
    if config.get("AccountingStorageType", "").endswith("/none"):
        kept = config.get("MinJobAge", "some time")
        yield True, f"no accounting: jobs are remembered for {kept}, and by what they leave", ""
    else:
        yield True, f"accounting by {config.get('AccountingStorageType', '?')}", ""
    yield _folder(lab)


def _partitions(run: Callable[..., str], options: Slurm) -> Found:
    lines = run("sinfo", "--noheader", "--format=%R|%a|%D|%G").splitlines()
    told: dict[str, str] = {}
    for line in lines:
        name, state, nodes, gres = [*line.split("|", 3), "", "", ""][:4]
        gpus = "" if gres in ("", "(null)") else f", {gres}"
        told[name] = f"{name} ({nodes} nodes{gpus}{'' if state == 'up' else ', ' + state})"
    wanted = options.partition.split(",") if options.partition else []
    if unknown := [name for name in wanted if name not in told]:
        return False, f"no partition {', '.join(unknown)}", f"name one of {', '.join(told)}"
    return True, f"partitions {', '.join(told.values())}", ""


def _account(run: Callable[..., str], options: Slurm) -> Found:
    """Ask whether a job as small as can be would be accepted."""
    asked = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
    }
    said = [f"--{key}={value}" for key, value in asked.items() if value is not None]
    run("sbatch", "--test-only", *said, *options.options, "--wrap=true")
    return True, "a job would be accepted", ""


def _folder(lab: Lab) -> Found:
    if lab.remote is not None:
        return False, f"the lab is at {lab.remote}", "--root DIR: a folder that all nodes share"
    if kind := network_file_system(lab.root):
        return True, f"the lab is on a network file system ({kind})", ""
    found = f"the lab {lab.root} is on a disk of this machine"
    return None, found, "nodes have to see it under the same path"
