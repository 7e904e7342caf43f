"""Config trees: nested mappings with dotted keys, and the schemas that their fields are checked against.

`{"model.vision.width": 64}`, `{"model": {"vision.width": 64}}` and `{"model": {"vision": {"width": 64}}}` say
the same; the last is the plain form that everything after loading sees.

pydantic validates a whole config, but a spec gives parts of one in several places (base, runs, axes), and an
error should name the place. So keys and plain types are checked where they are written, against the tree of a
schema's fields; pydantic then checks values and what must hold between fields.
"""

from __future__ import annotations

import functools
import math
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from jestlab.platform.errors import (
    Mistakes,
    Path,
    SpecError,
    choices,
    dotted,
    kind_of,
    nearest,
    no_string,
    shown,
)

Model = TypeVar("Model", bound=BaseModel)

Tree = dict[str, Any]
"""A plain mapping: string keys without dots, values that JSON can hold."""

KIND = "kind"
"""The key that says which variant of a section a mapping is, as in `data.train.kind`."""

NAMES_A_RUN = "names_a_run"
"""Marks a field whose value is the name of another run: `Field(json_schema_extra={NAMES_A_RUN: True})`."""

MATCH = "match"
"""The key beside a run's overrides that says whose FLOPs it spends."""

STUDIES = "studies"
"""The key of a union that holds its studies."""

IS_PATH = "is_path"
"""Marks a field whose value is a path, in the same way."""

NAMES_CODE = "names_code"
"""Marks a field whose value may be a reference to code of one's own, in the same way."""

_INDEX = re.compile("-?[0-9]+")


def is_mapping(value: object) -> bool:
    """Whether a value is a mapping. `ml_collections.ConfigDict` counts as one here."""
    return isinstance(value, Mapping) or (hasattr(value, "items") and hasattr(value, "keys"))


def plain(value: Any, path: Sequence[str] = ()) -> Any:
    """Turn a value of a spec into plain data with its dotted keys opened.

    Args:
        value: Mappings (also `ConfigDict`), lists, tuples, strings, finite numbers, booleans, None.
        path: Its place, for errors.
    """
    if is_mapping(value):
        tree: Tree = {}
        for key, below in value.items():
            if not isinstance(key, str):
                raise SpecError(path, f"the key {key!r} is {kind_of(key)}: put it in quotes")
            parts = key.split(".")
            if not all(parts):
                raise SpecError(path, f"invalid key {key!r}: expected names joined by single dots")
            put(tree, parts, plain(below, (*path, *parts)), path)
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


def put(tree: Tree, parts: Sequence[str], value: Any, path: Sequence[str]) -> None:
    """Enter a value; within one mapping, order does not matter, so no key may be given twice."""
    *heads, last = parts
    for depth, head in enumerate(heads):
        tree = tree.setdefault(head, {})
        if not isinstance(tree, dict):
            raise SpecError((*path, *parts[: depth + 1]), "is given both a value and values below it")
    if last not in tree:
        tree[last] = value
    elif isinstance(tree[last], dict) and isinstance(value, dict):
        for key, below in value.items():
            put(tree[last], [key], below, (*path, *parts))
    else:
        raise SpecError((*path, *parts), "is given twice in one mapping, nested and dotted")


def listed(value: Any) -> Any:
    """Return a name or a number by itself as a list of one; anything else as it is."""
    return [value] if isinstance(value, str | int) and not isinstance(value, bool) else value


def nested(path: Sequence[str], value: Any) -> Tree:
    """Nest a value under a path: `{"a": {"b": value}}` for a, b."""
    for part in reversed(path):
        value = {part: value}
    tree: Tree = value
    return tree


def merge(beneath: Tree, above: Tree, schema: Field | None = None, path: Path = ()) -> Tree:
    """Lay one tree over another; returns a new tree, and leaves its sources as they are.

    Where both have a mapping they merge; but a mapping whose `kind` differs replaces the one beneath whole,
    since the keys of one kind mean nothing to another. `schema` knows the `kind` that is meant where none is
    given. Numbers as keys (`lst.0`) set elements of a list beneath.

    Raises:
        SpecError: A list beneath has no such element; the place is named, from `path` on.
    """
    merged = dict(beneath)
    for key, value in above.items():
        under, here = merged.get(key), (*path, key)
        below = schema.children.get(key) if schema else None
        if isinstance(value, dict) and isinstance(under, dict) and not _another_kind(under, value, below):
            merged[key] = merge(under, value, below, here)
        elif isinstance(value, dict) and isinstance(under, list) and any(map(_INDEX.fullmatch, value)):
            elements = parts_of(under)
            for index in sorted(value.keys() - elements.keys()):
                raise SpecError((*here, index), f"no such element: there are {len(under)}, counted from 0")
            merged[key] = [*merge(elements, value, None, here).values()]
        else:
            merged[key] = value
    return merged


