"""Programs: what runs execute. jestlab's own by name, a user's command, or a user's callable."""

from __future__ import annotations

import functools
from pathlib import Path

from jestlab.models.extensions import references
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.programs.builtin import DIAGNOSE, EMBED, SCORE, TRAIN, WEIGHTS
from jestlab.platform.programs.command import COMMAND
from jestlab.platform.programs.program import Contents, Memory, Price, Program, Where
from jestlab.platform.spec.program import Config
from jestlab.platform.store.records import ADOPTED

__all__ = ["BUILTIN", "Config", "Contents", "Memory", "Price", "Program", "Where", "get", "imports_of"]

BUILTIN = {own.name: own for own in (TRAIN, EMBED, SCORE, WEIGHTS, DIAGNOSE, COMMAND)}


def get(name: str) -> Program:
    """Return a program by its name.

    Args:
        name: One of jestlab's own, "package.module:callable" or "path/to/file.py:callable". The callable is
            called with `(config, context)`: the config, a plain mapping with `seed` in it, and a
            `RunContext`. Its name is part of a run's identity, but neither the folder of its file nor its
            code: after the code has changed, `jestlab launch --rerun-changed` runs it again.

    Raises:
        UserError: There is no such program, or it is of runs that were adopted, which cannot be executed.
    """
    if name == ADOPTED:
        raise UserError("adopted runs were executed by another tool: jestlab adopt takes them in")
    if name in BUILTIN:
        return BUILTIN[name]
    if not references.is_reference(name):
        raise UserError(
            f"no program {name!r}: {nearest(name, BUILTIN)} "
            "(one of your own: package.module:callable or path/to/file.py:callable)"
        )
    return _users(references.anchored(name, Path.cwd()))


def imports_of(name: str) -> tuple[str, ...]:
    """Return the modules that every run of a program imports; none is known of a user's own programs."""
    return BUILTIN[name].imports if name in BUILTIN else ()


@functools.cache
def _users(name: str) -> Program:
    try:
        references.check(name)
    except ValueError as error:
        raise UserError(str(error)) from None
    return Program(name=name, entry_point=name, identifier=references.without_folder(name))
