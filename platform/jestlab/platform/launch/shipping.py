"""Ship the user's code with a launch: check that a commit is pushed, or pack the working tree for the lab.

`programs.shipped` fetches the code in the jobs. The files are those of the Git repository that contains a
run's folder, or of this folder if it is in no repository. The lab's own files are left out.
"""

import gzip
import hashlib
import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from jestlab.analysis.provenance.checkout import repository_of
from jestlab.models.data.files import write_whole
from jestlab.platform import logs
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import CODE, Lab
from jestlab.platform.lab.sync import Bucket
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.programs.command import known_words, scripts_of
from jestlab.platform.programs.shipped import ShippedCode
from jestlab.platform.programs.sources import folder_of, sources_of
from jestlab.platform.redaction import without_url_credentials
from jestlab.platform.store.records import RunState
from jestlab.platform.words import counted, few

MOST_BYTES = 50_000_000
"""Limit of all files together, before compression."""

_TIME = 315_532_800  # 1980-01-01: older files can't be put into ZIP archives
_OR_COPY = "or set `code: copy`"


class Shipping:
    """The code of one launch. Each folder is read once, so that all rounds use the same code."""

    def __init__(self, lab: Lab, how: Literal["git", "copy"] | None, note: Callable[[str], None]) -> None:
        """Prepare to ship code as `resources.code` says, if it does; `note` gets a line about each folder."""
        self._lab = lab
        self._how = how
        self._note = note
        self._codes: dict[Path, tuple[ShippedCode, frozenset[str]]] = {}
        self._archives: dict[str, bytes] = {}  # to send

    def arguments(self, runs: Iterable[PlannedRun]) -> dict[str, str]:
        """Ship the code of incomplete runs; return the worker's argument by a run's fingerprint.

        Raises:
            UserError: The code can't be shipped. Nothing was written, unless the lab isn't reachable.
        """
        arguments = {}
        for run in runs if self._how else ():
            if run.state == RunState.COMPLETED or (place := _place(run)) is None:
                continue
            folder, files = place
            top = repository_of(folder / "_") or folder
            code, names = self._codes[top] = self._codes.get(top) or self._shipped(top)
            if not any((top / name).is_relative_to(folder) for name in names):
                raise UserError(f"no code to ship: Git ignores all files in {folder}")
            for file in files:
                if file.is_file() and file.is_relative_to(top) and str(file.relative_to(top)) not in names:
                    raise UserError(f"{file} can't be shipped: Git ignores it, see `git check-ignore -v`")
            arguments[run.fingerprint] = code.model_dump_json(exclude_defaults=True)
        while self._archives:
            self._send(*self._archives.popitem())
        return arguments

    def _shipped(self, top: Path) -> tuple[ShippedCode, frozenset[str]]:
        """Ship the code of a folder; return its description, and the names of its files."""
        names = files_of(top, (self._lab.root, self._lab.reports))
        commit, changes = _commit(top, names)
        code = ShippedCode(top=str(top), cwd=str(Path.cwd()), commit=commit)
        if self._how == "git":
            url = _url(top, commit, changes)
            self._note(f"code: commit {commit} of {url}")
            # In arguments, a URL with `@` counts as one with a password.
            url = url.replace("@", "%40") if url.startswith("ssh:") else url
            return code.model_copy(update={"url": url}), names
        content = pack(top, names)
        archive = hashlib.sha256(content).hexdigest()
        code = code.model_copy(update={"archive": archive, "changed": commit is None or bool(changes)})
        self._archives[code.file] = content
        self._note(f"code: {counted(len(names), 'file')}, {len(content) / 1e3:,.0f} kB, from {top}")
        return code, names

    def _send(self, name: str, content: bytes) -> None:
        """Write an archive to the lab, unless it is there."""
        path, bucket = self._lab.root / name, Bucket(self._lab.remote) if self._lab.remote else None
        if bucket is None and path.exists():
            path.touch()  # it is in use: see `gc`
        elif bucket is None and not write_whole(path, gzip.compress(content, mtime=0)):
            raise UserError(f"can't write {path}: no permission")
        elif bucket is not None and path.name not in bucket.names(CODE):
            bucket.write(name, gzip.compress(content, mtime=0))


def _place(run: PlannedRun) -> tuple[Path, list[Path]] | None:
    """Return the folder of a run's code, and its files that the run executes; None without such code."""
    if run.program == "command":
        folder = _normal(folder_of(run.config))
        return folder, [_normal(folder / script) for script in scripts_of(known_words(run.config))]
    files = [_normal(file) for file in (sources_of(run.program, run.config) or {}).values()]
    return (files[0].parent, files) if files else None


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


# ---- Git


