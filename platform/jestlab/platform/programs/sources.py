"""Find the custom code that a run executes: its script or module, and the user's modules that it imports.

Imports are read from the syntax, without executing code, so that a plan finds the same files as a worker.
They are followed in the script's folder and in its repository, but not into installed packages, and not if
the name of a module is computed. For jestlab's programs, custom code is the code that their configs name,
such as a selection rule or a loss.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jestlab.analysis.provenance.checkout import repository_of
from jestlab.models.extensions import references
from jestlab.models.extensions.content import followed, module_files
from jestlab.platform.plugins import files_of
from jestlab.platform.programs.command import known_words

MOST_FILES = 2_000
"""Maximum number of files of one program; others are left out."""

_LARGEST = 1 << 26  # larger files of a command are data: see `record: {files: …}`
_INTERPRETER = re.compile(r"(python|pypy|ruby|perl|node|julia|Rscript|bash|sh|zsh|env)[\d.]*")
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_INSTALLED = frozenset({"site-packages", "dist-packages", "__pycache__"})


def sources_of(program: str, config: Mapping[str, Any]) -> dict[str, Path] | None:
    """Return the files of a run's custom code by relative path; None without any."""
    if program == "command":
        words, folder = known_words(config), folder_of(config)
        return _with_imports(tuple(_files_in_command(words, folder)), folder if "-m" in words else None)
    if references.is_reference(program):
        file = references.file_of(program)
        if file is None or not _is_custom(file):
            return None
        return _with_imports((file,), references.root_of(program, file))
    return _with_imports([file for file in files_of(config) if _is_custom(file)], None)


def interpreter_of(program: str, config: Mapping[str, Any]) -> str | None:
    """Return the path of the Python that a run's command starts, if it isn't this process's; else None."""
    words = known_words(config) if program == "command" else []
    if not words or not _PYTHON.fullmatch(Path(words[0]).name):
        return None
    found = shutil.which(str(folder_of(config) / words[0]) if os.sep in words[0] else words[0])
    return None if found is None or Path(found).parent == Path(sys.executable).parent else found


# ---- words of a command


def folder_of(config: Mapping[str, Any]) -> Path:
    """Return the folder that a command runs in, by default this process's working directory."""
    return Path(config.get("cwd") or Path.cwd())


def _files_in_command(words: Sequence[str], cwd: Path) -> Iterator[Path]:
    """Yield the user's files that a command names, including those of a module after -m."""
    parts: list[str] = []
    for word in words:
        try:
            parts += shlex.split(word) if any(map(str.isspace, word)) else [word]
        except ValueError:  # unbalanced quotes
            continue
    runs_python = any(_PYTHON.fullmatch(Path(part).name) for part in parts)
    for index, part in enumerate(parts):
        if index == 0 and (os.sep not in part or _INTERPRETER.fullmatch(Path(part).name)):
            continue  # on PATH, or an interpreter
        if runs_python and part == "-m" and index + 1 < len(parts):
            found = module_files(parts[index + 1], [cwd])[-1:]
            mains = [path.parent / "__main__.py" for path in found if path.name == "__init__.py"]
            yield from (path for path in (*found, *mains) if path.is_file())
            continue
        file = Path(os.path.normpath(cwd / part)) if part else cwd
        if file.is_file() and file.stat().st_size <= _LARGEST and _is_custom(file):
            yield file


def _is_custom(file: Path) -> bool:
    """Return whether a file is neither an interpreter nor part of the system or an installed package."""
    if _INTERPRETER.fullmatch(file.name) and shutil.which(str(file)):
        return False
    system = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/etc/", "/dev/", "/proc/", "/sys/")
    return not _INSTALLED & set(file.parts) and not str(file).startswith(system)


# ---- imports


def _with_imports(entries: Sequence[Path], root: Path | None) -> dict[str, Path] | None:
    """Return files and the user's modules that they import, by path relative to the first file's folder.

    Args:
        entries: The files to start from.
        root: The folder in which modules are found, if a module is executed; None for a script.
    """
    if not entries:
        return None
    first = entries[0]
    base = root or first.parent
    top = repository_of(first) or base
    inside = [folder for folder in dict.fromkeys((base, top, top / "src")) if folder.is_relative_to(top)]
    files = followed(entries, inside, lambda file: file.is_relative_to(top) and _is_custom(file), MOST_FILES)
    return {os.path.relpath(file, first.parent): file for file in files}
