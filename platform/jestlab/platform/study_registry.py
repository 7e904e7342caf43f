"""The registered studies: the modules of `jestlab.experiments`."""

import importlib
import importlib.util
import pkgutil
from types import ModuleType

from jestlab.platform.errors import SpecError, UserError, nearest

REGISTRY = "jestlab.experiments"
"""The package of the registered studies; named only, because the platform imports no experiments."""

_SHARED = frozenset({"base"})  # modules that aren't studies


def study_names() -> list[str]:
    """List the names of the registered studies."""
    found = importlib.util.find_spec(REGISTRY)
    places = list(found.submodule_search_locations or ()) if found else []
    return sorted(m.name for m in pkgutil.iter_modules(places) if m.name not in _SHARED and m.name[0] != "_")


def study_module(name: str) -> ModuleType:
    """Import the module of a registered study.

    Raises:
        SpecError: The name is unknown; suggests the nearest.
    """
    known = study_names()
    if name not in known:
        raise SpecError((), f"no study {name!r}: {nearest(name, known)} (for a spec file, give its path)")
    return importlib.import_module(f"{REGISTRY}.{name}")


def scales_of(module: object, name: str) -> tuple[str, ...]:
    """Return the scales of a Python spec.

    Raises:
        UserError: It isn't a spec.
    """
    scales = getattr(module, "SCALES", None)
    has_config = callable(getattr(module, "get_config", None))
    if not isinstance(scales, tuple | list) or not scales or not has_config:
        raise UserError(f'{name}: a Python spec has SCALES = ("smoke",) and get_config(scale)')
    return tuple(map(str, scales))
