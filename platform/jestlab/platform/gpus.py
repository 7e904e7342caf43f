"""GPUs of this machine, given to jobs: each has its own, whoever launches it and in whichever lab.

A GPU is held by a lock on a file of its own, in a folder of this machine and user. The job's process inherits
the file: the kernel keeps the lock as long as any process of the job lives, also when its launcher has gone,
and frees it when the last one ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jestlab.models.data.files import own_temporary_folder
from jestlab.platform.errors import UserError, sentence
from jestlab.platform.spec.resources import Resources

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that says which GPUs a process may use."""

FOLDER = "JESTLAB_DEVICES"
"""Environment variable that names the folder of the locks, in the place of one among temporary files."""

_ANSWER_SECONDS = 20.0
_DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class TakenGpus:
    """GPUs that have been taken for a job.

    Attributes:
        visible: What `CUDA_VISIBLE_DEVICES` is in the job.
        files: Descriptors that hold them: for the job to inherit, and for this process to close.
    """

    visible: str
    files: tuple[int, ...]

    def close(self) -> None:
        """Let go of them here: what has inherited them goes on holding them."""
        for descriptor in self.files:
            os.close(descriptor)


class LocalGpus:
    """The GPUs that this process may use."""

    def __init__(self, resources: Resources, environment: Mapping[str, str] = os.environ) -> None:
        """Find them, for jobs that need `resources.gpus` each; nothing is held yet.

        Args:
            resources: Of a run; its `gpus` is 1 or more.
            environment: Holds `CUDA_VISIBLE_DEVICES`, if somebody has chosen some.

        Raises:
            UserError: There are not so many, or the folder of the locks may be somebody else's.
        """
        self._count = resources.gpus
        self._names = _names(environment)
        if self._count > len(self._names):
            there = f"{len(self._names)} GPU{'s' if len(self._names) != 1 else ''}"
            seen = f" in {VISIBLE}" if environment.get(VISIBLE) is not None else ""
            raise UserError(
                f"each run asks for {self._count} (resources.gpus), and this machine has {there}{seen}: "
                "--set resources.gpus=N for fewer, or --on for another machine"
            )
        self._folder = _folder(environment)

    @property
    def jobs(self) -> int:
        """How many jobs have GPUs at a time."""
        return len(self._names) // self._count

    def room(self) -> int:
        """Return for how many more jobs there are GPUs that nobody holds now."""
        free = 0
        for name in self._names:
            if (descriptor := self._lock(name)) is not None:
                os.close(descriptor)
                free += 1
        return free // self._count

    def take(self) -> TakenGpus | None:
        """Take GPUs for one job; None if too few are free."""
        found: dict[str, int] = {}
        for name in self._names:
            if len(found) < self._count and (descriptor := self._lock(name)) is not None:
                found[name] = descriptor
        taken = TakenGpus(",".join(found), tuple(found.values()))
        if len(found) == self._count:
            return taken
        taken.close()
        return None

    def _lock(self, name: str) -> int | None:
        """Lock a GPU; return the descriptor that holds it, None if somebody else does."""
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
    """Return each GPU as CUDA_VISIBLE_DEVICES names it → the name of its lock, the same for all launchers."""
    uuids = _uuids()
    chosen = environment.get(VISIBLE)
    if chosen is None:
        return {uuid: uuid for uuid in uuids.values()}
    names: dict[str, str] = {}
    for name in (part.strip() for part in chosen.split(",")):
        if not name or name == "-1":  # CUDA ignores what follows
            break
        names[name] = uuids.get(name, name)
    return names


def _uuids() -> dict[str, str]:
    """Return the index and UUID of each GPU of this machine, by the driver's tool or its files."""
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=True,
        ).stdout
        pairs = [line.split(",", 1) for line in said.splitlines() if "," in line]
        return {index.strip(): uuid.strip() for index, uuid in pairs}
    found = []
    for file in sorted(_DRIVER.glob("*/information")):
        with suppress(OSError):
            found += re.findall(r"^GPU UUID:\s*(\S+)", file.read_text(), flags=re.MULTILINE)
    return {str(index): uuid for index, uuid in enumerate(found)}
