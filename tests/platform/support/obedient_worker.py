"""Takes the worker's place in a process that imports it: says what it is, then does as a folder says.

Under the job's name lie there the lines to print and the code to end with; `NAME.self` is what it writes.
"""

import json
import logging
import os
import random
import signal
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from numpy import random as numpy_random

from jestlab.platform import worker
from jestlab.testing.job import run_job

logging.basicConfig(format="set by an import: %(message)s")  # as some packages do


def main(arguments: Sequence[str] | None = None) -> int:
    assert arguments is not None
    folder, name = Path(arguments[0]), arguments[1]
    seen = {
        "arguments": arguments,
        "argv": sys.argv[1:],
        "session": os.getsid(0),
        "group": os.getpgrp(),
        "files": sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.exists()),
        "is_one_log": os.fstat(1) == os.fstat(2),
        "stdin": str(Path("/proc/self/fd/0").readlink()),
        "random": [random.random(), float(numpy_random.rand()), str(uuid.uuid4())],  # noqa: NPY002
        "on_interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "log_handlers": len(logging.getLogger().handlers),
    }
    ready = folder / f"{name}.new"
    ready.write_text(json.dumps(seen))
    ready.rename(folder / f"{name}.self")
    (folder / f"{name}.{os.getpid()}.began").touch()
    return run_job(folder, name)


worker.main = main
