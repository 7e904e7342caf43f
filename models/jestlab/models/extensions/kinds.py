"""The kinds of custom code: what each is given, and how its name is checked and loaded."""

import difflib
import functools
import importlib.metadata
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from jestlab.models.extensions import references

Kind = Literal["rule", "criterion", "loss", "evaluation", "reader", "tower", "figure", "table", "executor"]
"""Uses of custom code."""

_PLURALS = {"criterion": "criteria", "loss": "losses"}

GIVEN: dict[Kind, tuple[str, ...]] = {
    "rule": ("key", "batch", "concepts", "batch_size", "gain"),
    "criterion": ("learner", "reference"),
    "loss": ("z", "reference"),
    "evaluation": ("model",),
    "reader": ("path",),
    "tower": ("config",),
}
"""Arguments that jestlab passes to code of each kind, if the code takes them."""

GROUPS: dict[Kind, str] = {kind: f"jestlab.{_PLURALS.get(kind, kind + 's')}" for kind in get_args(Kind)}
"""Kind → group of entry points of installed packages."""


@functools.cache
def installed(kind: Kind) -> dict[str, str]:
    """Return the entry points of a kind: name → reference."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group=GROUPS[kind])}


def check_name(kind: Kind, name: str, builtin: Sequence[str]) -> str:
    """Return a name that is built in, an entry point, or has the form of a reference.

    Raises:
        ValueError: It isn't any of these; the message suggests the nearest.
    """
    known = [*builtin, *installed(kind)]
    if name in known or references.is_reference(name):
        return name
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = f"valid: {', '.join(known)}; " if known else ""
    raise ValueError(
        f"{name!r} is not valid: {hint}{listed}custom code: package.module:name, path/to/file.py:name, or an "
        f"entry point of {GROUPS[kind]}"
    )


def reference_of(kind: Kind, name: str) -> str:
    """Return the reference of a name.

    Raises:
        ValueError: The name is neither a reference nor an entry point.
    """
    if references.is_reference(name):
        return name
    if name not in installed(kind):
        raise ValueError(f"no installed package has an entry point {name!r} of {GROUPS[kind]}")
    return installed(kind)[name]


def uses(kind: Kind, name: str) -> tuple[str, ...] | None:
    """Return the arguments of `GIVEN` that the code takes, read from its source; None if unknown."""
    try:
        parameters = references.parameters_of(reference_of(kind, name))
    except ValueError:
        return None
    return None if parameters is None else tuple(each for each in GIVEN[kind] if each in parameters)


def load(kind: Kind, name: str) -> Any:
    """Import the code of a name.

    Raises:
        ValueError: It is missing, or can't be imported.
    """
    reference = reference_of(kind, name)
    references.check(reference)
    try:
        return references.load(reference)
    except Exception as error:
        raise ValueError(f"{kind} {name!r} cannot be imported: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class CustomFunction:
    """A custom function with bound options. It is hashable, so that JAX compiles equal ones once.

    Attributes:
        function: The function.
        options: Its keyword arguments, as JSON.
    """

    function: Callable[..., Any]
    options: str = "{}"

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function: `inspect.signature` then returns its parameters."""
        return self.function

    @classmethod
    def load(cls, kind: Kind, name: str, options: Mapping[str, Any]) -> "CustomFunction":
        """Import a function; raises as `load`."""
        return cls(load(kind, name), json.dumps(options, sort_keys=True))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with arguments and the bound options."""
        return self.function(*args, **kwargs, **json.loads(self.options))


def code_of(
    kind: Kind, name: str, options: Mapping[str, Any], builtin: Collection[str]
) -> str | CustomFunction:
    """Return the name of built-in code, or import custom code; raises as `load`."""
    return name if name in builtin else CustomFunction.load(kind, name, options)
