"""Config trees: nested mappings as plain data.

`{"model.vision.width": 64}`, `{"model": {"vision.width": 64}}`, and `{"model": {"vision": {"width": 64}}}`
are equivalent. The last one is the plain form, which all code after loading works with.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jestlab.platform.errors import Path, SpecError, dotted, kind_of

Tree = dict[str, Any]
"""A plain mapping: string keys without dots, values that JSON can represent."""

KIND = "kind"  # selects the variant of a section, as in `data.train.kind`
MATCH = "match"  # key of a run, next to its overrides: the run whose budget it matches
STUDIES = "studies"  # the parts of a union


def is_mapping(value: object) -> bool:
    """Whether a value is a mapping, such as a dict or an `ml_collections.ConfigDict`."""
    return isinstance(value, Mapping) or (hasattr(value, "items") and hasattr(value, "keys"))


def plain(value: Any, path: Sequence[str] = ()) -> Any:
    """Convert a value of a spec to plain data, with dotted keys expanded.

    Args:
        value: Mappings (also `ConfigDict`), lists, tuples, strings, finite numbers, booleans, None.
        path: The place of the value, for errors.
    """
    if is_mapping(value):
        tree: Tree = {}
        for key, below in value.items():
            if not isinstance(key, str):
                raise SpecError(path, f"the key {key!r} is {kind_of(key)}: put it in quotes")
            parts = key.split(".")
            if not all(parts):
                raise SpecError(path, f"invalid key {key!r}: expected names joined by single dots")
            _add(tree, nested(parts, plain(below, (*path, *parts))), path)
        return tree
    if isinstance(value, list | tuple):
        return [plain(item, (*path, str(i))) for i, item in enumerate(value)]
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(path, f"must be a finite number, not {value}")
        return float(value)
    raise SpecError(path, f"must be plain data (string, number, list, mapping), not {kind_of(value)}")


def _add(tree: Tree, other: Tree, path: Sequence[str]) -> None:
    """Add another tree in place. A value may be given only once, so the order of keys doesn't matter."""
    for key, value in other.items():
        if key not in tree:
            tree[key] = value
        elif isinstance(tree[key], dict) and isinstance(value, dict):
            _add(tree[key], value, (*path, key))
        else:
            raise SpecError((*path, key), "is given twice in one mapping, nested and dotted")


def listed(value: Any) -> Any:
    """Wrap a single name or number in a list; return anything else unchanged."""
    return [value] if isinstance(value, str | int) and not isinstance(value, bool) else value


def nested(path: Sequence[str], value: Any) -> Tree:
    """Nest a value under a path: `{"a": {"b": value}}` for a, b."""
    for part in reversed(path):
        value = {part: value}
    tree: Tree = value
    return tree


def parts_of(value: Any) -> Tree:
    """Return the entries of a mapping, or the elements of a list by index; empty for other values."""
    if isinstance(value, list | tuple):
        return {str(index): item for index, item in enumerate(value)}
    return value if isinstance(value, dict) else {}


def flatten(tree: Tree, path: Path = ()) -> dict[str, Any]:
    """Map dotted keys to leaves, in order. Lists and empty mappings are leaves."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, (*path, key))
        else:
            flat[dotted((*path, key))] = value
    return flat


def lookup(tree: Any, path: Sequence[str]) -> Any:
    """Return the value at a path.

    Raises:
        KeyError: The tree has no value at the path.
    """
    for part in path:
        tree = parts_of(tree)[part]
    return tree


def depth_of(tree: Any, path: Sequence[str]) -> int:
    """Return how many leading parts of a path exist in a tree."""
    for depth, part in enumerate(path):
        below = parts_of(tree)
        if part not in below:
            return depth
        tree = below[part]
    return len(path)


def has(tree: Any, path: Sequence[str]) -> bool:
    """Whether a tree has a value at a path."""
    return depth_of(tree, path) == len(path)


def without(tree: Tree, path: Sequence[str]) -> Tree:
    """Copy a tree without the value at a path, if there is one."""
    head, *rest = path
    if not isinstance(tree, dict) or head not in tree:
        return tree
    if not rest:
        return {key: value for key, value in tree.items() if key != head}
    return tree | {head: without(tree[head], rest)}
