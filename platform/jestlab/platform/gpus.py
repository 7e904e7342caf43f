"""GPUs of this machine: assign different GPUs to each job, across all launchers, labs, and users.

A job reserves a GPU by locking the GPU's file in a folder of this machine. The job's process inherits the
open file. So the kernel keeps the lock while any process of the job runs, even if the launcher ends, and
releases it when the last process ends.

All users can create files in the folder and open those of others, but only for reading, which suffices to
lock them (flock(2)). So another user can reserve GPUs, and do nothing worse.
"""

import fcntl
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jestlab.platform.errors import UserError, sentence
from jestlab.platform.spec.resources import Resources

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""Environment variable that lists the GPUs that a process may use."""

LOCK_FOLDER = "JESTLAB_DEVICES"
"""Environment variable with the folder of the locks."""

_SHARED_FOLDER = Path("/tmp/jestlab-gpus")
"""Default folder of the locks. TMPDIR, which may differ between users, has no effect on it."""

_NVIDIA_SMI_SECONDS = 20.0


class LocalGpus:
    """The GPUs that this process may use."""

    def __init__(self, resources: Resources, environment: Mapping[str, str] = os.environ) -> None:
        """Find the GPUs for jobs that require `resources.gpus` (at least 1) each, without locking any.

        Raises:
            UserError: There are too few GPUs, or the folder of the locks can't be used.
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
        return _released(self._locked(len(self._names))) // self._count

    def take(self) -> dict[str, int] | None:
        """Lock GPUs for one job.

        Returns:
            Each GPU's name in `CUDA_VISIBLE_DEVICES` → the file descriptor that holds its lock. The job
            must inherit the descriptors; the caller closes them. None if too few GPUs are free.
        """
        if len(locked := self._locked(self._count)) == self._count:
            return locked
        _released(locked)
        return None

    def _locked(self, most: int) -> dict[str, int]:
        """Lock free GPUs, at most so many; return the descriptors that hold the locks, by GPU."""
        locked: dict[str, int] = {}
        for name, uuid in self._names.items():
            if len(locked) == most:
                break
            descriptor = _opened(self._folder / re.sub(r"[^-\w.:]", "_", uuid))
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked[name] = descriptor
            except BlockingIOError:
                os.close(descriptor)
        return locked


def _released(locked: Mapping[str, int]) -> int:
    """Release locks, and return their number."""
    for descriptor in locked.values():
        os.close(descriptor)
    return len(locked)


def _opened(file: Path) -> int:
    """Open a lock's file for reading; create it if it is missing, so that all users can read it.

    Raises:
        UserError: The file can't be opened, or is a link.
    """
    try:
        while True:
            # Linux forbids O_CREAT on existing files of others in such folders (fs.protected_regular).
            with suppress(FileNotFoundError):
                return os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with suppress(FileExistsError):
                descriptor = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
                os.fchmod(descriptor, 0o444)  # whatever the umask is
                return descriptor
    except OSError as error:
        raise _unusable(file, error) from None


def _folder(environment: Mapping[str, str]) -> Path:
    """Create and return the folder of the locks, in which all users can create files."""
    folder = Path(environment.get(LOCK_FOLDER) or _SHARED_FOLDER)
    try:
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)  # sticky: only owners can delete their files
    except OSError as error:
        raise _unusable(folder, error) from None
    return folder


def _unusable(path: Path, error: OSError) -> UserError:
    reason = sentence(error)
    return UserError(f"{path} can't be used to reserve GPUs: {reason}: remove it, or set {LOCK_FOLDER}")


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
