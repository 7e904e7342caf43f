"""Run git, and read the version of jestlab's own code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path


def jestlab_version() -> tuple[str | None, str | None]:
    """Return jestlab's version and the commit of its checkout; None for whichever doesn't exist."""
    version = next((each.version for each in metadata.distributions(name="jestlab")), None)
    here = Path(__file__)
    # An installed copy may be in the repository of another project, whose commit isn't jestlab's.
    if git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return version, None
    commit = git(here.parent, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty= with changes")
    return version, commit and commit.strip()


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
