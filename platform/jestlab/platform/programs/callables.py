"""Callables of a user's own, named `package.module:callable` or `path/to/file.py:callable`.

A plan finds and reads them, and imports nothing: that may be slow, and need what only the workers' machines
have. So a name that is not there is found when the spec is read, not hours later by a worker.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from jestlab.platform.errors import UserError, nearest

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_FILE = re.compile(rf"(.+\.py):({_DOTTED})", re.DOTALL)
_MODULE = re.compile(rf"({_DOTTED}):({_DOTTED})")


def is_one(name: str) -> bool:
    """Whether a program's name has the form of a callable's."""
    return bool(_FILE.fullmatch(name) or _MODULE.fullmatch(name))


def anchored(name: str, folder: Path) -> str:
    """The name with its file made absolute; every other name of a program as it is.

    Args:
        name: Of a program.
        folder: What a relative path counts from.
    """
    match = _FILE.fullmatch(name)
    if match is None:
        return name
    return f"{os.path.normpath(folder.absolute() / Path(match[1]).expanduser())}:{match[2]}"


def identifier(name: str) -> str:
    """What of the name identifies a run: a file counts by its own name, wherever it lies."""
    match = _FILE.fullmatch(name)
    return name if match is None else f"{Path(match[1]).name}:{match[2]}"


def check(name: str) -> None:
    """Check that a callable is there, without importing anything.

    Args:
        name: Of the callable; a file's path is absolute.

    Raises:
        UserError: There is no such module or file, it is no valid Python, or it defines no such name.
    """
    source = _source(name)
    if source is None:
        return
    try:
        tree = ast.parse(source.read_bytes(), filename=str(source))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UserError(f"{source}:{line}: {getattr(error, 'msg', error)}") from None
    names = _names(tree)
    wanted = name.rpartition(":")[2].partition(".")[0]
    if names is not None and wanted not in names:
        raise UserError(f"no {wanted!r} in {source}: {nearest(wanted, names)}")


def load(name: str) -> Any:
    """The callable itself, its module imported; a file's folder is importable, as for `python file.py`."""
    match = _FILE.fullmatch(name)
    if match is not None:
        found: Any = _run(Path(match[1]))
    else:
        _make_working_directory_importable()
        found = importlib.import_module(name.partition(":")[0])
    for part in name.rpartition(":")[2].split("."):
        found = getattr(found, part)
    return found


def _run(file: Path) -> ModuleType:
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file}: no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


def _source(name: str) -> Path | None:
    """The file to read; None where there is none, as for a module that is compiled."""
    match = _FILE.fullmatch(name)
    if match is not None:
        file = Path(match[1])
        if not file.is_file():
            raise UserError(f"{file}: no such file")
        return file
    module = name.partition(":")[0]
    _make_working_directory_importable()
    found = _spec_of(module)
    if found is None:
        raise UserError(
            f"no module {module!r} for the program {name!r}: install it, or launch from its folder"
        )
    origin = Path(found.origin or "")
    return origin if found.has_location and origin.suffix == ".py" and origin.is_file() else None


def _spec_of(module: str) -> ModuleSpec | None:
    """Where a module lies. `importlib.util.find_spec` would import the packages around it."""
    places: Iterable[str] | None = None
    found = None
    parts = module.split(".")
    try:
        for end in range(1, len(parts) + 1):
            finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
            name = ".".join(parts[:end])
            specs = (finder.find_spec(name, None if places is None else list(places)) for finder in finders)
            found = next((spec for spec in specs if spec is not None), None)
            if found is None or (end < len(parts) and found.submodule_search_locations is None):
                return None
            places = found.submodule_search_locations
    except KeyError:  # folders without __init__.py within one another: to be listed, they must be imported
        try:
            return importlib.util.find_spec(module)
        except ModuleNotFoundError:
            return None
    return found


def _names(tree: ast.Module) -> set[str] | None:
    """What a module defines at its top level; None where reading does not tell."""
    names: set[str] = set()
    for node in _top_level(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Name) and node.id in ("globals", "exec"):
            return None
    return None if names & {"*", "__getattr__"} else names


def _top_level(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are executed on import, but for those within functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level(child)


def _make_working_directory_importable() -> None:
    """Let modules of the user's own be imported from where they work, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
