"""A job that is controlled by files: `python -m jestlab.testing.job FOLDER NAME`.

The job creates `NAME.<process id>.began`, prints the content of `NAME.lines` whenever this file appears, and
exits with the code in `NAME.code`. If the code is 137, it kills itself.
"""

import os
import signal
import sys
import time
from pathlib import Path


def run_job(folder: Path, name: str) -> int:
    """Print lines until there is an exit code, and return the code; 1 if the folder was removed."""
    lines, code = folder / f"{name}.lines", folder / f"{name}.code"
    while folder.exists():
        if lines.exists():
            sys.stdout.write(lines.read_text(encoding="utf-8"))
            sys.stdout.flush()
            lines.unlink()
        if code.exists() and (text := code.read_text(encoding="utf-8")):  # empty while it is written
            if int(text) == 137:
                os.kill(os.getpid(), signal.SIGKILL)
            return int(text)
        time.sleep(0.02)
    return 1


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / f"{sys.argv[2]}.{os.getpid()}.began").touch()
    sys.exit(run_job(place, sys.argv[2]))
