"""The installed studies: the modules of `jestlab.experiments`, found by name and imported when asked for."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.spec.errors import SpecError

PACKAGE = "jestlab.experiments"  # by name only: the platform imports no experiments
_SHARED = frozenset({"base"})  # modules there that hold no study


def names() -> list[str]:
    """Names of the installed studies."""
    found = importlib.util.find_spec(PACKAGE)
    places = list(found.submodule_search_locations or ()) if found else []
    return sorted(m.name for m in pkgutil.iter_modules(places) if m.name not in _SHARED and m.name[0] != "_")


def module(name: str) -> ModuleType:
    """The module of an installed study.

    Raises:
        SpecError: There is none of that name; names the nearest.
    """
    known = names()
    if name not in known:
        raise SpecError((), f"no study {name!r}: {nearest(name, known)} (a spec of your own: give its path)")
    return importlib.import_module(f"{PACKAGE}.{name}")


def module_at(path: Path) -> ModuleType:
    """The module in a Python file.

    Raises:
        UserError: It cannot be run; names the line.
    """
    name = "jestlab_spec_" + "".join(c if c.isalnum() else "_" for c in path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: no Python file")
    loaded = importlib.util.module_from_spec(spec)
    with guarded(path):
        spec.loader.exec_module(loaded)
    return loaded


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Context that turns an exception of a user's Python file into one line that names the place."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        message = error.msg if isinstance(error, SyntaxError) else error
        raise UserError(f"{path}:{line or 1}: {type(error).__name__}: {message}") from error
