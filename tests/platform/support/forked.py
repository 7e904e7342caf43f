"""The server's side of `forks_support`: what a fork still lacks of being a process of its own."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from jestlab.platform import worker

_worker = worker.main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker, or `jestlab`, where and with the paths with which it would have been started."""
    os.chdir(os.environ.pop("JESTLAB_TEST_FOLDER"))
    sys.path[0] = str(Path.cwd())
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[1:1] = [path for path in paths if path not in sys.path]
    how = os.environ.pop("JESTLAB_TEST_COMMAND", "")
    if how:
        _command(arguments or (), ignoring_sigint=how == "ignoring SIGINT")
    return _worker(arguments)


def _command(arguments: Sequence[str], ignoring_sigint: bool) -> NoReturn:
    """Run `jestlab`, as by `python -c`."""
    from jestlab.platform.cli import main

    signal.signal(signal.SIGINT, signal.SIG_IGN if ignoring_sigint else signal.default_int_handler)
    this = sys.modules["__main__"]  # which processes that it spawns would import
    this.__spec__ = None
    del this.__file__
    sys.argv = ["jestlab", *arguments]
    main(list(arguments))
    sys.exit()


worker.main = main
