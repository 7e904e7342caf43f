"""Checkouts of code, jestlab's own and a user's: their commit, and what is not committed, without secrets.

Git finds a repository in any folder above, such as that of a project with jestlab installed in its `.venv`;
that one is somebody else's, and tells nothing about jestlab's code: `Checkout.of` returns none then.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATCH_BYTES = 200_000
"""Longer patches are cut off."""

_WORKER = "platform/jestlab/platform/worker.py"
"""A file of the checkout, by its path there."""

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_CALLS = "detect_secrets.filters.heuristic.is_indirect_reference"
"""The filter that takes no argument of a call for a secret; in `login("…")` it would miss one."""

_DIFF = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color")


@dataclass(frozen=True)
class Checkout:
    """Where code is checked out.

    Attributes:
        commit: The commit that is checked out.
        folder: Of the code, from the top of the repository; empty for all of it.
        place: Any folder of the code, on this machine.
    """

    commit: str
    folder: str
    place: Path

    @classmethod
    def of(cls, code: Path) -> Checkout | None:
        """Return the checkout that a folder of jestlab's code is in; None if it is installed otherwise."""
        known = git(code, "ls-files", "--full-name", "--error-unmatch", "worker.py")
        if known is None or not known.strip().endswith(_WORKER):
            return None
        commit = git(code, "rev-parse", "HEAD")
        if commit is None:  # nothing is committed yet
            return None
        return cls(commit.strip(), known.strip().removesuffix(_WORKER), code)

    @classmethod
    def around(cls, file: Path) -> Checkout | None:
        """Return the checkout that a file of a user's lies in; None without one, or without a commit."""
        if repository_of(file) is None:
            return None
        commit = git(file.parent, "rev-parse", "HEAD")
        return None if commit is None else cls(commit.strip(), "", file.parent)

    def changed(self) -> list[str]:
        """Return the files with changes that are not committed."""
        return (git(self.place, *_DIFF, "--name-only", "--", f":/{self.folder}") or "").splitlines()

    def patch(self, clean: Callable[[str], str]) -> str | None:
        """Return what is not committed, without secrets and at most about `PATCH_BYTES`; None for nothing.

        Args:
            clean: Replaces secrets that are known already.
        """
        patch = git(self.place, *_DIFF, "--", f":/{self.folder}")
        if not patch:
            return None
        patch = clean(patch)
        left_out = len(patch) - PATCH_BYTES
        patch = without_secrets(patch[:PATCH_BYTES])
        return patch if left_out <= 0 else f"{patch}\n[{left_out} more characters left out]\n"


def repository_of(file: Path) -> Path | None:
    """Return the top of the repository that a file lies in, as git would find it; None without one."""
    return next((folder for folder in file.parents if (folder / ".git").exists()), None)


def without_secrets(text: str) -> str:
    """Leave out private keys, and lines in which Yelp's detect-secrets finds a secret.

    It knows the forms of many services' keys and assignments to names such as `password`, and takes quoted
    text of high entropy for a secret: github.com/Yelp/detect-secrets.
    """
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    text = _PRIVATE_KEY.sub("[a private key is left out]", text)
    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:
        file = Path(folder) / "patch.txt"
        file.write_text(text, encoding="utf-8")
        with default_settings() as settings:
            settings.disable_filters(_CALLS)
            found = {secret.line_number: secret.type for secret in scan_file(str(file))}
    lines = text.split("\n")
    for number, kind in found.items():
        lines[number - 1] = f"{lines[number - 1][:1]}[a line is left out, which may hold a secret: {kind}]"
    return "\n".join(lines)


def git(folder: Path, *arguments: str) -> str | None:
    """Standard output of git; None where there is no git, no checkout, or no answer in time."""
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode(errors="replace").replace("\0", "") if result.returncode == 0 else None
