"""A real object store for tests: an emulator of Google Cloud Storage in its own process, over HTTP."""

import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.cluster.ports import free_port
from tests.waiting import wait_until

BUCKET = "lab-bucket"


class BucketServer:
    """A server of one bucket; its URL is for STORAGE_EMULATOR_HOST."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "gcp_storage_emulator", "start", "-H", "127.0.0.1", "-q"]
        command += [f"--port={self._port}", f"--default-bucket={BUCKET}"]
        with (self._folder / "server.txt").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/storage/v1/b/{BUCKET}", timeout=5).close()
        except OSError:
            return False
        return True

    def wipe(self) -> None:
        urllib.request.urlopen(f"{self.url}/wipe?keep-buckets=true", timeout=30).close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def variables(server: BucketServer) -> dict[str, str]:
    """Return the environment variables that make libraries use only this server."""
    return {"STORAGE_EMULATOR_HOST": server.url, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
