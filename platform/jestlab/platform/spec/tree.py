"""Nested mappings with dotted keys: made plain, merged, flattened, looked into.

`{"model.vision.width": 64}`, `{"model": {"vision.width": 64}}` and `{"model": {"vision": {"width": 64}}}` say
the same; the last is the plain form that everything after loading sees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from jestlab.platform.spec.errors import Path, SpecError, dotted, kind_of

Tree = dict[str, Any]
"""A plain mapping: text keys without dots, values that JSON can hold."""

KIND = "kind"
"""The key that says which variant of a section a mapping is, as in `data.train.kind`."""


class Variants(Protocol):
    """What merging asks of a schema: the parts of a section, and the variant it is when nobody says."""

    @property
    def children(self) -> Mapping[str, Variants]:
        """Parts by name."""

    @property
    def default_kind(self) -> str | None:
        """The `kind` that an unsaid `kind` means."""


def is_mapping(value: object) -> bool:
    """Whether a value is a mapping; `ml_collections.ConfigDict` is none to Python, but is one here."""
    return isinstance(value, Mapping) or (hasattr(value, "items") and hasattr(value, "keys"))


def plain(value: Any, path: Sequence[str] = ()) -> Any:
    """A value of a spec as plain data with its dotted keys opened.

    Args:
        value: Mappings (also `ConfigDict`), lists, tuples, texts, finite numbers, booleans, None.
        path: Its place, for errors.

    Returns:
        A new value: dicts, lists, str, int, float, bool, None.

    Raises:
        SpecError: Another type, a key that is no text, or two keys that mean the same place.
    """
    if is_mapping(value):
        tree: Tree = {}
        for key, below in value.items():
            if not isinstance(key, str):
                raise SpecError(path, f"the key {key!r} is {kind_of(key)}: put it in quotes")
            parts = key.split(".")
            if not all(parts):
                raise SpecError(path, f"{key!r} is no key: names joined by single dots")
            _put(tree, parts, plain(below, (*path, *parts)), path)
        return tree
    if isinstance(value, list | tuple):
        return [plain(item, (*path, str(i))) for i, item in enumerate(value)]
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(path, f"{value} is no finite number")
        return float(value)
    raise SpecError(path, f"must be plain data (text, number, list, mapping), not {kind_of(value)}")


def _put(tree: Tree, parts: Sequence[str], value: Any, path: Sequence[str]) -> None:
    """Enter a value; within one mapping, order does not matter, so nothing may be said twice."""
    *heads, last = parts
    for depth, head in enumerate(heads):
        tree = tree.setdefault(head, {})
        if not isinstance(tree, dict):
            raise SpecError((*path, *parts[: depth + 1]), "is given both a value and values below it")
    if last not in tree:
        tree[last] = value
    elif isinstance(tree[last], dict) and isinstance(value, dict):
        for key, below in value.items():
            _put(tree[last], [key], below, (*path, *parts))
    else:
        raise SpecError((*path, *parts), "is given twice in one mapping, nested and dotted")


def nested(path: Sequence[str], value: Any) -> Tree:
    """`{"a": {"b": value}}` for the path a, b."""
    for part in reversed(path):
        value = {part: value}
    tree: Tree = value
    return tree


def merge(beneath: Tree, above: Tree, schema: Variants | None = None) -> Tree:
    """Lay one tree over another.

    Where both have a mapping they merge; but a mapping whose `kind` differs replaces the one beneath whole,
    since the keys of one kind mean nothing to another.

    Args:
        beneath: What holds where `above` says nothing.
        above: What wins.
        schema: Knows the `kind` that is meant where none is said.

    Returns:
        A new tree; shares unchanged parts with its sources, which stay as they are.
    """
    merged = dict(beneath)
    for key, value in above.items():
        under = merged.get(key)
        below = schema.children.get(key) if schema else None
        if isinstance(value, dict) and isinstance(under, dict) and not _another_kind(under, value, below):
            merged[key] = merge(under, value, below)
        else:
            merged[key] = value
    return merged


def _another_kind(under: Tree, value: Tree, schema: Variants | None) -> bool:
    default = schema.default_kind if schema else None
    beneath = under.get(KIND, default)
    return KIND in value and beneath is not None and value[KIND] != beneath


def flatten(tree: Tree) -> dict[str, Any]:
    """Dotted key → leaf. Lists and empty mappings are leaves."""
    return {dotted(path): value for path, value in leaves(tree)}


def leaves(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Leaves with their paths, in order."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def lookup(tree: Any, path: Sequence[str]) -> Any:
    """What stands at a path.

    Raises:
        KeyError: Nothing does.
    """
    for part in path:
        if not isinstance(tree, dict):
            raise KeyError(part)
        tree = tree[part]
    return tree


def depth_of(tree: Any, path: Sequence[str]) -> int:
    """How many parts of a path a tree has."""
    for depth, part in enumerate(path):
        if not isinstance(tree, dict) or part not in tree:
            return depth
        tree = tree[part]
    return len(path)


def without(tree: Tree, path: Sequence[str]) -> Tree:
    """A copy that lacks what stands at a path."""
    head, *rest = path
    if not rest:
        return {key: value for key, value in tree.items() if key != head}
    return tree | {head: without(tree[head], rest)}
