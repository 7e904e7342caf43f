"""Provenance files: the source of each table and figure of a report, as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from ..connection import shown
from .history import History

SUFFIX = ".provenance.json"
"""End of the name of a provenance file."""


@dataclass(frozen=True)
class Sources:
    """The sources of a report, sufficient to make it again and to compare it.

    Attributes:
        url: URL of the store.
        history: History of the experiment.
        options: Options of the report: baseline, scope.
    """

    url: str
    history: History
    options: dict[str, str | None]

    @cached_property
    def common(self) -> dict[str, Any]:
        """The part that all files share. It has no date, so that equal results give equal bytes."""
        version, commit = jestlab_version()
        runs = self.history.runs
        return {
            "store": shown(self.url),  # without its password
            "experiment": self.history.experiment,
            "options": self.options,
            "newest_result": self.history.newest() or None,
            "jestlab": {"version": version, "commit": commit},
            "runs": dict(zip(map(str, runs["fingerprint"]), map(str, runs["state"]), strict=True)),
        }

    def document(self, data: bytes, files: dict[str, bytes]) -> str:
        """Return the provenance file of one table or figure as JSON.

        Args:
            data: All data that the files show, as CSV.
            files: Content of each file by name.
        """
        content = {
            "files": {name: {"sha256": _sha256(content)} for name, content in sorted(files.items())},
            "data_sha256": _sha256(data),
            **self.common,
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def jestlab_version() -> tuple[str | None, str | None]:
    """Return jestlab's version and the commit of its checkout; None without an installation or a checkout."""
    try:
        version: str | None = metadata.version("jestlab")
    except metadata.PackageNotFoundError:
        version = None
    here = Path(__file__)
    # An installed copy may be in the repository of another project, whose commit isn't jestlab's.
    if git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return version, None
    commit = git(here.parent, "rev-parse", "HEAD")
    changed = git(here.parents[4], "status", "--porcelain", "--untracked-files=no")
    return version, f"{commit.strip()}{' with changes' if changed else ''}" if commit else None


def git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git; None if git isn't installed, fails, or takes longer than 10 seconds."""
    return output_of(["git", "-C", str(folder), *arguments], 10)


def output_of(command: Sequence[str], seconds: float) -> str | None:
    """Return the output of a command; None if it fails, or doesn't end in time."""
    env = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, timeout=seconds, stdin=subprocess.DEVNULL, env=env
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").replace("\0", "")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
