"""Find keys by the beginning of their path, as people write it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.spec.keys.key import Key
from jestlab.platform.spec.keys.of_config import config_keys
from jestlab.platform.spec.keys.of_spec import spec_keys

_PLACEHOLDER = re.compile(r"<\w+>")
_CONFIG_AFTER = (
    ("base",),
    ("runs", "*"),
    ("axes", "*", "grid"),
    ("axes", "*", "zip"),
    ("axes", "*", "cases", "*"),
)
"""Places in a spec below which keys of configs are written."""


def find(prefix: str = "") -> tuple[Key, ...]:
    """Return the keys at or below a place, in the order of the reference: those of specs, then of configs.

    Args:
        prefix: `selection`, `selection.rule`, `claims.of`; also a place as errors name it,
            `runs.joint.selection.rule` or `axes.0.grid.loss`; empty for all keys.

    Raises:
        UserError: There is no such key; names the nearest.
    """
    every = (*spec_keys(), *config_keys())
    parts = tuple(part for part in prefix.strip().split(".") if part)
    for asked in _meant(parts):
        for named in (False, True):
            if found := tuple(key for key in every if _begins(_parts(key), asked, named)):
                return found
    known = {
        ".".join(part for part in _parts(key)[:depth] if part != "*")
        for key in every
        for depth in range(1, 9)
    }
    last = [name for name in known if name.rpartition(".")[2] == parts[-1]]
    raise UserError(f"no key {prefix!r}: {nearest(prefix, last or known)}")


def together(keys: Iterable[Key]) -> list[Key]:
    """List keys by section; what several reports have once, as `reports.*.baseline`."""
    merged: dict[Key, Key] = {}
    for key in keys:
        shared = key
        if key.path.startswith("reports.") and key.path.count(".") == 2:
            shared = replace(key, path=f"reports.*.{key.path.rpartition('.')[2]}", where=())
        before = merged.get(shared)
        merged[shared] = key if before is None else replace(shared, where=(*before.where, *key.where))
    sections = list(dict.fromkeys(key.section for key in merged.values()))
    return sorted(merged.values(), key=lambda key: sections.index(key.section))


def _meant(parts: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    """Yield what a place may mean: itself, or the key of configs that is written there."""
    yield parts
    for head in _CONFIG_AFTER:
        if len(parts) > len(head) and _begins(head, parts[: len(head)], named=True):
            yield parts[len(head) :]


def _parts(key: Key) -> tuple[str, ...]:
    """Return the parts of a key's path, `*` for a placeholder."""
    return tuple(_PLACEHOLDER.sub("*", part) for part in key.path.split("."))


def _begins(path: Sequence[str], beginning: Sequence[str], named: bool) -> bool:
    """Whether a key's path begins as asked: placeholders are left out there, or have names in their place."""
    if not beginning or not path:
        return not beginning
    if path[0] == "*" and (named or beginning[0].startswith("<")):
        return _begins(path[1:], beginning[1:], named)
    if path[0] == "*":
        return _begins(path[1:], beginning, named)
    return path[0] == beginning[0] and _begins(path[1:], beginning[1:], named)
