"""An object store: an emulator of Google Cloud Storage in its own process, over HTTP."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import fsspec
import pytest
from tests.cluster.ports import free_port
from tests.waiting import wait_until


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with a bucket, which the tests of this process share."""
    port = free_port()
    url, folder = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("objects")
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "-H", "127.0.0.1", "-q"]
    command += [f"--port={port}", "--default-bucket=lab-bucket"]

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"{url}/storage/v1/b/lab-bucket", timeout=5).close()
        except OSError:
            return False
        return True

    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        wait_until(answers)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket_server(object_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and those it starts use only the server, with an empty bucket."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", object_store)
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    urllib.request.urlopen(f"{object_store}/wipe?keep-buckets=true", timeout=30).close()
    fsspec.get_filesystem_class("gs").clear_instance_cache()  # connections of the previous test
