"""The code that runs execute: its commit, its uncommitted changes, and the text of the user's files.

Secrets are left out of all text.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from jestlab.platform.digests import digest_of
from jestlab.platform.store.rows import execute_many, insert, one_of
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import SourceRow

PATCH_BYTES = 200_000
"""Longer patches are cut off."""

MOST_FILE_BYTES = 256 * 1024
"""The text of larger files is not stored, only their digests."""

MOST_BYTES = 4 * 1024 * 1024
"""The same, for all files of one run together."""

_WORKER = "platform/jestlab/platform/worker.py"  # from the top of jestlab's checkout
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
# This filter ignores arguments of calls: it would miss the secret in `login("…")`.
_CALLS = "detect_secrets.filters.heuristic.is_indirect_reference"
_DIFF = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color")
_SCRIPTS = frozenset({".py", ".sh", ".bash", ".zsh", ".pl", ".rb", ".js", ".ts", ".jl", ".r", ".lua"})


# ---- checkouts


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
    def of(cls, code: Path) -> Checkout | None:
        """Return the checkout with jestlab's code; None if it is installed otherwise.

        Git also finds the repository of a project with jestlab installed in its `.venv`. Its commit says
        nothing about jestlab's code, and its changes are private.
        """
        known = git(code, "ls-files", "--full-name", "--error-unmatch", "worker.py")
        commit = git(code, "rev-parse", "HEAD")
        if known is None or commit is None or not known.strip().endswith(_WORKER):
            return None
        return cls(commit.strip(), known.strip().removesuffix(_WORKER), code)

    @classmethod
    def around(cls, file: Path) -> Checkout | None:
        """Return the checkout that contains a user's file; None without one, or without a commit."""
        if repository_of(file) is None:
            return None
        commit = git(file.parent, "rev-parse", "HEAD")
        return None if commit is None else cls(commit.strip(), "", file.parent)

    def changed(self) -> list[str]:
        """Return the files with uncommitted changes."""
        return (git(self.place, *_DIFF, "--name-only", "--", f":/{self.folder}") or "").splitlines()

    def patch(self, clean: Callable[[str], str]) -> str | None:
        """Return the uncommitted changes, at most about `PATCH_BYTES`; `clean` replaces known secrets.

        None without changes.
        """
        patch = git(self.place, *_DIFF, "--", f":/{self.folder}")
        if not patch:
            return None
        patch = clean(patch)
        left_out = len(patch) - PATCH_BYTES
        patch = without_secret_lines(patch[:PATCH_BYTES])
        return patch if left_out <= 0 else f"{patch}\n[{left_out} more characters left out]\n"


def repository_of(file: Path) -> Path | None:
    """Return the top of the repository that contains a file; None without one."""
    return next((folder for folder in file.parents if (folder / ".git").exists()), None)


def git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git; None without git or a checkout, or if git does not answer in time."""
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


def without_secret_lines(text: str) -> str:
    """Leave out private keys, and lines in which Yelp's detect-secrets finds a secret."""
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    text = _PRIVATE_KEY.sub("[a private key is left out]", text)
    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:
        file = Path(folder) / "patch.txt"
        file.write_text(text, encoding="utf-8")
        with default_settings() as settings:
            settings.disable_filters(_CALLS)
            secrets = {secret.line_number: secret.type for secret in scan_file(str(file))}
    lines = text.split("\n")
    for number, kind in secrets.items():
        lines[number - 1] = f"{lines[number - 1][:1]}[a line is left out, which may hold a secret: {kind}]"
    return "\n".join(lines)


# ---- the user's code


@dataclass(frozen=True)
class SourceFiles:
    """Files of the user's code.

    Attributes:
        folder: Folder of the script or module that is executed.
        files: Path from that folder → the file, the executed one first.
    """

    folder: Path
    files: Mapping[str, Path]

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each readable file by its path."""
        found = {name: digest_of(file) for name, file in self.files.items()}
        return {name: digest for name, digest in found.items() if digest is not None}


def store_texts(store: Store, files: Iterable[Path], clean: Callable[[str], str]) -> None:
    """Store the text of scripts that the store does not have yet.

    Other files that a command names may be data or credentials: only their digests are recorded. `clean`
    replaces known secrets.
    """
    found = dict(script_texts(files))
    missing = found.keys() - texts(store, found).keys()
    rows = [
        {"sha256": digest, "text": without_secret_lines(clean(found[digest]))} for digest in sorted(missing)
    ]
    if rows:
        with store.writing() as connection:
            execute_many(connection, insert(connection, SourceRow).on_conflict_do_nothing(), rows)


def texts(store: Store, digests: Iterable[str]) -> dict[str, str]:
    """Return the text of files by their digests, if the store has them."""
    query = select(SourceRow.sha256, SourceRow.text).where(one_of(SourceRow.sha256, digests))
    return {row.sha256: row.text for row in store.rows(query)}


def script_texts(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield digest and text of scripts, within the limits of size."""
    left = MOST_BYTES
    for file in files:
        try:
            size = file.stat().st_size
            if size > min(MOST_FILE_BYTES, left):
                continue
            text = file.read_bytes().decode()
            digest = digest_of(file)
        except (OSError, UnicodeDecodeError):
            continue
        is_script = file.suffix.lower() in _SCRIPTS or text.startswith("#!")
        if is_script and digest is not None and "\0" not in text:
            left -= size
            yield digest, text
