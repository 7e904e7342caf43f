"""Types of fields in the words of a spec's writer: "whole number above 0", "list of strings or null"."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jestlab.analysis.claims.families import Family
from jestlab.platform.spec.fields import IS_PATH, NAMES_A_RUN, NAMES_CODE

OWN_CODE = ("module:function", "file.py:function")
"""How a spec names code of one's own."""

_NOUNS: dict[Any, tuple[str, str]] = {
    int: ("whole number", "whole numbers"),
    float: ("number", "numbers"),
    str: ("string", "strings"),
    bool: ("true or false", "true or false"),
    Any: ("anything", "anything"),
    type(None): ("null", "null"),
}
_MARKS = {NAMES_A_RUN: ("name of a run", "names of runs"), IS_PATH: ("path", "paths")}


def words(annotation: Any, metadata: Iterable[Any] = (), extra: Any = None) -> str:
    """Name a type in a spec writer's words.

    Args:
        annotation: The type, as annotated.
        metadata: Its bounds and marks, where pydantic has taken them off the annotation.
        extra: The `json_schema_extra` of its field.
    """
    return _words(annotation, list(metadata), extra if isinstance(extra, dict) else {}, plural=False)


def choices(annotation: Any, extra: Any = None) -> tuple[str, ...]:
    """List the values of a type that has only some; also those that are built in beside code of one's own."""
    marked = extra if isinstance(extra, dict) else {}
    if named := marked.get("choices"):
        return tuple(named)
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return tuple(choice for member in get_args(annotation) for choice in choices(member))
    return ()


def value(given: Any) -> str:
    """Write a value as YAML does, on one line."""
    if isinstance(given, BaseModel):
        given = given.model_dump(mode="json", exclude_defaults=True)
    if isinstance(given, Family):
        given = given.written()
    if isinstance(given, str):
        return given or "''"
    if isinstance(given, Mapping):
        return "{" + ", ".join(f"{key}: {value(below)}" for key, below in given.items()) + "}"
    if isinstance(given, Sequence):
        return "[" + ", ".join(map(value, given)) + "]"
    if isinstance(given, float) and given == int(given) and abs(given) < 1e15:
        return f"{given:.1f}"
    return json.dumps(given)


def _opened(members: Iterable[Any]) -> Iterable[Any]:
    """Open literals among the members of a union, one for each value."""
    for member in members:
        if get_origin(member) is Literal:
            yield from (Literal[value] for value in get_args(member))
        else:
            yield member


def either(names: Sequence[str]) -> str:
    """Join alternatives: \"a, b or c\", each once."""
    unique = list(dict.fromkeys(names))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"


def _words(annotation: Any, metadata: list[Any], extra: Mapping[str, Any], plural: bool) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *more = arguments
        fields = [one for one in more if isinstance(one, FieldInfo)]
        bounds = [bound for one in fields for bound in one.metadata]
        marks = next((one.json_schema_extra for one in fields if isinstance(one.json_schema_extra, dict)), {})
        return _words(inner, [*metadata, *more, *bounds], {**marks, **extra}, plural)
    if origin in (Union, types.UnionType):
        return either([_words(member, metadata, extra, plural) for member in _opened(arguments)])
    if origin is Literal:
        return either(list(map(str, arguments)))
    if origin in (tuple, list):
        return f"list of {_words(arguments[0], [], extra, plural=True)}"
    if origin in (dict, Mapping) or annotation is dict:
        of = _words(arguments[1], [], {}, plural=True) if arguments else "anything"
        return "mapping" if of == "anything" else f"mapping from names to {of}"
    if extra.get(NAMES_CODE) and annotation is str:
        return either([*extra.get("choices", ()), *OWN_CODE])
    for mark, nouns in _MARKS.items():
        if extra.get(mark):
            return nouns[plural]
    if annotation in _NOUNS:
        return _NOUNS[annotation][plural] + (_bounds(metadata) if annotation in (int, float) else "")
    return "mapping"


_BOUNDS = ((Gt, "gt", "above"), (Ge, "ge", "from"), (Lt, "lt", "below"), (Le, "le", "up to"))


def _bounds(metadata: Sequence[Any]) -> str:
    """Write the bounds of a number: " above 0", " from 0 to 1", " from 0, below 1"."""
    parts = {
        word: f"{word} {_number(getattr(one, name))}"
        for kind, name, word in _BOUNDS
        for one in metadata
        if isinstance(one, kind) and one != Lt(2**32)  # seeds: nobody comes near it
    }
    if [*parts] == ["from", "up to"]:
        return f" {parts['from']} {parts['up to'].removeprefix('up ')}"
    return " " + ", ".join(parts.values()) if parts else ""


def _number(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)
