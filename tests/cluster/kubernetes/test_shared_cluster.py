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
