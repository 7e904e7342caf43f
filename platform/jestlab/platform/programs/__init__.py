"""Programs: what runs execute. Ours by name, a user's own command, or a user's own callable."""

from __future__ import annotations

import functools
from pathlib import Path

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.programs import callables
from jestlab.platform.programs.command import COMMAND
from jestlab.platform.programs.diagnose import DIAGNOSE
from jestlab.platform.programs.embed import EMBED
from jestlab.platform.programs.program import Config, Price, Program
from jestlab.platform.programs.train import TRAIN
from jestlab.platform.programs.weights import WEIGHTS

__all__ = ["Config", "Price", "Program", "get"]

OURS = {program.name: program for program in (TRAIN, EMBED, WEIGHTS, DIAGNOSE, COMMAND)}


def get(name: str) -> Program:
    """A program by its name.

    Args:
        name: One of ours, "package.module:callable" or "path/to/file.py:callable". The callable gets
            `(config, context)`: the config, a plain mapping with `seed` in it, and a `RunContext`. Its name
            is part of a run's identity, of a file only the name without its folder; its code is not: what
            should run again after the code has changed says so by a key of its config, as in `version: 2`.

    Raises:
        UserError: There is no such program.
    """
    if name in OURS:
        return OURS[name]
    if not callables.is_one(name):
        raise UserError(
            f"no program {name!r}: {nearest(name, OURS)} "
            "(one of your own: package.module:callable or path/to/file.py:callable)"
        )
    return _users(callables.anchored(name, Path.cwd()))


def imports_of(name: str) -> tuple[str, ...]:
    """Modules that every run of a program imports; none that is known of a user's own."""
    return OURS[name].imports if name in OURS else ()


@functools.cache
def _users(name: str) -> Program:
    callables.check(name)
    return Program(name, entry_point=name, identifier=callables.identifier(name))
