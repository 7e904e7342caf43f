"""Where a lab is, and which paths are inside of it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab, network_file_system


def test_options_precede_the_environment_and_the_environment_precedes_the_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JESTLAB_ROOT", raising=False)
    monkeypatch.delenv("JESTLAB_STORE", raising=False)
    assert Lab.find().root == tmp_path / "lab"
    monkeypatch.setenv("JESTLAB_ROOT", str(tmp_path / "mine"))
    assert Lab.find().store_url == f"sqlite:///{tmp_path}/mine/results.db"
    monkeypatch.setenv("JESTLAB_STORE", "sqlite:////elsewhere.db")
    assert Lab.find("here") == Lab(tmp_path / "here", "sqlite:////elsewhere.db")
    for name in ("a%20b", "what?"):
        with pytest.raises(UserError, match="rename the lab"):
            Lab.find(name)


def test_only_folders_of_the_lab_may_be_links(tmp_path):
    lab = Lab(tmp_path / "lab", "")
    (tmp_path / "disk" / "run").mkdir(parents=True)
    lab.root.mkdir()
    (lab.root / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "run" / "log.txt").symlink_to("/etc/passwd")
    assert lab.inside("runs/run") == (tmp_path / "disk" / "run").resolve()
    assert lab.inside(lab.root / "runs" / "run") == lab.inside("runs/run")
    for path in ("/etc/passwd", "../x", "runs/../../x", "runs/../runs/../../x", "runs/run/log.txt"):
        with pytest.raises(UserError, match="leads out of the lab"):
            lab.inside(path)


def test_the_innermost_mount_determines_the_file_system(monkeypatch):
    mounts = {
        "/": "ext4", "/home": "nfs4", "/home/ada/local disk": "xfs", "/scratch": "lustre",
        "/mnt/bucket": "fuse.s3fs",
    }  # fmt: skip
    found = [SimpleNamespace(mountpoint=place, fstype=kind) for place, kind in mounts.items()]
    monkeypatch.setattr("psutil.disk_partitions", lambda all: found)
    expected = {
        "/home/ada/lab/results.db": "nfs4",
        "/home/ada/local disk/lab/results.db": None,
        "/homework/results.db": None,
        "/scratch/lab": "lustre",
        "/mnt/bucket/lab": "s3fs",
    }
    assert {path: network_file_system(Path(path)) for path in expected} == expected
