"""Daemons that end with the process that started them: `Guard`, and the process that ends them.

`python -m tests.platform.support.guard FOLDER` obeys lines on its standard input, `start NAME COMMAND` and
`kill NAME`. When its input ends because the process that started it has ended or closed it, it ends
everything it has started, and detaches everything that is mounted in the folder.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from jestlab.platform.processes import adopt_orphans, end_descendants

ROOT = Path(__file__).parents[3]


class Guard:
    """Starts daemons in another process, which ends them when this process ends or closes it.

    Attributes:
        folder: Contains the output of each daemon in NAME.out, and its process id in NAME.running.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.platform.support.guard", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            cwd=ROOT, env=environment,
        )  # fmt: skip

    def start(self, name: str, command: list[str]) -> None:
        self._order(shlex.join(["start", name, *command]))

    def kill(self, name: str) -> None:
        """End a daemon by SIGKILL, and wait for its end."""
        self._order(f"kill {name}")

    def pid(self, name: str) -> int:
        return int((self.folder / f"{name}.running").read_text())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        if (answer := self._process.stdout.readline().strip()) != "done":
            raise RuntimeError(f"{line}: {answer}; see {self.folder}")


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
        for mount in psutil.disk_partitions(all=True):
            if Path(mount.mountpoint).is_relative_to(folder):
                detach = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-uz"]
                subprocess.run([*detach, mount.mountpoint], check=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
