"""Where a lab is, and which paths are inside of it."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from jestlab.analysis.shared import SCRATCH
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


# ---- the folder of a lab in a bucket on this machine belongs to its user only


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the folder, in a place where everybody can write."""
    monkeypatch.delenv(SCRATCH, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"jestlab-scratch-{os.geteuid()}"


def find() -> Lab:
    return Lab.find("gs://bucket/lab", "postgresql://host/db")


def test_it_is_created_with_permissions_for_its_user_only(scratch):
    for _ in range(2):
        assert find().root.parent == scratch
        assert scratch.stat().st_mode & 0o777 == 0o700


def mode(scratch: Path, mode: int, owner: int = -1) -> None:
    scratch.mkdir()
    scratch.chmod(mode)
    os.chown(scratch, owner, -1)


PLANTED: dict[str, Callable[[Path], None]] = {
    "link": lambda scratch: scratch.symlink_to("."),
    "dangling link": lambda scratch: scratch.symlink_to("nowhere"),
    "file": Path.touch,
    "writable by all": lambda scratch: mode(scratch, 0o777),
    "writable by group": lambda scratch: mode(scratch, 0o770),
    "other owner": lambda scratch: mode(scratch, 0o700, owner=65534),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_folders_that_somebody_else_may_have_created_are_refused(scratch, planted, monkeypatch, tmp_path):
    if planted == "other owner" and os.geteuid() != 0:
        pytest.skip("only root can change owners")
    PLANTED[planted](scratch)
    with pytest.raises(UserError, match=rf"{scratch}: .*JESTLAB_SCRATCH") as raised:
        find()
    assert "\n" not in str(raised.value)
    (tmp_path / "mine").mkdir(mode=0o777)
    monkeypatch.setenv(SCRATCH, str(tmp_path / "mine"))  # a folder that the user names is not checked
    assert find().root.parent == tmp_path / "mine"
