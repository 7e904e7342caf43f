"""GPUs of this machine: each job gets different ones, whichever launcher and lab it belongs to.

A job holds a GPU by a lock on the GPU's file in a folder of this machine and user. The job's process inherits
the open file, so the kernel keeps the lock while any process of the job lives, even after its launcher has
ended, and releases it when the last one ends.
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

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the GPUs that a process may use."""

FOLDER = "JESTLAB_DEVICES"
"""Environment variable with the folder of the locks; by default it is among temporary files."""

_ANSWER_SECONDS = 20.0


class LocalGpus:
    """The GPUs that this process may use."""

    def __init__(self, resources: Resources, environment: Mapping[str, str] = os.environ) -> None:
        """Find the GPUs for jobs that need `resources.gpus` (at least 1) each, without locking any.

        Raises:
            UserError: There are too few GPUs, or another user may control the folder of the locks.
        """
        self._count = resources.gpus
        self._names = _names(environment)
        if self._count > len(self._names):
            here = f"{len(self._names)} GPU{'s' if len(self._names) != 1 else ''}"
            visible = f" in {VISIBLE}" if environment.get(VISIBLE) is not None else ""
            raise UserError(
                f"each run requests {self._count} (resources.gpus), but this machine has {here}{visible}: "
                "--set resources.gpus=N for fewer, or --on for another machine"
            )
        self._folder = _folder(environment)

    @property
    def jobs(self) -> int:
        """How many jobs can have GPUs at a time."""
        return len(self._names) // self._count

    def room(self) -> int:
        """Return for how many more jobs there are free GPUs."""
        free = 0
        for name in self._names:
            if (descriptor := self._lock(name)) is not None:
                os.close(descriptor)
                free += 1
        return free // self._count

    def take(self) -> dict[str, int] | None:
        """Lock GPUs for one job; None if too few are free.

        Returns:
            Each GPU as in `CUDA_VISIBLE_DEVICES`, and the descriptor that holds its lock: the job inherits
            it, and this process closes it.
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
        """Lock a GPU; return the descriptor that holds the lock, None if it is taken."""
        file = self._folder / re.sub(r"[^-\w.:]", "_", self._names[name])
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor


def _folder(environment: Mapping[str, str]) -> Path:
    if given := environment.get(FOLDER):
        Path(given).mkdir(parents=True, exist_ok=True)
        return Path(given)
    try:
        return own_temporary_folder("jestlab-devices", FOLDER)
    except OSError as error:
        raise UserError(sentence(error)) from None


def _names(environment: Mapping[str, str]) -> dict[str, str]:
    """Return each GPU's name in CUDA_VISIBLE_DEVICES → the name of its lock, which all launchers share."""
    uuids = _uuids()
    chosen = environment.get(VISIBLE)
    if chosen is None:
        return {uuid: uuid for uuid in uuids.values()}
    names: dict[str, str] = {}
    for name in (part.strip() for part in chosen.split(",")):
        if not name or name == "-1":  # CUDA ignores the rest
            break
        names[name] = uuids.get(name, name)
    return names


def _uuids() -> dict[str, str]:
    """Return each GPU's UUID by its index, from the driver's tool; empty without it."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = [line.split(",", 1) for line in answer.splitlines() if "," in line]
    return {index.strip(): uuid.strip() for index, uuid in pairs}
