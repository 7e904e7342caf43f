"""Describe the config of a program: its schema or free-form keys, its identity, and its checks.

`jestlab.platform.programs` imports this module. Therefore this module imports that package by name, and only
when a spec is validated.
"""

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from jestlab.platform.spec.fields import Field, fields_of

PROGRAMS = "jestlab.platform.programs"
"""The package whose `get(name)` returns a program, and whose `BUILTIN` has jestlab's own programs by name."""

Config = BaseModel | dict[str, Any]
"""A config: validated by the program's schema, or a plain mapping where the program has none."""

Problem = tuple[tuple[str, ...], str]
"""Path of a field in a config, and an error message."""


class FreeKey(NamedTuple):
    """A documented key of a free-form config: type, default, and meaning."""

    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class ProgramConfig:
    """Description of a program's config.

    Attributes:
        name: The program's name in specs.
        schema: Model of the config; None for a free-form mapping.
        free_keys: Documented keys of a free-form mapping.
        problems: Yields the mistakes in a free-form config, given the roles of the run's dependencies.
        identity: Returns the part of a config that determines the result, as a new dict.
        extent: Path of the config's training length, to which the price is proportional; None without one.
        inherits: Sections that a run of this program takes from the base of a study with another program, if
            that program has a section of the same name and type.
        folder_key: Key of a free-form config with the path of a folder, by default that of the spec.
    """

    name: str
    schema: type[BaseModel] | None = None
    free_keys: Mapping[str, FreeKey] = field(default_factory=dict)
    problems: Callable[[Mapping[str, Any], Collection[str]], Iterable[Problem]] = lambda config, roles: ()
    identity: Callable[[Any], dict[str, Any]] = dict
    extent: tuple[str, ...] | None = None
    inherits: tuple[str, ...] = ()
    folder_key: str | None = None

    @property
    def fields(self) -> Field | None:
        """The fields of the config; None for a free-form mapping."""
        return None if self.schema is None else fields_of(self.schema)

    def inherited(self, base: Mapping[str, Any], owner: "ProgramConfig") -> dict[str, Any]:
        """Return the sections of another program's base that apply to a run of this program."""
        if self.name == owner.name:
            return dict(base)
        own, theirs = (each.schema.model_fields if each.schema else {} for each in (self, owner))
        shared = [name for name in self.inherits if name in base and name in own and name in theirs]
        return {name: base[name] for name in shared if own[name].annotation is theirs[name].annotation}


def builtin_programs() -> Mapping[str, ProgramConfig]:
    """Return jestlab's own programs by name."""
    programs: Mapping[str, ProgramConfig] = importlib.import_module(PROGRAMS).BUILTIN
    return programs


def program_config(name: str) -> ProgramConfig:
    """Return the config of a program.

    Raises:
        UserError: The program is unknown.
    """
    program: ProgramConfig = importlib.import_module(PROGRAMS).get(name)
    return program
