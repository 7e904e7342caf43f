"""The folder in which a lab in a bucket works on this machine is its user's and nobody else's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import SCRATCH, Lab

URL = "gs://bucket/lab"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folder will be, in a place where everybody may write."""
    monkeypatch.delenv(SCRATCH, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"jestlab-scratch-{os.geteuid()}"


def find() -> Lab:
    return Lab.find(URL, "postgresql://host/db")


def test_it_is_made_for_its_user_alone(scratch):
    assert find().root.parent == scratch
    assert scratch.stat().st_mode & 0o777 == 0o700
    assert find().root.parent == scratch


def link(scratch: Path) -> None:
    (scratch.parent / "theirs").mkdir()
    scratch.symlink_to("theirs")


def link_to_nothing(scratch: Path) -> None:
    scratch.symlink_to("nowhere")


def file(scratch: Path) -> None:
    scratch.touch()


def writable_by_all(scratch: Path) -> None:
    scratch.mkdir()
    scratch.chmod(0o777)


def writable_by_group(scratch: Path) -> None:
    scratch.mkdir()
    scratch.chmod(0o770)


def of_another(scratch: Path) -> None:
    scratch.mkdir(mode=0o700)
    try:
        os.chown(scratch, 65534, -1)
    except PermissionError:
        pytest.skip("only root may give folders away")


@pytest.mark.parametrize(
    "planted", [link, link_to_nothing, file, writable_by_all, writable_by_group, of_another]
)
def test_one_that_somebody_else_may_have_made_is_refused(scratch, planted):
    planted(scratch)
    with pytest.raises(UserError, match=rf"{scratch}: .*JESTLAB_SCRATCH") as raised:
        find()
    assert "\n" not in str(raised.value)


def test_one_that_its_user_names_is_not_looked_at(scratch, monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o777)
    monkeypatch.setenv(SCRATCH, str(tmp_path / "mine"))
    assert find().root.parent == tmp_path / "mine"
    assert not scratch.exists()
