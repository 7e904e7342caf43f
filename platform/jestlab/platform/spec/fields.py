"""A config schema as a tree of fields, so that a key or a type can be judged where it is written.

pydantic judges a whole config; a spec gives parts of one in several places (base, runs, axes), and an error
should name the place. So keys and plain types are checked per place against this tree, once, and pydantic
judges values and what holds between fields.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jestlab.platform.errors import nearest
from jestlab.platform.spec.errors import Path, SpecError, dotted, kind_of, shown
from jestlab.platform.spec.tree import KIND, Tree

NAMES_A_RUN = "names_a_run"
"""Marks a field whose value is the name of another run: `Field(json_schema_extra={NAMES_A_RUN: True})`."""

IS_PATH = "is_path"
"""Marks a field whose value is a path, in the same way."""


@dataclass(frozen=True)
class Field:
    """One field of a schema.

    Attributes:
        children: Parts of a section, over all its variants; empty for a value.
        variants: Parts by `kind`, where a section has several.
        default_kind: The `kind` that is meant where none is said.
        types: Python types that a value may have; empty where pydantic alone judges.
        names_a_run: Whether the value is the name of another run.
        is_path: Whether the value is the path of a file or folder.
    """

    children: Mapping[str, Field] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Field]] = field(default_factory=dict)
    default_kind: str | None = None
    types: tuple[type, ...] = ()
    names_a_run: bool = False
    is_path: bool = False

    def parts(self, section: Tree) -> Mapping[str, Field]:
        """Parts that a given mapping may have: those of its `kind`, if it says one that is known."""
        kind = section.get(KIND)
        return self.variants.get(kind, self.children) if isinstance(kind, str) else self.children


@functools.cache
def fields_of(model: type[BaseModel]) -> Field:
    """The tree of a model's fields."""
    return Field(children={name: _field(info) for name, info in model.model_fields.items()})


def _field(info: FieldInfo) -> Field:
    annotations = list(_alternatives(info.annotation))
    extras = [info.json_schema_extra, *(extra for _, extra in annotations)]
    names_a_run, is_path = (
        any(isinstance(extra, dict) and extra.get(mark) for extra in extras)
        for mark in (NAMES_A_RUN, IS_PATH)
    )
    sections = [a for a, _ in annotations if isinstance(a, type) and issubclass(a, BaseModel)]
    if not sections:
        return Field(types=_types([a for a, _ in annotations]), names_a_run=names_a_run, is_path=is_path)
    variants = {_kind(model): fields_of(model).children for model in sections} if len(sections) > 1 else {}
    children: dict[str, Field] = {}
    for model in sections:
        children |= fields_of(model).children
    default = getattr(info.default, KIND, None) if variants else None
    return Field(children, variants, default)


def _alternatives(annotation: Any, extra: Any = None) -> Iterator[tuple[Any, Any]]:
    """The members of a union with the schema extras they carry, `Annotated` taken off."""
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
    """Types a value may have; () where one of the annotations is not a plain type."""
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


def check(tree: Tree, root: Field, path: Sequence[str]) -> None:
    """Check a part of a config: every key known, every value of the right type.

    Args:
        tree: The part, plain, from the config's root.
        root: The schema's.
        path: Where the part is written.

    Raises:
        SpecError: Names the place, and the nearest key or the right type.
    """
    _check(tree, root, root, tuple(path), ())


def _check(tree: Tree, section: Field, root: Field, prefix: Path, path: Path) -> None:
    parts = section.parts(tree)
    for key, value in tree.items():
        here = (*path, key)
        if key not in parts:
            raise SpecError((*prefix, *here), _unknown(key, tree, section, root))
        part = parts[key]
        if part.children:
            if not isinstance(value, dict):
                raise SpecError(
                    (*prefix, *here), f"must be a mapping of {', '.join(part.children)}, not {shown(value)}"
                )
            _check(value, part, root, prefix, here)
        elif part.types and not _fits(value, part.types):
            raise SpecError(
                (*prefix, *here), f"must be {_words(part.types)}, not {shown(value)} ({kind_of(value)})"
            )


def _fits(value: object, accepted: tuple[type, ...]) -> bool:
    # bool is an int to Python; a spec that says `chunks: true` is wrong all the same.
    return type(value) in accepted


def _words(accepted: tuple[type, ...]) -> str:
    words = {bool: "true or false", int: "a number", str: "a text", type(None): "null"}
    return " or ".join(words[t] for t in accepted if t in words)


def _unknown(key: str, tree: Tree, section: Field, root: Field) -> str:
    """What is wrong with a key that a section, as it is, does not have, and what to do."""
    others = [kind for kind, parts in section.variants.items() if key in parts]
    if others:
        return f"is no key of {KIND} {tree[KIND]}, but of {' and '.join(others)}: set {KIND}, too"
    return f"unknown key: {_nearest(key, section.parts(tree), root)}"


def _nearest(key: str, parts: Mapping[str, Field], root: Field) -> str:
    """A hint: a near name in the section, else the same name elsewhere in the schema, else what there is."""
    hint = nearest(key, parts)
    if not hint.startswith("did you mean"):
        elsewhere = [dotted(path) for path, _ in walk(root) if path[-1] == key]
        if elsewhere:
            return f"did you mean {elsewhere[0]!r}?"
    return hint


def walk(section: Field, path: Path = ()) -> Iterator[tuple[Path, Field]]:
    """All fields below a section, with their paths."""
    for name, part in section.children.items():
        yield (*path, name), part
        yield from walk(part, (*path, name))


@functools.cache
def run_names(model: type[BaseModel]) -> tuple[Path, ...]:
    """Paths of the fields that name other runs."""
    return tuple(path for path, part in walk(fields_of(model)) if part.names_a_run)


@functools.cache
def local_paths(model: type[BaseModel]) -> tuple[Path, ...]:
    """Paths of the fields whose values are paths of files and folders."""
    return tuple(path for path, part in walk(fields_of(model)) if part.is_path)
