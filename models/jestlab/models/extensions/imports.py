"""The modules that a Python file imports, found without executing it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_MOST_BYTES = 1 << 20  # larger files are not read


def followed(
    entries: Sequence[Path], roots: Sequence[Path], is_own: Callable[[Path], bool], most: int
) -> list[Path]:
    """Return files and the files that they import, directly and indirectly.

    Args:
        entries: The first files.
        roots: The folders in which modules are found.
        is_own: Whether a file is followed.
        most: Maximum number of files.
    """
    seen = dict.fromkeys(entries)
    waiting = [*entries]
    while waiting and len(seen) < most:
        for file in _imported(waiting.pop(0), roots):
            if file not in seen and is_own(file):
                seen[file] = None
                waiting.append(file)
    return [*seen]


def module_files(name: str, roots: Sequence[Path]) -> list[Path]:
    """Return the `__init__.py` of each package around a module, then the module's file, if they exist."""
    found: list[Path] = []
    for part in name.split("."):
        folders = [root / part for root in roots]
        if package := [folder for folder in folders if (folder / "__init__.py").is_file()][:1]:
            found.append(package[0] / "__init__.py")
            roots = package
        elif module := [file for root in roots if (file := root / f"{part}.py").is_file()]:
            return [*found, module[0]]
        else:
            roots = [folder for folder in folders if folder.is_dir()]  # without an __init__.py
    return found


def _imported(file: Path, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of the modules that a file imports."""
    try:
        if file.suffix != ".py" or file.stat().st_size > _MOST_BYTES:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from module_files(alias.name, roots)
        elif isinstance(node, ast.ImportFrom):
            places = file.parents[node.level - 1 :][:1] if node.level else roots
            if not node.module:  # from . import name
                yield from (init for place in places if (init := place / "__init__.py").is_file())
            for alias in node.names:
                parts = (node.module, None if alias.name == "*" else alias.name)
                yield from module_files(".".join(filter(None, parts)), places)