def _git(folder: Path, *arguments: str) -> list[str]:
    """Return the words that git prints, separated by NUL or line breaks; UserError if it fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        output = subprocess.run(command, check=True, capture_output=True).stdout
    except FileNotFoundError:
        raise UserError("`resources.code` needs git, which isn't installed") from None
    except subprocess.CalledProcessError as error:
        raise UserError(f"git {arguments[0]} in {folder}: {logs.tail(os.fsdecode(error.stderr))}") from None
    return [os.fsdecode(each) for each in output.split(b"\0" if "-z" in arguments else b"\n") if each]


def files_of(top: Path, left_out: Iterable[Path] = ()) -> frozenset[str]:
    """Return the existing files of a folder that Git doesn't ignore, also those of submodules.

    A folder without a repository may have a file `.gitignore`, too. Files in `left_out` are left out.
    """
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if (top / ".git").exists():
        listed = _git(top, *words)
    else:
        with tempfile.TemporaryDirectory(prefix="jestlab-") as empty:
            _git(top, "init", "--quiet", "--bare", empty)
            listed = _git(top, f"--git-dir={empty}", "--work-tree=.", *words)
    names: set[str] = set()
    for name in listed:
        path = top / name
        if any(path.is_relative_to(folder) for folder in left_out):
            continue
        if path.is_dir() and not path.is_symlink():  # another repository
            names |= {str(Path(name, inner)) for inner in files_of(path, left_out)}
        elif os.path.lexists(path):
            names.add(name)
    return frozenset(names)


def _commit(top: Path, names: frozenset[str]) -> tuple[str | None, list[str]]:
    """Return the commit of a folder, None without one, and the files that differ from it or aren't in it."""
    if not (top / ".git").exists() or not _git(top, "rev-list", "--all", "--max-count=1"):
        return None, []
    changed = _git(top, "diff", "-z", "--name-only", "HEAD")
    known = {*_git(top, "ls-tree", "-r", "-z", "--name-only", "HEAD"), *changed}
    return _git(top, "rev-parse", "HEAD")[0], [*changed, *sorted(names - known)]


def _url(top: Path, commit: str | None, changes: list[str]) -> str:
    """Return the URL of a remote that has a commit.

    Raises:
        UserError: A clone would lack files, no remote has the commit, or the URL has a password.
    """
    if (top / ".gitmodules").exists():
        raise UserError(f"`code: git` doesn't clone the submodules of {top}: set `code: copy`")
    if commit is None or changes:
        problem = f"uncommitted changes in {top}: {few(changes)}" if commit else f"{top} has no commit"
        raise UserError(f"`code: git`: {problem}: commit and push, {_OR_COPY}")
    remotes = _git(top, "remote")
    branches = _git(top, "branch", "-r", "--format=%(refname:lstrip=2)", "--contains", commit)
    having = [name for name in remotes if any(branch.startswith(f"{name}/") for branch in branches)]
    if not having:
        where = f"isn't on {few(remotes)}: push it" if remotes else "has no remote: add one, push"
        raise UserError(f"`code: git`: commit {commit[:12]} of {top} {where}, {_OR_COPY}")
    [url] = _git(top, "remote", "get-url", having[0])
    if (shown := without_url_credentials(url)) != url and not re.match("ssh://[^:/]+@", url):
        raise UserError(
            f"the URL of remote {having[0]} contains credentials, which others could read: {shown}: remove "
            f"them by `git remote set-url`, and give them to the image, {_OR_COPY}"
        )
    return url if ":" in url.partition("/")[0] else str((top / url).resolve())


# ---- the archive


def pack(top: Path, names: Iterable[str]) -> bytes:
    """Return a tar archive of files and links: the same for the same contents and executable bits.

    Raises:
        UserError: The files are too large, or one is a link out of the folder, or isn't a file.
    """
    names = sorted(names, key=os.fsencode)
    _check_size(top, names)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            path, member, content = top / name, tarfile.TarInfo(name), b""
            member.mtime = _TIME
            if path.is_symlink():
                member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
                if (
                    not _normal(path.parent / member.linkname).is_relative_to(top)
                    or member.linkname[0] == "/"
                ):
                    remedy = "list it in .gitignore, or link to a file there by a relative path"
                    raise UserError(f"{path} is a link out of {top}, to {member.linkname}: {remedy}")
            elif path.is_file():
                content = path.read_bytes()
                member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            else:
                raise UserError(f"{path} isn't a file: list it in .gitignore")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _check_size(top: Path, names: Iterable[str]) -> None:
    sizes: Counter[str] = Counter()
    for name in names:
        first, slash, _ = name.partition("/")
        sizes[first + slash] += (top / name).lstat().st_size
    if sizes.total() > MOST_BYTES:
        largest = ", ".join(f"{name} ({size / 1e6:,.0f} MB)" for name, size in sizes.most_common(3))
        raise UserError(
            f"the code in {top} has {sizes.total() / 1e6:,.0f} MB, more than {MOST_BYTES / 1e6:.0f}: "
            f"list in .gitignore what jobs don't need; the largest: {largest}"
        )
