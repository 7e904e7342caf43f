"""Make specs usable as scripts for `xmanager launch`. Add two lines to a Python spec:

    from jestlab.platform.cli.xmanager import xmanager_main
    main = xmanager_main(__file__)

Then `xmanager launch study.py -- --scale smoke --root lab` is equivalent to `jestlab launch study.py --scale
smoke --root lab`. For a YAML spec, write the two lines to a separate Python file, and replace `__file__` with
the path of the spec.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

_CLI = "xmanager.cli.cli"


def xmanager_main(spec: str) -> Callable[[Sequence[str]], int]:
    """Create the `main` that `xmanager launch` calls.

    Args:
        spec: Path of the spec: `__file__`, or a YAML file relative to the working directory.

    Returns:
        A function that launches the spec with the options after `--`, and returns the exit code.
    """
    if _CLI in sys.modules or _main_module() == _CLI:  # plain `jestlab` also imports the file, as a spec
        _define_flags()

    def main(argv: Sequence[str]) -> int:
        from absl import flags

        from jestlab.platform.cli import main as jestlab

        if not flags.FLAGS["verbosity"].present:  # otherwise absl prints INFO messages of all libraries
            logging.getLogger().setLevel(logging.WARNING)
        options: list[str] = []
        for name, option in _launch_options().items():
            values = flags.FLAGS[name].value or ()
            options += (
                [f"--{name}"] * bool(values) if option.is_flag else [f"--{name}={each}" for each in values]
            )
        try:
            jestlab(["launch", str(Path(spec)), *options, *argv[1:]])
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        return 0

    return main


def _main_module() -> str | None:
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None)


def _define_flags() -> None:
    """Define the options of `jestlab launch` as absl flags, because absl parses the command line first."""
    import xmanager.xm.utils  # noqa: F401 — defines --xm_launch_script, which `xmanager launch` adds
    from absl import flags

    for name, option in _launch_options().items():
        if name in flags.FLAGS:
            continue  # loading the spec executes the user's file again, which calls this again
        if option.is_flag:
            flags.DEFINE_boolean(name, False, option.help or "")
        else:
            flags.DEFINE_multi_string(name, [], option.help or "")


def _launch_options() -> dict[str, click.Option]:
    import click

    from jestlab.platform.cli.launch import launch_command

    options = (option for option in launch_command.params if isinstance(option, click.Option))
    return {option.opts[0].removeprefix("--"): option for option in options}
