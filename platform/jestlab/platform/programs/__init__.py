"""Programs: what runs execute. Ours by name, a user's own callable as `package.module:callable`."""

from __future__ import annotations

import functools
import importlib.util
import re

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.programs.diagnose import DIAGNOSE
from jestlab.platform.programs.embed import EMBED
from jestlab.platform.programs.program import Config, Price, Program, working_directory_importable
from jestlab.platform.programs.train import TRAIN
from jestlab.platform.programs.weights import WEIGHTS

__all__ = ["Config", "Price", "Program", "get"]

OURS = {program.name: program for program in (TRAIN, EMBED, WEIGHTS, DIAGNOSE)}
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def get(name: str) -> Program:
    """A program by its name.

    Args:
        name: One of ours, or "package.module:callable". The callable gets `(config, context)`: the config, a
            plain mapping with `seed` in it, and a `RunContext`.

    Raises:
        UserError: There is no such program.
    """
    if name in OURS:
        return OURS[name]
    if not _ENTRY_POINT.fullmatch(name):
        raise UserError(
            f"no program {name!r}: {nearest(name, OURS)} (one of your own: package.module:callable)"
        )
    return _users(name)


@functools.cache
def _users(name: str) -> Program:
    """A user's program, once it is known that its module is there. It is not imported: that may be slow."""
    module = name.partition(":")[0]
    working_directory_importable()
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise UserError(
            f"no module {module!r} for the program {name!r}: install it, or launch from its folder"
        )
    return Program(name, entry_point=name)
