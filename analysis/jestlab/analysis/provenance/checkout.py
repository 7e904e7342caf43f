"""Git checkouts, and the version of jestlab's own code."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path

_PORTIONS = ("analysis", "experiments", "models", "platform")
_IN_CHECKOUT = re.compile(r"((?:.*/)?)([^/]+)/jestlab/\2/")  # such as models/jestlab/models/losses.py


@dataclass(frozen=True)
class Checkout:
    """A Git checkout.

    Attributes:
        commit: The commit that is checked out.
        folder: Folder of the code in the repository; empty for all of it.
        place: Any folder of the code, on this machine.
    """

    commit: str
    folder: str
    place: Path

    @classmethod
    def of(cls, file: Path) -> Checkout | None:
        """Return the checkout with a file of jestlab's code; None if jestlab is installed otherwise.

        Git also finds the repository of a project with jestlab installed in its `.venv`. Its commit says
        nothing about jestlab's code, and its changes are private.
        """
        known = git(file.parent, "ls-files", "-z", "--full-name", "--error-unmatch", file.name)
        commit = git(file.parent, "rev-parse", "HEAD")
        match = _IN_CHECKOUT.match(known or "")
        return None if match is None or commit is None else cls(commit.strip(), match[1], file.parent)

    @classmethod
    def around(cls, file: Path) -> Checkout | None:
        """Return the checkout that contains a user's file; None without one, or without a commit."""
        if repository_of(file) is None:
            return None
        commit = git(file.parent, "rev-parse", "HEAD")
        return None if commit is None else cls(commit.strip(), "", file.parent)

    def changes(self, *options: str) -> str | None:
        """Return the uncommitted changes, as `git diff` prints them; None or empty without changes."""
        diff = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", *options)
        return git(self.place, *diff, "--", f":/{self.folder}")


@cache
def jestlab_version() -> str:
    """Return jestlab's version; "unknown" if it isn't installed as a package.

    Different code can have the same version. Without a checkout, a digest of the code is part of the version:
    "0.1.0+code.3f2a9c01b7d4".
    """
    version = next((each.version for each in metadata.distributions(name="jestlab")), "unknown")
    if Checkout.of(Path(__file__)) is not None:
        return version
    # NOTE: `jestlab.__path__` would also contain a folder named jestlab in the working directory.
    specs = (util.find_spec(f"jestlab.{portion}") for portion in _PORTIONS)
    folders = {Path(spec.origin).parents[1] for spec in specs if spec and spec.origin}
    files = {file.relative_to(folder).as_posix(): file for folder in folders for file in folder.rglob("*.py")}
    digests = [f"{name} {hashlib.sha256(files[name].read_bytes()).hexdigest()}" for name in sorted(files)]
    return f"{version}+code.{hashlib.sha256(str(digests).encode()).hexdigest()[:12]}"


def repository_of(file: Path) -> Path | None:
    """Return the top of the repository that contains a file; None without one."""
    return next((folder for folder in file.parents if (folder / ".git").exists()), None)


def git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git; None if git isn't installed, fails, or takes longer than 10 seconds."""
    return output_of(["git", "-C", str(folder), *arguments], 10)


def output_of(command: Sequence[str], seconds: float) -> str | None:
    """Return the output of a command; None if the command fails or doesn't end in time."""
    env = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        process = subprocess.run(
            command, capture_output=True, check=True, timeout=seconds, stdin=subprocess.DEVNULL, env=env
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.decode(errors="replace").replace("\0", "")
