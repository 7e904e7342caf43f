"""Launch scripts for `xmanager launch`. A Python spec becomes one with two lines:

    from jestlab.platform.cli.xmanager import xmanager_main
    main = xmanager_main(__file__)

Then `xmanager launch study.py -- --scale smoke --root lab` is equivalent to `jestlab launch study.py --scale
smoke --root lab`. For a YAML spec, write the two lines to a Python file, with the spec's path in place of
`__file__`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

_CLI = "xmanager.cli.cli"


def xmanager_main(spec: str) -> Callable[[Sequence[str]], int]:
    """Create the `main` that `xmanager launch` calls.

    Args:
        spec: Path of the spec file: `__file__`, or the path of a YAML file from the working directory.

    Returns:
        A function that launches the spec with the options after `--`, and returns the exit code.
    """
    running = _CLI in sys.modules or _is_main(_CLI)
    if running:  # otherwise `jestlab` loads the spec
        _define_flags()

    def main(argv: Sequence[str]) -> int:
        from absl import flags

        from jestlab.platform.cli import main as jestlab

        if not flags.FLAGS["verbosity"].present:  # absl would show every library's notes
            logging.getLogger().setLevel(logging.WARNING)
        try:
            jestlab(["launch", str(Path(spec)), *_options(), *argv[1:]])
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        return 0

    return main


def _is_main(module: str) -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == module


def _define_flags() -> None:
    """Define the options of `jestlab launch` as absl flags: absl reads the command line first."""
    import xmanager.xm.utils  # noqa: F401 — defines --xm_launch_script, which the command line adds
    from absl import flags

    for option in _launch_options():
        name = _name(option)
        if name in flags.FLAGS:
            continue  # this file is executed again when the spec is loaded
        if option.is_flag:
            flags.DEFINE_boolean(name, False, option.help or "")
        elif option.multiple:
            flags.DEFINE_multi_string(name, [], option.help or "")
        else:
            flags.DEFINE_string(name, None, option.help or "")


def _options() -> Iterator[str]:
    """Yield the options that were given, as `jestlab launch` takes them."""
    from absl import flags

    for option in _launch_options():
        flag = flags.FLAGS[_name(option)]
        if not flag.present:
            continue
        if option.is_flag:
            yield from [f"--{flag.name}"] if flag.value else []
        else:
            values: Any = flag.value if option.multiple else [flag.value]
            yield from (f"--{flag.name}={value}" for value in values)


def _launch_options() -> list[click.Option]:
    import click

    from jestlab.platform.cli.launch import launch_command

    return [option for option in launch_command.params if isinstance(option, click.Option)]


def _name(option: click.Option) -> str:
    return option.opts[0].removeprefix("--")
