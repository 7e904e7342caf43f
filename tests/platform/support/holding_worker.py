"""Takes the worker's place in a fresh process: says which GPUs it sees, and ends when a file is there."""

import os
import time
from pathlib import Path


def main() -> None:
    folder, name = Path(os.environ["HARNESS"]), os.environ["NAME"]
    unfinished = folder / f"{name}.new"
    unfinished.write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
    unfinished.replace(folder / f"{name}.gpus")
    while not (folder / f"{name}.end").exists():
        time.sleep(0.02)


if __name__ == "__main__":
    main()
