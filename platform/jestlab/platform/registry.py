"""The studies that are registered: those modules of `jestlab.experiments` that hold one."""

from __future__ import annotations

import importlib.util
import pkgutil

REGISTRY = "jestlab.experiments"
"""The package whose modules are the registered studies; by name only: the platform imports no experiments."""

_SHARED = frozenset({"base"})  # modules there that hold no study


def study_names() -> list[str]:
    """List the names of the registered studies."""
    found = importlib.util.find_spec(REGISTRY)
    places = list(found.submodule_search_locations or ()) if found else []
    return sorted(m.name for m in pkgutil.iter_modules(places) if m.name not in _SHARED and m.name[0] != "_")
