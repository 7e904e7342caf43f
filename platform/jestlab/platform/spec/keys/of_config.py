"""The keys of the configs of jestlab's own programs, read from the models that validate them."""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jestlab.models.config import Code
from jestlab.platform import programs
from jestlab.platform.programs.command import KEYS as OF_COMMANDS
from jestlab.platform.spec.keys import words
from jestlab.platform.spec.keys.docstrings import attributes, introduction
from jestlab.platform.spec.keys.key import REQUIRED, Key
from jestlab.platform.spec.tree import KIND

_EXAMPLES = {
    "data.filter": "similarity > 0.3 and aesthetic > 5",
    "data.recaption": "similarity < 0.2",
    "data.repeat": "size",
    "data.train.function": "readers.py:pairs",
    "evaluation.extra": "{colours: probes.py:colours}",
    "evaluation.extra.<name>.function": "probes.py:colours",
    "soft_cap.of": "negcliploss",
    "command": "[python, train.py, --lr, '{learning_rate}']",
    "cwd": "../code",
    "model": "{variant: B/16}",
}
"""Values that say more than those that follow from a key's type."""

_WITHOUT_EFFECT = {
    *(("data.train.path", kind) for kind in ("folder", "reader")),  # what is there counts by its content
    *(("data.train.examples", kind) for kind in ("folder", "reader")),
    ("data.benchmark.path", "folder"),
    *((name, "") for name in ("path", "tokenizer", "model")),  # of imported weights
}
"""Keys outside `runtime` that do not decide the result, with the kind of their section."""

OF_ALL_COMMANDS = "A command of one's own, in any language. Every other key is a value for its placeholders."


@functools.cache
def config_keys() -> tuple[Key, ...]:
    """Return the keys of the configs of jestlab's own programs, section by section; what means the same to
    several programs once."""
    found: dict[Key, tuple[str, ...]] = {}
    for name, program in programs.BUILTIN.items():
        for key in _of_model(program.schema) if program.schema is not None else _of_commands():
            found[key] = (*found.get(key, ()), name)
    keys = [replace(key, where=where) for key, where in found.items()]
    groups = list(dict.fromkeys(above for key in keys for above in _above(group_of(key))))
    return tuple(sorted(keys, key=lambda key: groups.index(group_of(key))))


def group_of(key: Key) -> str:
    """Return what a key is listed under: its section, or the first program that has it at the top."""
    return key.section or key.where[0]


def _above(section: str) -> Iterator[str]:
    """Yield the sections that a section lies in, and itself, the outermost first."""
    parts = section.split(".")
    yield from (".".join(parts[: depth + 1]) for depth in range(len(parts)))


def _of_model(model: type[BaseModel], path: tuple[str, ...] = (), kind: str = "") -> Iterator[Key]:
    """Yield the keys of a config, or of a section of it at a path."""
    meanings = attributes(model)
    for name, info in model.model_fields.items():
        if name == KIND and kind:
            continue  # told once, for all kinds
        here = (*path, name)
        sections = _sections(info.annotation)
        if not sections or typing.get_origin(info.annotation) is dict or _is_optional(info.annotation):
            yield _config_key(here, info, meanings.get(name, ""), kind)
        if typing.get_origin(info.annotation) is dict and sections:
            if sections[0] is not Code:  # which the plan fills in
                yield from _of_model(sections[0], (*here, "<name>"))
        elif len(sections) == 1 and not _is_optional(info.annotation):
            yield from _of_model(sections[0], here)
        elif len(sections) > 1:
            yield _kind_key(here, info, sections)
            for section in sections:
                yield from _of_model(section, here, str(section.model_fields[KIND].default))


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """Return the sections that a field's type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for member in typing.get_args(annotation) for section in _sections(member)]


def _is_optional(annotation: Any) -> bool:
    return type(None) in typing.get_args(annotation)


def _config_key(path: tuple[str, ...], info: FieldInfo, meaning: str, kind: str) -> Key:
    key = Key(
        path=".".join(path),
        type=words.words(info.annotation, info.metadata, info.json_schema_extra),
        default=REQUIRED if info.is_required() else words.value(info.get_default(call_default_factory=True)),
        meaning=meaning,
        where=(),
        identity=path[0] != "runtime" and (".".join(path), kind) not in _WITHOUT_EFFECT,
        choices=words.choices(info.annotation, info.json_schema_extra),
        kind=kind,
    )
    filled_in = path[-1].endswith("digest") or path == ("code",)
    return key if filled_in else replace(key, example=f"base: {{{key.path}: {_example_value(key)}}}")


def _kind_key(path: tuple[str, ...], info: FieldInfo, sections: Iterable[type[BaseModel]]) -> Key:
    """Describe the `kind` of a section that has several."""
    kinds = {str(section.model_fields[KIND].default): introduction(section) for section in sections}
    here = ".".join((*path, KIND))
    return Key(
        path=here,
        type=words.either(list(kinds)),
        default=str(getattr(info.default, KIND)),
        meaning=" ".join(f"{kind}: {text}" for kind, text in kinds.items()),
        where=(),
        identity=True,
        choices=tuple(kinds),
        example=f"base: {{{here}: {next(iter(kinds))}}}",
    )


def _of_commands() -> Iterator[Key]:
    for name, (type_, default, meaning) in OF_COMMANDS.items():
        example = f"base: {{{name}: {_EXAMPLES[name]}}}"
        yield Key(name, type_, default, meaning, (), identity=name != "cwd", example=example)


def _example_value(key: Key) -> str:
    """Choose a value that says something: another than the default, where one is known."""
    if key.path in _EXAMPLES:
        return _EXAMPLES[key.path]
    others = [choice for choice in key.choices if choice != key.default]
    if others:
        return others[0]
    if key.default == "false":
        return "true"
    if key.default not in ("null", REQUIRED, "{}"):
        return key.default
    by_type = {"name of a run": "reference", "path": "data/shards", "mapping": "{strength: 2}"}
    for beginning, value in by_type.items():
        if key.type.startswith(beginning):
            return value
    return "mine.py:function" if "function" in key.type else "128"


@functools.cache
def config_sections() -> dict[str, str]:
    """Return section or program → what it is."""
    found: dict[str, str] = {}
    for name, program in programs.BUILTIN.items():
        if program.schema is not None:
            found = dict(_introductions(program.schema, ())) | found | {name: introduction(program.schema)}
    return found | {"command": OF_ALL_COMMANDS}


def _introductions(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, info in model.model_fields.items():
        sections = _sections(info.annotation)
        here = (*path, name)
        if len(sections) == 1 and not _is_optional(info.annotation):
            here = (*here, "<name>") if typing.get_origin(info.annotation) is dict else here
            yield ".".join(here), introduction(sections[0])
        elif sections:
            yield ".".join(here), attributes(model).get(name, "")
        for section in sections if not _is_optional(info.annotation) else ():
            yield from _introductions(section, here)
