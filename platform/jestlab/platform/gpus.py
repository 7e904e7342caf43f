"""GPUs of this machine: assign different GPUs to each job, across all launchers and labs of a user.

A job reserves a GPU by locking the GPU's file in a folder of this machine and user. The job's process
inherits the open file. So the kernel keeps the lock while any process of the job runs, even if the launcher
ends, and releases it when the last process ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from jestlab.models.data.files import own_temporary_folder
from jestlab.platform.errors import UserError, sentence
from jestlab.platform.spec.resources import Resources

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""Environment variable that lists the GPUs that a process may use."""

LOCK_FOLDER = "JESTLAB_DEVICES"
"""Environment variable with the folder of the locks; the default is a temporary folder."""

_NVIDIA_SMI_SECONDS = 20.0


class LocalGpus:
    """The GPUs that this process may use."""

    def __init__(self, resources: Resources, environment: Mapping[str, str] = os.environ) -> None:
        """Find the GPUs for jobs that require `resources.gpus` (at least 1) each, without locking any.

        Raises:
            UserError: There are too few GPUs, or another user may control the folder of the locks.
        """
        self._count = resources.gpus
        self._names = _names(environment)
        if self._count > len(self._names):
            here = f"{len(self._names)} GPU{'s' if len(self._names) != 1 else ''}"
            visible = f" in {VISIBLE_DEVICES}" if environment.get(VISIBLE_DEVICES) is not None else ""
            raise UserError(
                f"each run requests {self._count} (resources.gpus), but this machine has {here}{visible}: "
                "request fewer with --set resources.gpus=N, or choose another executor with --on"
            )
        self._folder = _folder(environment)

    @property
    def jobs(self) -> int:
        """Number of jobs that can have GPUs at the same time."""
        return len(self._names) // self._count

    def room(self) -> int:
        """Return the number of further jobs for which enough GPUs are free."""
        free = 0
        for name in self._names:
            if (descriptor := self._lock(name)) is not None:
                os.close(descriptor)
                free += 1
        return free // self._count

    def take(self) -> dict[str, int] | None:
        """Lock GPUs for one job.

        Returns:
            Each GPU's name in `CUDA_VISIBLE_DEVICES` → the file descriptor that holds its lock. The job
            must inherit the descriptors; the caller closes them. None if too few GPUs are free.
        """
        locked: dict[str, int] = {}
        for name in self._names:
            if len(locked) < self._count and (descriptor := self._lock(name)) is not None:
                locked[name] = descriptor
        if len(locked) == self._count:
            return locked
        for descriptor in locked.values():
            os.close(descriptor)
        return None

    def _lock(self, name: str) -> int | None:
        """Lock a GPU; return the descriptor that holds the lock, or None if another job has locked it."""
        file = self._folder / re.sub(r"[^-\w.:]", "_", self._names[name])
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor


def _folder(environment: Mapping[str, str]) -> Path:
    """Create and return the folder of the locks."""
    if given := environment.get(LOCK_FOLDER):
        Path(given).mkdir(parents=True, exist_ok=True)
        return Path(given)
    try:
        return own_temporary_folder("jestlab-devices", LOCK_FOLDER)
    except OSError as error:
        raise UserError(sentence(error)) from None


def _names(environment: Mapping[str, str]) -> dict[str, str]:
    """Return each usable GPU's name in CUDA_VISIBLE_DEVICES → its UUID, which names its lock."""
    uuids = _uuids()
    chosen = environment.get(VISIBLE_DEVICES)
    if chosen is None:
        return {uuid: uuid for uuid in uuids.values()}
    names: dict[str, str] = {}
    for name in (part.strip() for part in chosen.split(",")):
        if not name or name == "-1":  # CUDA ignores the rest
            break
        names[name] = uuids.get(name, name)
    return names


def _uuids() -> dict[str, str]:
    """Return each GPU's UUID by its index, as `nvidia-smi` lists them; an empty dict if it fails."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=_NVIDIA_SMI_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = [line.split(",", 1) for line in answer.splitlines() if "," in line]
    return {index.strip(): uuid.strip() for index, uuid in pairs}