def parts_of(value: Any) -> Tree:
    """Return what is directly below a value: the parts of a mapping, or the elements of a list by index."""
    if isinstance(value, list | tuple):
        return {str(index): item for index, item in enumerate(value)}
    return value if isinstance(value, dict) else {}


def _another_kind(under: Tree, value: Tree, schema: Field | None) -> bool:
    beneath = under.get(KIND, schema.default_kind if schema else None)
    return KIND in value and beneath is not None and value[KIND] != beneath


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
        KeyError: There is no value there.
    """
    for part in path:
        tree = parts_of(tree)[part]
    return tree


def depth_of(tree: Any, path: Sequence[str]) -> int:
    """Count the leading parts of a path that a tree has."""
    for depth, part in enumerate(path):
        below = parts_of(tree)
        if part not in below:
            return depth
        tree = below[part]
    return len(path)


def without(tree: Tree, path: Sequence[str]) -> Tree:
    """Copy a tree without the value at a path, if there is one."""
    head, *rest = path
    if not isinstance(tree, dict) or head not in tree:
        return tree
    if not rest:
        return {key: value for key, value in tree.items() if key != head}
    return tree | {head: without(tree[head], rest)}


@dataclass(frozen=True)
class Field:
    """One field of a schema.

    Attributes:
        children: Parts of a section, over all its variants; empty for a value.
        variants: Parts by `kind`, where a section has several.
        default_kind: The `kind` that is meant where none is given.
        types: Python types that a value may have; empty where pydantic alone decides.
        marks: Which of `NAMES_A_RUN`, `IS_PATH` and `NAMES_CODE` it is marked with.
    """

    children: Mapping[str, Field] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Field]] = field(default_factory=dict)
    default_kind: str | None = None
    types: tuple[type, ...] = ()
    marks: frozenset[str] = frozenset()

    def parts(self, section: Tree) -> Mapping[str, Field]:
        """Return the parts that a given mapping may have: those of its `kind`, if it names a known one."""
        kind = section.get(KIND)
        return self.variants.get(kind, self.children) if isinstance(kind, str) else self.children


@functools.cache
def fields_of(model: type[BaseModel]) -> Field:
    """Return the tree of a model's fields."""
    return Field(children={name: _field(info) for name, info in model.model_fields.items()})


def _field(info: FieldInfo) -> Field:
    annotations = list(_alternatives(info.annotation))
    extras = [info.json_schema_extra, *(extra for _, extra in annotations)]
    marks = frozenset(key for extra in extras if isinstance(extra, dict) for key in extra if extra[key])
    sections = [a for a, _ in annotations if isinstance(a, type) and issubclass(a, BaseModel)]
    if not sections:
        return Field({}, {}, None, _types([a for a, _ in annotations]), marks)
    variants = {_kind(model): fields_of(model).children for model in sections} if len(sections) > 1 else {}
    children: dict[str, Field] = {}
    for model in sections:
        children |= fields_of(model).children
    default = getattr(info.default, KIND, None) if variants else None
    return Field(children, variants, default)


