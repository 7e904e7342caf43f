"""A real object store for tests: an emulator of Google Cloud Storage as a process of its own, over HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

BUCKET = "lab-bucket"


class BucketServer:
    """Objects lie in files, and so outlive the server.

    Attributes:
        url: Of the server; libraries find it by STORAGE_EMULATOR_HOST.
    """

    def __init__(self, folder: Path) -> None:
        """Choose a port; `start` it and, in the end, `stop` it."""
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        program = Path(__file__).with_name("bucket_process.py")
        command = [sys.executable, str(program), "start", "-H", "127.0.0.1", "-q"]
        command += [f"--port={self._port}", f"--default-bucket={BUCKET}"]
        with (self._folder / "server.txt").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/storage/v1/b/{BUCKET}", timeout=5).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def wipe(self) -> None:
        """Delete every object."""
        urllib.request.urlopen(f"{self.url}/wipe?keep-buckets=true", timeout=30).close()

    def objects(self) -> int:
        """How many there are, without asking it: it cannot list its objects while they are written."""
        return sum(path.is_file() for path in self._folder.rglob("*"))

    def stop(self) -> None:
        """Kill it, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def variables(server: BucketServer) -> dict[str, str]:
    """What lets a process find the server, and ask nobody else."""
    return {"STORAGE_EMULATOR_HOST": server.url, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
