"""Folders that tests mount over a network protocol are real: clients share no cache, and nothing is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from guard import ROOT
from mounts_support import shared_folder, why_not
from tests.waiting import wait_until


def names(folder: Path) -> set[str]:
    """Return the names in a client's listing."""
    return {path.name for path in folder.iterdir()}


def mounts_in(folder: Path) -> list[str]:
    found = (mount.mountpoint for mount in psutil.disk_partitions(all=True))
    return [place for place in found if Path(place).is_relative_to(folder)]


def servers_of(folder: Path) -> list[psutil.Process]:
    """Clients of a folder, and processes that they have started."""
    found = [process for process in psutil.process_iter(["cmdline"]) if _is_of(folder, process)]
    return found + [child for process in found for child in process.children(recursive=True)]


def _is_of(folder: Path, process: psutil.Process) -> bool:
    return any(str(folder) in word for word in process.info["cmdline"] or ())


def test_links_are_exclusive_between_clients_and_listings_are_late(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    with shared_folder(folder) as (first, second):
        (first / "one").write_text("one")
        (second / "two").write_text("two")
        os.link(first / "one", first / "published")
        with pytest.raises(FileExistsError):
            os.link(second / "two", second / "published")
        assert (second / "published").read_text() == "one"
        assert names(second) == {"one", "two", "published"}
        (first / "late").touch()
        assert "late" in names(first) and "late" not in names(second)
        assert (second / "late").exists()  # a name that is asked for is never old
        assert len(mounts_in(tmp_path)) == 2
    assert not mounts_in(tmp_path)
    assert not servers_of(folder)
    assert names(folder) == {"late", "one", "published", "two"}


def test_nothing_is_left_after_the_process_is_killed(tmp_path):
    if why_not() is not None:
        pytest.skip(str(why_not()))
    folder = tmp_path / "served"
    folder.mkdir()
    script = (
        "import sys, time; sys.path.insert(0, 'tests/platform/support')\n"
        "from pathlib import Path; from mounts_support import shared_folder\n"
        "with shared_folder(Path(sys.argv[1])):\n    print('mounted', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert child.stdout is not None
    with child.stdout as output:
        assert output.readline() == "mounted\n"
        assert len(mounts_in(tmp_path)) == 2 and servers_of(folder)
        child.send_signal(signal.SIGKILL)
        child.wait()
    wait_until(lambda: not mounts_in(tmp_path) and not servers_of(folder))
