"""Find, check, and import custom code named `package.module:name` or `path/to/file.py:name`.

Checking a reference reads its file and executes nothing: the code may be slow to import, and may need
packages that only other machines have.
"""

import ast
import difflib
import functools
import importlib
import importlib.util
import operator
import os
import re
import symtable
import sys
from importlib.machinery import PathFinder
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
    """Return a reference with an absolute file; return any other text unchanged."""
    match = _FILE.fullmatch(name)
    if match is None:
        return name
    return f"{os.path.normpath(folder.absolute() / Path(match[1]).expanduser())}:{match[2]}"


def without_folder(name: str) -> str:
    """Return a reference without the folder of its file."""
    match = _FILE.fullmatch(name)
    return name if match is None else f"{Path(match[1]).name}:{match[2]}"


def check(name: str) -> None:
    """Check that the code of a reference exists.

    Raises:
        ValueError: The module or file is missing, isn't valid Python, or doesn't define the name.
    """
    source = source_of(name)
    if source is None:
        return
    text = source.read_bytes()
    try:
        symbols = symtable.symtable(text, str(source), "exec").get_symbols()  # type: ignore[arg-type]
    except (SyntaxError, ValueError) as error:
        raise _syntax_error(source, error) from None
    if {"__getattr__", "globals", "exec"} & {symbol.get_name() for symbol in symbols}:
        return  # it may define any name
    if re.search(rb"import\s*\(?\s*\*", text):
        return
    names = sorted(symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported())
    wanted = name.rpartition(":")[2].partition(".")[0]
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
        known = ", ".join(names[:12]) or "nothing"
        hint = f"did you mean {near[0]!r}?" if near else f"it defines {known}"
        raise ValueError(f"no {wanted!r} in {source}: {hint}")


def _syntax_error(source: Path, error: Exception) -> ValueError:
    return ValueError(f"{source}:{getattr(error, 'lineno', None) or 1}: {getattr(error, 'msg', error)}")


def parameters_of(name: str) -> dict[str, bool] | None:
    """Read the parameters of a function from its source.

    Returns:
        Parameter → whether it has a default, with `**` for any further ones; None if they can't be read, as
        for a class, a decorated function, or an imported name.
    """
    file = file_of(name)
    function = name.rpartition(":")[2]
    if file is None or "." in function:
        return None
    try:
        body = ast.parse(file.read_bytes(), filename=str(file)).body
    except (SyntaxError, ValueError) as error:
        raise _syntax_error(file, error) from None
    definitions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == function]
    if len(definitions) != 1 or definitions[0].decorator_list:
        return None
    given = definitions[0].args
    positional = [*given.posonlyargs, *given.args]
    required = [None] * (len(positional) - len(given.defaults))
    defaults = [*required, *given.defaults, *given.kw_defaults]
    parameters = zip([*positional, *given.kwonlyargs], defaults, strict=True)
    found = {parameter.arg: default is not None for parameter, default in parameters}
    return found | ({"**": True} if given.kwarg else {})


def load(name: str) -> Any:
    """Import the code of a reference; the folder of a file becomes importable, as with `python file.py`."""
    match = _FILE.fullmatch(name)
    if match is not None:
        file = Path(match[1])
        module = _execute(file, file.stat().st_mtime_ns)
    else:
        make_working_directory_importable()
        module = importlib.import_module(name.partition(":")[0])
    return operator.attrgetter(name.rpartition(":")[2])(module)


@functools.cache
def _execute(file: Path, modified: int) -> ModuleType:
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # dataclasses and pickles look up their module
    spec.loader.exec_module(module)
    return module


def source_of(name: str) -> Path | None:
    """Return the source file of a reference; None if it has none, as for a compiled module.

    Raises:
        ValueError: The file or module is missing.
    """
    match = _FILE.fullmatch(name)
    if match is not None:
        file = Path(match[1])
        if not file.is_file():
            raise ValueError(f"{file}: no such file")
        return file
    module = name.partition(":")[0]
    make_working_directory_importable()
    # Unlike `find_spec` of the whole name, this doesn't import the packages around a module.
    top, *parts = module.split(".")
    found = importlib.util.find_spec(top)
    for part in parts:
        folders = found.submodule_search_locations if found is not None else None
        found = PathFinder.find_spec(part, [*folders]) if folders is not None else None
    if found is None:
        raise ValueError(f"no module {module!r} for {name!r}: install it, or launch from its folder")
    origin = Path(found.origin or "")
    return origin if found.has_location and origin.suffix == ".py" and origin.is_file() else None


def file_of(name: str) -> Path | None:
    """Return the source file of a reference; None if the file or module is missing or has no source."""
    try:
        return source_of(name)
    except ValueError:
        return None


def root_of(name: str, file: Path) -> Path:
    """Return the folder that the imports of a reference's file are relative to."""
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        return file.parent
    return file.parents[module.count(".") + (file.name == "__init__.py")]


def make_working_directory_importable() -> None:
    """Make modules in the working directory importable, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