def _alternatives(annotation: Any, extra: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield the members of a union with the schema extras they carry, `Annotated` taken off."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        marks = [m.json_schema_extra for m in metadata if isinstance(m, FieldInfo) and m.json_schema_extra]
        yield from _alternatives(inner, marks[0] if marks else extra)
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _alternatives(member, extra)
    else:
        yield annotation, extra


def _types(annotations: Sequence[Any]) -> tuple[type, ...]:
    """Return the types that a value may have; () where one of the annotations is not a plain type."""
    known: dict[Any, tuple[type, ...]] = {
        bool: (bool,),
        int: (int, float),  # 1e6 is a whole number; pydantic refuses 1.5
        float: (int, float),
        str: (str,),
        type(None): (type(None),),
    }
    if any(annotation not in known for annotation in annotations):
        return ()
    return tuple(dict.fromkeys(t for annotation in annotations for t in known[annotation]))


def _kind(model: type[BaseModel]) -> str:
    annotation = model.model_fields[KIND].annotation
    if get_origin(annotation) is not Literal:
        raise TypeError(
            f"{model.__name__}.{KIND} must be a Literal: it tells the variants of a section apart"
        )
    return str(get_args(annotation)[0])


def walk(section: Field, path: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Yield all fields below a section, with their paths."""
    for name, part in section.children.items():
        yield (*path, name), part
        yield from walk(part, (*path, name))


@functools.cache
def marked(model: type[BaseModel], mark: str) -> tuple[Path, ...]:
    """Return the paths of the fields with a mark: `NAMES_A_RUN`, `IS_PATH` or `NAMES_CODE`."""
    return tuple(path for path, part in walk(fields_of(model)) if mark in part.marks)


def check(tree: Tree, root: Field, path: Sequence[str]) -> None:
    """Check a part of a config, written at a path: every key is known, every value has the right type.

    Raises:
        SpecError: Names the place, and the nearest key or the right type.
    """
    mistakes = Mistakes()
    mistakes.add(_wrong(tree, root, root, tuple(path)))
    mistakes.check()


def _wrong(tree: Tree, section: Field, root: Field, path: Path) -> Iterator[SpecError]:
    parts = section.parts(tree)
    for key, value in tree.items():
        here = (*path, key)
        if key not in parts:
            yield SpecError(here, _unknown(key, tree, section, root))
            continue
        part = parts[key]
        if part.children:
            if isinstance(value, dict):
                yield from _wrong(value, part, root, here)
            else:
                message = f"must be a mapping of {', '.join(part.children)}, not {shown(value)}"
                yield SpecError(here, message)
        # The exact type: a bool is an int to Python, but a spec that says `chunks: true` is wrong.
        elif part.types and type(value) not in part.types:
            given = no_string(value) if str in part.types else f"{shown(value)} ({kind_of(value)})"
            yield SpecError(here, f"must be {_words(part.types)}, not {given}")


def _words(accepted: tuple[type, ...]) -> str:
    words = {bool: "true or false", int: "a number", str: "a string", type(None): "null"}
    return " or ".join(words[t] for t in accepted if t in words)


def _unknown(key: str, tree: Tree, section: Field, root: Field) -> str:
    """Say what is wrong with a key that a section does not have, and what to do."""
    others = [kind for kind, parts in section.variants.items() if key in parts]
    if others:
        belongs = " and ".join(others)
        return f"not valid for {KIND} {tree[KIND]} (belongs to {belongs}): set {KIND} as well"
    hint = nearest(key, section.parts(tree))
    if not hint.startswith("did you mean"):  # else the same name elsewhere in the schema
        elsewhere = (dotted(path) for path, _ in walk(root) if path[-1] == key)
        hint = next((f"did you mean {found!r}?" for found in elsewhere), hint)
    return f"unknown key: {hint}"


def validated(model: type[Model], given: Any) -> Model:
    """Validate what is written for a model.

    Raises:
        SpecError: All that pydantic finds wrong, in the words of a spec's writer, with places from the model.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        mistakes = Mistakes()
        mistakes.add(_errors_of(error, fields_of(model)))
        raise mistakes.together() from None


def _errors_of(error: ValidationError, root: Field) -> Iterator[SpecError]:
    for details in error.errors(include_url=False):
        own = details.get("ctx", {}).get("error")
        if isinstance(own, SpecError):
            yield from own.errors
        elif details["type"] != "too_short" or len(details["input"]) < details["ctx"]["min_length"]:
            yield _translated(details, root)  # else items of it are wrong, which it counts as missing


def _translated(details: Mapping[str, Any], root: Field) -> SpecError:
    path: list[str] = []
    section, beside = root, root.children
    parts = beside
    at_tag = False
    for part in map(str, details["loc"]):
        if at_tag:  # pydantic's location names the variant of a union, a spec does not
            parts, at_tag = section.variants.get(part, {}), False
            continue
        path.append(part)
        beside, section = parts, parts.get(part, Field())
        parts, at_tag = section.children, bool(section.variants)
    return SpecError(path, _message(details, beside))


def _message(details: Mapping[str, Any], beside: Mapping[str, Field]) -> str:
    """Translate one of pydantic's messages; `beside` are the fields that its location may name last."""
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key: {nearest(str(details['loc'][-1]), beside)}"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("literal_error", "enum"):
        return f"{shown(given)} is not valid: {choices(given, _quoted(context['expected']))}"
    if kind == "union_tag_invalid":
        tag, valid = context["tag"], _quoted(context["expected_tags"])
        return f"unknown kind {tag!r}: {choices(tag, valid)}"
    if kind == "union_tag_not_found":
        return "has no kind: add `kind`"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"must be a mapping, not {shown(given)}"
    if kind in ("string_type", "tuple_type", "list_type", "bool_type", "bool_parsing"):
        what = {"s": "a string", "b": "true or false"}.get(kind[0], "a list")
        return f"must be {what}, not {no_string(given) if kind[0] == 's' else shown(given)}"
    if kind == "int_parsing_size":
        return f"must have fewer digits, not {shown(given)}"
    # "Tuple should have at least 1 item after validation, not 0", "Input should be a valid integer, unable …"
    expected = re.sub(r"^\w+ should ", "", details["msg"])
    expected = re.sub(r" after validation, not \d+$|, (unable to parse|got a number).*$", "", expected)
    expected = expected.replace("be a valid ", "be a ").replace("be a integer", "be a whole number")
    by_type = f" ({kind_of(given)})" if "type" in kind or "parsing" in kind else ""
    return f"must {expected}, not {shown(given)}{by_type}"


def _quoted(expected: str) -> list[str]:
    """Return the values in pydantic's "'a', 'b' or 'c'"."""
    return re.findall(r"'([^']*)'", expected)
