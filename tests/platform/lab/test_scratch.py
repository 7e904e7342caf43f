"""The folder of a lab in a bucket on this machine belongs to its user only."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import SCRATCH, Lab

URL = "gs://bucket/lab"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the folder, in a place where everybody can write."""
    monkeypatch.delenv(SCRATCH, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"jestlab-scratch-{os.geteuid()}"


def find() -> Lab:
    return Lab.find(URL, "postgresql://host/db")


def test_it_is_created_with_permissions_for_its_user_only(scratch):
    assert find().root.parent == scratch
    assert scratch.stat().st_mode & 0o777 == 0o700
    assert find().root.parent == scratch


def folder(mode: int, owner: int = -1) -> Callable[[Path], None]:
    def make(scratch: Path) -> None:
        scratch.mkdir()
        scratch.chmod(mode)
        os.chown(scratch, owner, -1)

    return make


@pytest.mark.parametrize(
    "planted",
    [
        lambda scratch: scratch.symlink_to("."),
        lambda scratch: scratch.symlink_to("nowhere"),
        Path.touch,
        folder(0o777),
        folder(0o770),
        pytest.param(
            folder(0o700, owner=65534),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners"),
        ),
    ],
    ids=["link", "dangling link", "file", "writable by all", "writable by group", "other owner"],
)
def test_folders_that_somebody_else_may_have_created_are_refused(scratch, planted):
    planted(scratch)
    with pytest.raises(UserError, match=rf"{scratch}: .*JESTLAB_SCRATCH") as raised:
        find()
    assert "\n" not in str(raised.value)


def test_a_folder_that_the_user_names_is_not_checked(scratch, monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o777)
    monkeypatch.setenv(SCRATCH, str(tmp_path / "mine"))
    assert find().root.parent == tmp_path / "mine"
    assert not scratch.exists()
