"""What a report was made from, beside every file of it: enough to make it again and to compare."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..connection import shown

if TYPE_CHECKING:
    from .history import History

SUFFIX = ".provenance.json"
"""What the name of a provenance file ends in."""


@dataclass(frozen=True)
class Sources:
    """Of one report.

    Attributes:
        store: URL of the store, without its password.
        history: What the store knows of the experiment besides results.
        options: What the report was asked for: baseline, scope.
    """

    store: str
    history: History
    options: dict[str, str | None]

    @classmethod
    def of(cls, url: str, history: History, options: dict[str, str | None]) -> Sources:
        """Those of a report from the store at a URL."""
        return cls(shown(url), history, options)

    @cached_property
    def common(self) -> dict[str, Any]:
        """What holds for every file of the report. There is no date: the same results give the same bytes."""
        version, commit = code()
        return {
            "store": self.store,
            "experiment": self.history.experiment,
            "options": self.options,
            "newest_result": self.history.newest() or None,
            "jestlab": {"version": version, "commit": commit},
            "runs": self._states(),
        }

    def document(self, data: bytes, files: dict[str, bytes]) -> str:
        """The provenance file of one table or figure, JSON.

        Args:
            data: All that the files show, as CSV.
            files: Content by name.
        """
        content = {
            "files": {name: {"sha256": _sha256(made)} for name, made in sorted(files.items())},
            "data_sha256": _sha256(data),
            **self.common,
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    def _states(self) -> dict[str, str]:
        """Fingerprint → state, of every run."""
        runs = self.history.runs
        return dict(zip(map(str, runs["fingerprint"]), map(str, runs["state"]), strict=True))


def code() -> tuple[str | None, str | None]:
    """Version of jestlab, and the commit of the checkout that this code lies in; None where there is none."""
    try:
        version: str | None = metadata.version("jestlab")
    except metadata.PackageNotFoundError:
        version = None
    here = Path(__file__)
    # An installed copy may lie inside a checkout of something else, whose commit says nothing of this code.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return version, None
    commit = _git(here.parent, "rev-parse", "HEAD")
    changed = _git(here.parents[4], "status", "--porcelain", "--untracked-files=no")
    return version, f"{commit.strip()}{' with changes' if changed else ''}" if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    """Standard output of git; None where it fails, or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
