"""What jobs of Slurm read and leave in the lab: `slurm/BATCH`, one folder for what is submitted together.

A batch is one job, or an array of them, and named by the marks of its attempts: so whoever knows the marks of
an attempt can tell whether a job that bears the batch's name is that attempt's. The folder holds

    marks          digests of the marks of the attempts, a line a task
    N.sh           what task N executes, and its environment with the store's URL; the job removes it
    N.end          the exit code of task N, and the id of its job
    N.out          what Slurm itself says

All of it is readable by its owner alone.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executor import ExecutorAway, Job, Marks

_NAMES = "names"


class Task(NamedTuple):
    """An attempt's place: the batch that it was submitted with, and its number there."""

    batch: str
    number: int


class End(NamedTuple):
    """What a job left when it ended: its exit code as the shell has it, and its id."""

    code: int
    job: str


def batch_of(marks: Sequence[Marks]) -> str:
    """Name the batch of these attempts."""
    return _batch(list(map(_digest, marks)))


def _batch(digests: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:32]


def _digest(marks: Marks) -> str:
    """Return what stands for marks in a file: a copy of the lab shall not have their tokens."""
    return hashlib.sha256(str(marks).encode()).hexdigest()


class Batches:
    """The folders of batches in one lab."""

    def __init__(self, lab: Lab) -> None:
        """Make nothing yet."""
        self._lab = lab
        self._marks: dict[str, list[str]] = {}

    def folder(self, batch: str) -> Path:
        """Return the folder of a batch."""
        return self._lab.slurm / batch

    def find(self, job: Job) -> Task | None:
        """Return where a job was put when its name was launched before; None if it was not."""
        try:
            batch, number = (self._lab.slurm / _NAMES / job.name).read_text().split()
        except (OSError, ValueError):
            return None
        task = Task(batch, int(number))
        return task if self.bears(task, job.marks) else None

    def write(self, jobs: Sequence[Job], environment: Mapping[str, str]) -> str:
        """Write all that a batch's jobs read, before it is submitted; return the batch.

        Raises:
            ExecutorAway: The lab cannot be written to now.
        """
        digests = [_digest(job.marks) for job in jobs]
        batch = _batch(digests)
        try:
            folder = self._lab.make_folder(f"{self._lab.slurm.name}/{batch}")
            folder.chmod(0o700)
            names = self._lab.make_folder(f"{self._lab.slurm.name}/{_NAMES}")
            _write(folder / "marks", "".join(f"{each}\n" for each in digests))
            for number, job in enumerate(jobs):
                self._lab.make_folder(job.log.parent.relative_to(self._lab.root))
                _write(folder / f"{number}.sh", _sourced(job, environment))
                _write(names / job.name, f"{batch} {number}\n")
        except StoreUnreachable as error:
            raise ExecutorAway(str(error)) from None
        except OSError as error:
            raise ExecutorAway(f"{error.filename}: cannot be written: {error.strerror}") from None
        return batch

    def bears(self, task: Task, marks: Marks) -> bool | None:
        """Whether a task is the attempt's with these marks; None if that cannot be found out now."""
        if batch_of([marks]) == task.batch:
            return task.number == 0
        if task.batch not in self._marks:
            try:
                lines = (self.folder(task.batch) / "marks").read_text().splitlines()
            except OSError:
                return None
            if _batch(lines) != task.batch:
                return False
            self._marks[task.batch] = lines
        lines = self._marks[task.batch]
        return task.number < len(lines) and lines[task.number] == _digest(marks)

    def end(self, task: Task) -> End | None:
        """Return what a job left when it ended; None if it has not, or was killed."""
        try:
            code, job = (self.folder(task.batch) / f"{task.number}.end").read_text().split()
            return End(int(code), job)
        except (OSError, ValueError):
            return None

    def discard(self, batch: str) -> None:
        """Let what may have been submitted end at once, without having done anything."""
        for file in self.folder(batch).glob("*.sh"):
            file.unlink(missing_ok=True)


def _sourced(job: Job, environment: Mapping[str, str]) -> str:
    """Write what a job's script sources: variables, and the command's arguments as an array."""
    variables = {**environment, **job.environment}
    lines = [
        f"export {name}={shlex.quote(value)}" for name, value in variables.items() if name.isidentifier()
    ]
    words = " ".join(map(shlex.quote, ["-m", job.module, *job.arguments]))
    return "\n".join([*lines, f"log={shlex.quote(str(job.log))}", f"arguments=({words})", ""])


def _write(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    new.replace(path)
