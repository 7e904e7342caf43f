"""References to code: `package.module:name`, or `path/to/file.py:name`.

Checking one reads the file and executes nothing: that may be slow, and need what only other machines have.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_FILE = re.compile(rf"(.+\.py):({_DOTTED})", re.DOTALL)
_MODULE = re.compile(rf"({_DOTTED}):({_DOTTED})")


def is_reference(name: str) -> bool:
    """Return whether a text has the form of a reference."""
    return bool(_FILE.fullmatch(name) or _MODULE.fullmatch(name))


def anchored(name: str, folder: Path) -> str:
    """Return a reference with its file made absolute, and every other text as it is."""
    match = _FILE.fullmatch(name)
    if match is None:
        return name
    return f"{os.path.normpath(folder.absolute() / Path(match[1]).expanduser())}:{match[2]}"


def without_folder(name: str) -> str:
    """Return a reference without the folder of its file."""
    match = _FILE.fullmatch(name)
    return name if match is None else f"{Path(match[1]).name}:{match[2]}"


def check(name: str) -> None:
    """Check that there is what a reference names.

    Raises:
        ValueError: There is no such module or file, it is not valid Python, or it defines no such name.
    """
    source = source_of(name)
    if source is None:
        return
    names = _names(parsed(source))
    wanted = name.rpartition(":")[2].partition(".")[0]
    if names is not None and wanted not in names:
        near = difflib.get_close_matches(wanted, sorted(names), n=1, cutoff=0.5)
        known = ", ".join(sorted(names)[:12]) or "nothing"
        hint = f"did you mean {near[0]!r}?" if near else f"it defines {known}"
        raise ValueError(f"no {wanted!r} in {source}: {hint}")


def parsed(source: Path) -> ast.Module:
    """Parse a Python file; ValueError, which names the line, if it is not valid."""
    try:
        return ast.parse(source.read_bytes(), filename=str(source))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ValueError(f"{source}:{line}: {getattr(error, 'msg', error)}") from None


def parameters_of(name: str) -> dict[str, bool] | None:
    """Read the parameters of a function from its source: name → whether it has a default; `**` for any.

    Returns:
        None where they cannot be read: a class, a function made by another, a name that is imported.
    """
    file = file_of(name)
    function = name.rpartition(":")[2]
    if file is None or "." in function:
        return None
    defined = [
        node
        for node in parsed(file).body
        if isinstance(node, ast.FunctionDef) and node.name == function and not node.decorator_list
    ]
    if len(defined) != 1:
        return None
    given = defined[0].args
    plain = [*given.posonlyargs, *given.args]
    found = {arg.arg: i >= len(plain) - len(given.defaults) for i, arg in enumerate(plain)}
    found |= {
        arg.arg: default is not None for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    }
    return found | ({"**": True} if given.kwarg else {})


def load(name: str) -> Any:
    """Import what a reference names; the folder of a file becomes importable, as with `python file.py`."""
    match = _FILE.fullmatch(name)
    if match is not None:
        file = Path(match[1])
        found: Any = _run(file, file.stat().st_mtime_ns)
    else:
        make_working_directory_importable()
        found = importlib.import_module(name.partition(":")[0])
    for part in name.rpartition(":")[2].split("."):
        found = getattr(found, part)
    return found


@functools.cache
def _run(file: Path, modified: int) -> ModuleType:
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


def file_of(name: str) -> Path | None:
    """Return the file that a reference's module is in; None if there is none to read, or no such module."""
    try:
        return source_of(name)
    except ValueError:
        return None


def root_of(name: str, file: Path) -> Path:
    """Return the folder that the imports of a reference's file count from."""
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        return file.parent
    return file.parents[module.count(".") + (file.name == "__init__.py")]


def source_of(name: str) -> Path | None:
    """Return the file to read; None if there is none, as for a compiled module.

    Raises:
        ValueError: There is no such file or module.
    """
    match = _FILE.fullmatch(name)
    if match is not None:
        file = Path(match[1])
        if not file.is_file():
            raise ValueError(f"{file}: no such file")
        return file
    module = name.partition(":")[0]
    make_working_directory_importable()
    found = _spec_of(module)
    if found is None:
        raise ValueError(f"no module {module!r} for {name!r}: install it, or launch from its folder")
    origin = Path(found.origin or "")
    return origin if found.has_location and origin.suffix == ".py" and origin.is_file() else None


def _spec_of(module: str) -> ModuleSpec | None:
    """Find a module. `importlib.util.find_spec` would import the packages around it."""
    places: list[str] | None = None
    found = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        found = _spec_in(".".join(parts[:end]), places)
        if found is None or (end < len(parts) and found.submodule_search_locations is None):
            return None
        places = list(found.submodule_search_locations or ())
    return found


def _spec_in(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """Find a module in the folders of the package around it; None for those of modules of no package."""
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    specs = (finder.find_spec(name, places) for finder in finders)
    try:
        return next((spec for spec in specs if spec is not None), None)
    except KeyError:  # a folder without __init__.py, which asks the package around it, had that been imported
        found = ModuleSpec(name, None, is_package=True)
        folders = (Path(place) / name.rpartition(".")[2] for place in places or ())
        found.submodule_search_locations = [str(folder) for folder in folders if folder.is_dir()]
        return found


def _names(tree: ast.Module) -> set[str] | None:
    """Return what a module defines at its top level; None if reading does not tell."""
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
    """Yield all nodes that are executed on import, except those within functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level(child)


def make_working_directory_importable() -> None:
    """Make the user's own modules importable from the working directory, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
