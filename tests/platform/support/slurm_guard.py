"""Guards the daemons of one Slurm cluster: `python -m tests.platform.support.slurm_guard FOLDER`.

It obeys lines on its standard input, `start NAME` and `kill NAME`. When its input ends because the process
that started it has ended or closed it, it ends everything that the cluster has started.
"""

import getpass
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

from jestlab.platform.processes import adopt_orphans, end_descendants

_SMALL_DATABASE = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M")


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
        "slurmdbd": ["slurmdbd", "-D"],
        # Its socket gives access to everything: the folder belongs to one user alone.
        "mariadbd": [
            *("mariadbd", "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={folder}/database"),
            *("--skip-networking", f"--socket={folder}/mariadb.socket", f"--pid-file={folder}/mariadb.pid"),
            *("--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0", *_SMALL_DATABASE),
        ],
    }
    command = commands.get(name, ["slurmd", "-D", "-N", name, "-f", f"{folder}/slurm.conf"])
    (folder / "state").mkdir(exist_ok=True)
    if name == "mariadbd" and not (folder / "database").exists():
        install = ["mariadb-install-db", "--no-defaults", f"--user={getpass.getuser()}", "--skip-test-db"]
        more = [f"--datadir={folder}/database", *_SMALL_DATABASE]
        subprocess.run([*install, *more], check=True, stdout=subprocess.DEVNULL)
    socket = {"munged": folder / "munge.socket", "mariadbd": folder / "mariadb.socket"}.get(name)
    if socket is not None:
        socket.unlink(missing_ok=True)  # of one that was killed
    with (folder / f"{name}.out").open("ab") as output:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # slurmdbd has no setting for the socket of its database.
            env={**os.environ, "MYSQL_UNIX_PORT": f"{folder}/mariadb.socket"},
        )
    (folder / f"{name}.running").write_text(str(started.pid))
    if socket is not None:
        wait_until(socket.exists)
    return started


if __name__ == "__main__":
    main(Path(sys.argv[1]))
