"""The server's side of `workers_support`: what a fork still lacks of being a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jestlab.platform import worker

_worker = worker.main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker where, and with the paths with which, it would have been started."""
    os.chdir(os.environ.pop("JESTLAB_TEST_FOLDER"))
    sys.path[0] = str(Path.cwd())
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[1:1] = [path for path in paths if path not in sys.path]
    return _worker(arguments)


worker.main = main
