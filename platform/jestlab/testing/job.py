"""A job that does as it is told: `python -m jestlab.testing.job FOLDER NAME`.

In the folder it leaves a file `NAME.<process id>.began`, prints what `NAME.lines` holds, and ends with the
code in `NAME.code`; 137 stands for being killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def main(folder: Path, name: str) -> int:
    """Say that it has begun, and obey."""
    (folder / f"{name}.{os.getpid()}.began").touch()
    return obey(folder, name)


def obey(folder: Path, name: str) -> int:
    """Print the lines that are written for it, until its exit code is; 137 is SIGKILL."""
    lines, code = folder / f"{name}.lines", folder / f"{name}.code"
    while folder.exists():  # nobody would tell it to end any more
        if lines.exists():
            sys.stdout.write(lines.read_text(encoding="utf-8"))
            sys.stdout.flush()
            lines.unlink()
        if code.exists() and (text := code.read_text(encoding="utf-8")):  # empty while it is being written
            number = int(text)
            if number == 137:
                os.kill(os.getpid(), signal.SIGKILL)
            return number
        time.sleep(0.02)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
