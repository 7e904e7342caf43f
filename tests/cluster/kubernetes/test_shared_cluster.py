"""The tests' cluster ends whatever happens to the processes that use it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.cluster.kubernetes import binaries
from tests.cluster.kubernetes.shared import ROOT
from tests.waiting import wait_until

USER = """
import sys, time
from pathlib import Path
from tests.cluster.kubernetes.shared import SharedCluster
cluster = SharedCluster(Path(sys.argv[1]), Path(sys.argv[2]))
print("ready", flush=True)
time.sleep(600)
"""


def processes(folder: Path) -> list[psutil.Process]:
    """Find all processes of the cluster of a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "pid", "status"]):
        words = process.info["cmdline"] or ()
        alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if alive and any(str(folder) in word for word in words) and USER not in words:
            found.append(process)
    return found


@pytest.mark.cluster
@pytest.mark.parametrize("who", ["test process", "server"])
def test_nothing_is_left_when_a_process_is_killed(tmp_path, who):
    programs = binaries.folder()
    if programs is None:
        pytest.skip(binaries.MISSING)
    folder = tmp_path / "kubernetes"
    user = subprocess.Popen(
        [sys.executable, "-c", USER, str(folder), str(programs)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n"
        started = processes(folder)
        assert len(started) == 6  # the server, and five daemons
        [server] = [each for each in started if "tests.cluster.kubernetes.server" in each.cmdline()]
        os.kill(user.pid if who == "test process" else server.pid, signal.SIGKILL)
        wait_until(lambda: processes(folder) == [])
    finally:
        user.kill()
        user.communicate()


def test_where_it_is_missing_the_reason_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert binaries.folder() is None
    assert "make cluster" in binaries.MISSING


def test_without_go_the_build_says_so_in_one_line(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    if subprocess.run(["which", "go"], env=environment, capture_output=True).returncode == 0:
        pytest.skip("Go is where it cannot be hidden")
    said = subprocess.run(
        [Path(binaries.__file__).with_name("build.sh")],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert said.stdout.startswith("make cluster: there is no Go, so tests of Kubernetes will skip")
    assert said.stdout.count("\n") == 1
