"""A launcher that starts one job that needs a GPU, and waits: `gpu_launcher.py ROOT FOLDER NAME`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from executor_harnesses import obedient

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.local import Local
from jestlab.platform.spec.resources import Resources


def main(root: str, folder: str, name: str) -> None:
    """Launch it, and wait to be killed."""
    executor = Local(Lab.find(root), Resources(gpus=1))
    print(executor.launch(obedient(Path(folder), name, module="holding_worker")).handle, flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
