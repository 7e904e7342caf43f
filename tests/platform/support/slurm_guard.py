"""Guards the daemons of one Slurm cluster: `python -m tests.platform.support.slurm_guard FOLDER`.

It obeys lines on its standard input, `start NAME COMMAND` and `kill NAME`. When its input ends because the
process that started it has ended or closed it, it ends everything that the cluster has started.
"""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

from jestlab.platform.processes import adopt_orphans, end_descendants


def main(folder: Path) -> None:
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    daemons: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for line in sys.stdin:
            verb, name, *command = shlex.split(line)
            if verb == "kill":
                daemons[name].kill()
                daemons[name].wait()
            else:
                with (folder / f"{name}.out").open("ab") as output:
                    daemons[name] = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                    )
                (folder / f"{name}.running").write_text(str(daemons[name].pid))
            print("done", flush=True)
    finally:
        end_descendants()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
