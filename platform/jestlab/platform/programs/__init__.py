"""Programs that runs execute: jestlab's own by name, a command, or a custom callable."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jestlab.models.extensions import references
from jestlab.models.training.phases import count_compilation
from jestlab.platform.dependencies import check
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.programs.builtin import DIAGNOSE, EMBED, SCORE, TRAIN, WEIGHTS
from jestlab.platform.programs.command import COMMAND
from jestlab.platform.programs.context import RunContext
from jestlab.platform.programs.program import DataLookup as DataLookup
from jestlab.platform.programs.program import Placement as Placement
from jestlab.platform.programs.program import Price as Price
from jestlab.platform.programs.program import Program as Program
from jestlab.platform.spec.program import Config as Config
from jestlab.platform.store.records import ADOPTED

BUILTIN = {program.name: program for program in (TRAIN, EMBED, SCORE, WEIGHTS, DIAGNOSE, COMMAND)}


def get(name: str) -> Program:
    """Return a program by its name.

    Args:
        name: A built-in program, "package.module:callable", or "path/to/file.py:callable". The callable is
            called with `(config, context)`: a plain mapping that includes `seed`, and a `RunContext`. The
            callable's name is part of a run's identity. The folder of its file and its code are not: after
            the code has changed, `jestlab launch --rerun-changed` runs it again.

    Raises:
        UserError: There is no such program, or it is that of imported runs, which can't be executed.
    """
    if name == ADOPTED:
        raise UserError("adopted runs were executed by another tool: import them with `jestlab adopt`")
    if name in BUILTIN:
        return BUILTIN[name]
    if not references.is_reference(name):
        raise UserError(
            f"no program {name!r}: {nearest(name, BUILTIN)} "
            "(a custom program: package.module:callable or path/to/file.py:callable)"
        )
    return _custom(references.anchored(name, Path.cwd()))


def execute(name: str, config: Mapping[str, Any], context: RunContext) -> None:
    """Execute a run with its stored config; exceptions of the program propagate.

    jestlab's own programs are the functions of `execution` (`run_train`, …) and `command_run`.
    """
    program = get(name)
    check(program.extra)
    run = references.load(program.entry_point)
    count_compilation(context.clock)  # loading the program may have imported JAX
    run(program.read(config), context)


def imports_of(name: str) -> tuple[str, ...]:
    """Return the modules that every run of a program imports; empty for custom programs."""
    return BUILTIN[name].imports if name in BUILTIN else ()


@functools.cache
def _custom(name: str) -> Program:
    try:
        references.check(name)
    except ValueError as error:
        raise UserError(str(error)) from None
    return Program(name=name, entry_point=name)
