"""Guards the daemons of one Slurm cluster: `python -m tests.platform.support.slurm_guard FOLDER`.

It obeys lines on its standard input, `start NAME` and `kill NAME`. When its input ends because the process
that started it has ended or closed it, it ends everything that the cluster has started.
"""

import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

from jestlab.platform.processes import adopt_orphans, end_descendants


def main(folder: Path) -> None:
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    daemons: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for line in sys.stdin:
            verb, name = line.split()
            if verb == "kill":
                daemons[name].kill()
                daemons[name].wait()
            else:
                daemons[name] = _daemon(folder, name)
            print("done", flush=True)
    finally:
        end_descendants()


def _daemon(folder: Path, name: str) -> subprocess.Popen[bytes]:
    ends = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munge = [f"--{option}={folder}/munge.{end}" for option, end in ends.items()]
    commands = {
        "munged": ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key", *munge],
        "slurmctld": ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"],
    }
    command = commands.get(name, ["slurmd", "-D", "-N", name, "-f", f"{folder}/slurm.conf"])
    (folder / "state").mkdir(exist_ok=True)
    socket = folder / "munge.socket"
    if name == "munged":
        socket.unlink(missing_ok=True)  # of one that was killed
    with (folder / f"{name}.out").open("ab") as output:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    (folder / f"{name}.running").write_text(str(started.pid))
    if name == "munged":
        wait_until(socket.exists)
    return started


if __name__ == "__main__":
    main(Path(sys.argv[1]))
