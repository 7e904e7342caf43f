"""The user's code that a launch ships to its jobs: a commit of a Git repository, or an archive in the lab.

`launch.shipping` chooses the code when a study is launched, and describes it in an argument of each worker.
The worker fetches it to a local folder, once per machine, and runs the program there. So a run uses the code
of its launch, even if the user's files have changed since, or don't exist on the worker's machine.
"""

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from jestlab.analysis.shared import scratch
from jestlab.models.data.files import build_once
from jestlab.models.extensions import references
from jestlab.platform import logs
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import CODE, Lab
from jestlab.platform.lab.sync import Bucket
from jestlab.platform.programs.context import Failed
from jestlab.platform.store.records import RunRecord

_CLONE = """cd "$1" && git init --quiet &&
git fetch --quiet --depth 1 "$2" "$3" && git checkout --quiet FETCH_HEAD"""
_CLONE_SECONDS = 600.0


class ShippedCode(BaseModel):
    """The code of a launch.

    Attributes:
        top: Folder on the launcher's machine whose files are shipped.
        cwd: Working directory of the launcher.
        commit: Commit of the repository at `top`; None without one.
        url: URL to fetch the commit from; None if an archive is shipped.
        archive: SHA-256 of the uncompressed archive; None if a commit is shipped.
        changed: Whether the archive differs from the commit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    top: str
    cwd: str
    commit: str | None = None
    url: str | None = None
    archive: str | None = None
    changed: bool = False

    @property
    def file(self) -> str:
        """The archive's path in the lab."""
        return f"{CODE}/{self.archive}.tar.gz"

    @property
    def changes(self) -> str | None:
        """What attempts record as changes of the commit."""
        return f"The working tree of the launch: {self.file} in the lab.\n" if self.changed else None

    def applied(self, run: RunRecord, lab: Lab) -> RunRecord:
        """Fetch the code, enter its folder, and return the run that uses it.

        Modules are imported from the working directory, and commands without `cwd` run in it.

        Raises:
            UserError: The archive is missing or damaged, or the bucket is unreachable.
            Failed: The commit can't be cloned.
        """
        fetch = partial(self._unpack, lab) if self.url is None else self._clone
        folder = build_once(scratch() / CODE / str(self.archive or self.commit), fetch)
        if (cwd := self.located(self.cwd, folder)) != self.cwd:
            os.chdir(cwd)
        config: dict[str, Any] = self.located(run.config, folder)
        return replace(run, program=self.located(run.program, folder), config=config)

    def located(self, value: Any, folder: Path) -> Any:
        """Return a part of a config in which paths to shipped files lead to `folder`.

        These are the absolute paths of files, folders, and `file.py:name` in `top`. Other paths, such as
        those of data that Git ignores, are unchanged.
        """
        if isinstance(value, dict):
            return {self.located(key, folder): self.located(each, folder) for key, each in value.items()}
        if isinstance(value, list):
            return [self.located(each, folder) for each in value]
        path = Path(os.path.normpath(value)) if isinstance(value, str) else None
        if path is None or not path.is_relative_to(self.top):
            return value
        moved = str(folder / path.relative_to(self.top))
        file = moved.rpartition(":")[0] if references.is_reference(value) else moved
        return moved if Path(file).exists() else value

    def _unpack(self, lab: Lab, folder: Path) -> None:
        try:
            content = (
                Bucket(lab.remote).read(self.file) if lab.remote else (lab.root / self.file).read_bytes()
            )
        except FileNotFoundError:
            raise UserError(f"the lab has no {self.file}, the code of this run: launch it again") from None
        content = gzip.decompress(content)
        if hashlib.sha256(content).hexdigest() != self.archive:
            raise UserError(f"{self.file} in the lab is damaged: delete it, and launch again")
        (folder / ".git").mkdir()  # marks the top of the user's modules: see `sources`
        # Older versions of Python 3.11 have no filters. They can trust the digest.
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, **safely)

    def _clone(self, folder: Path) -> None:
        process = subprocess.run(
            ["sh", "-c", _CLONE, "sh", str(folder), str(self.url), str(self.commit)],
            env={"GIT_SSH_COMMAND": "ssh -o BatchMode=yes", **os.environ, "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True, errors="replace", timeout=_CLONE_SECONDS,
        )  # fmt: skip
        if process.returncode:
            needs = "jobs need git, and for private repositories a key or a credential helper"
            reason = f"can't clone {self.url}: {logs.tail(process.stderr, 4)} ({needs})"
            raise Failed(reason, recurs=process.returncode == 127)  # without git
