"""Which file a command executes: its first word, or the script that an interpreter is given."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from jestlab.platform.errors import UserError, closest

_WRAPPERS = frozenset({"env", "nice", "nohup", "time"})
_INTERPRETERS = re.compile(r"(python|pypy)[\d.]*|(ba|da|k|z|fi)?sh|perl|ruby|node|julia|Rscript|lua")
_SUFFIXES = frozenset({".py", ".sh", ".bash", ".pl", ".rb", ".js", ".jl", ".R", ".lua"})
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_WITH_VALUE = frozenset({"-W", "-X", "-o", "-O"})
_WITHOUT_SCRIPT = frozenset("cmeEp")  # options that are given code or a module: python -c, -m, perl -e
_STANDARD_INPUT = "-"
_LONGEST_LINE = 4_096


def scripts_of(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command that are certainly files which it executes.

    These are its first word, if that is a path, the first argument of an interpreter that is no option, and
    of other commands (`torchrun --nproc-per-node 2 train.py`) the first word with the suffix of a script that
    follows no option. Words after a script are its own.
    """
    rest = _executed(words)
    if not rest:
        return
    if os.sep in rest[0]:
        yield rest[0]
    if _INTERPRETERS.fullmatch(Path(rest[0]).name):
        yield from _interpreted(rest[1:])
    elif Path(rest[0]).suffix not in _SUFFIXES:
        pairs = itertools.pairwise(rest)
        found = (word for before, word in pairs if Path(word).suffix in _SUFFIXES and before[:1] != "-")
        yield from list(found)[:1]


def _executed(words: Sequence[str]) -> list[str]:
    """Return the words of a command without what only starts it, such as `env A=1`."""
    rest = list(words)
    while rest and Path(rest[0]).name in _WRAPPERS:
        rest.pop(0)
        while rest and (rest[0].startswith("-") or _ASSIGNMENT.fullmatch(rest[0])):
            rest.pop(0)
    return rest


def _interpreted(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the script among the arguments of an interpreter, if there is one."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        is_short = not option.startswith("--")
        if option == _STANDARD_INPUT or (is_short and _WITHOUT_SCRIPT & set(option)):
            return
        if option in _WITH_VALUE and rest:
            rest.pop(0)
    yield from rest[:1]


def check_scripts(words: Sequence[str], folder: Path) -> None:
    """Check that the files that a command executes exist, and that none has the line ends of Windows.

    Args:
        words: Of the command.
        folder: What relative paths count from: the command's working directory.

    Raises:
        UserError: One does not, and a file like it is named; or a first line `#!/bin/sh` names no program.
    """
    for word in scripts_of(words):
        path = folder / word
        if not path.exists():
            beside = (file.name for file in path.parent.glob(f"*{path.suffix}"))
            near = closest(path.name, beside)
            hint = f"did you mean {near}?" if near else "relative paths count from `cwd`, the spec's folder"
            raise UserError(f"command: no such file {path}: {hint}")
        if [word] == _executed(words)[:1]:
            _check_first_line(path)


def _check_first_line(path: Path) -> None:
    first = b""
    with contextlib.suppress(OSError), path.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        raise UserError(
            f"command: the first line of {path} ends in a carriage return, as on Windows, and names no "
            f"program so: convert the file, sed -i 's/\\r$//' {shlex.quote(str(path))}"
        )
