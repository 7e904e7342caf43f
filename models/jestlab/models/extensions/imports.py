"""The modules that a Python file imports, found without executing it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

_MOST_BYTES = 1 << 20  # larger files are not read


class Imports:
    """Finds the modules that Python files import below some folders."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)

    def followed(self, entries: Sequence[Path], is_own: Callable[[Path], bool], most: int) -> list[Path]:
        """Return files and the files that they import, directly and indirectly.

        Args:
            entries: The first files.
            is_own: Whether a file is followed.
            most: How many files are enough.
        """
        seen: dict[Path, None] = dict.fromkeys(entries)
        waiting = list(entries)
        while waiting and len(seen) < most:
            for found in self.of(waiting.pop(0)):
                if found not in seen and is_own(found):
                    seen[found] = None
                    waiting.append(found)
        return list(seen)

    def of(self, file: Path) -> Iterator[Path]:
        """Yield the files of the modules that a file imports."""
        if file.suffix != ".py":
            return
        for name, folders in _imported(file):
            yield from self.files(name, folders)

    def files(self, name: str, folders: Sequence[Path] | None = None) -> list[Path]:
        """Return the files of the packages around a module, then the file of the module, if they exist."""
        places = self._roots if folders is None else tuple(folders)
        found: list[Path] = []
        for part in name.split(".") if name else ():
            packages = [place / part for place in places]
            inits = (folder / "__init__.py" for folder in packages)
            init = next((file for file in inits if file.is_file()), None)
            if init is not None:
                found.append(init)
                places = (init.parent,)
                continue
            modules = (place / f"{part}.py" for place in places)
            module = next((file for file in modules if file.is_file()), None)
            if module is not None:
                return [*found, module]
            places = tuple(folder for folder in packages if folder.is_dir())  # without an __init__.py
            if not places:
                return found
        return found


def _imported(file: Path) -> Iterator[tuple[str, tuple[Path, ...] | None]]:
    """Yield the names of modules that a file imports, and the folders that relative ones count from."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folders = (file.parents[node.level - 1],) if 0 < node.level <= len(file.parents) else None
            prefix = f"{node.module}." if node.module else ""
            if node.module:
                yield node.module, folders
            elif folders and (folders[0] / "__init__.py").is_file():
                yield folders[0].name, (folders[0].parent,)
            yield from ((f"{prefix}{alias.name}", folders) for alias in node.names if alias.name != "*")
