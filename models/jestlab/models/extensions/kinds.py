"""What can be added to jestlab without changing it, and the entry points of each kind."""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
from collections.abc import Sequence
from typing import Any, Literal, get_args

from jestlab.models.extensions import references

Kind = Literal["rule", "criterion", "loss", "evaluation", "reader", "tower", "figure", "table", "executor"]
"""What a piece of code is used as."""

_PLURALS = {"criterion": "criteria", "loss": "losses"}

GIVEN: dict[Kind, tuple[str, ...]] = {
    "rule": ("key", "batch", "concepts", "batch_size", "gain"),
    "criterion": ("learner", "reference"),
    "loss": ("z", "reference"),
    "evaluation": ("model",),
    "reader": ("path",),
    "tower": ("config",),
}
"""What jestlab itself gives to code of each kind, besides its options, as far as the code takes it."""

GROUPS: dict[Kind, str] = {kind: f"jestlab.{_PLURALS.get(kind, kind + 's')}" for kind in get_args(Kind)}
"""Kind → the group of entry points in which installed packages offer such code."""


@functools.cache
def installed(kind: Kind) -> dict[str, str]:
    """Return the entry points of a kind that installed packages offer: name → reference."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group=GROUPS[kind])}


def check_name(kind: Kind, name: str, builtin: Sequence[str]) -> str:
    """Return a name that can stand for code: built in, of an entry point, or the form of a reference.

    Raises:
        ValueError: It is none of these; names the nearest.
    """
    known = [*builtin, *installed(kind)]
    if name in known or references.is_reference(name):
        return name
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        raise ValueError(f"{name!r} is not valid: did you mean {near[0]!r}? (valid: {', '.join(known)})")
    listed = f"valid: {', '.join(known)}; " if known else ""
    raise ValueError(
        f"{name!r} is not valid: {listed}of your own: package.module:name, path/to/file.py:name, or an entry "
        f"point of {GROUPS[kind]}"
    )


def reference_of(kind: Kind, name: str) -> str:
    """Return where the code of a name is.

    Raises:
        ValueError: No installed package offers it.
    """
    if references.is_reference(name):
        return name
    if name not in installed(kind):
        raise ValueError(f"no installed package offers {name!r} as an entry point of {GROUPS[kind]}")
    return installed(kind)[name]


def uses(kind: Kind, name: str) -> tuple[str, ...] | None:
    """Return which of `GIVEN` the code of a name takes, by its source; None if that cannot be read here."""
    try:
        parameters = references.parameters_of(reference_of(kind, name))
    except ValueError:
        return None
    return None if parameters is None else tuple(each for each in GIVEN[kind] if each in parameters)


def load(kind: Kind, name: str) -> Any:
    """Import the code of a name.

    Raises:
        ValueError: There is none, or it cannot be imported; the message says where and why.
    """
    reference = reference_of(kind, name)
    references.check(reference)
    try:
        return references.load(reference)
    except Exception as error:  # whatever the user's module raises when it is imported
        raise ValueError(f"{kind} {name!r} cannot be imported: {type(error).__name__}: {error}") from error
