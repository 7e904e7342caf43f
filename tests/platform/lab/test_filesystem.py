"""What file systems can do is tested on real ones, and nothing is left of the tests."""

import os
from pathlib import Path

import pytest
from mounts_support import shared_folder
from tests.rights import without_rights

from jestlab.platform.lab import filesystem
from jestlab.platform.lab.filesystem import LINKS, LOCKS, RENAMES, FileSystem, examine


@pytest.mark.parametrize("folder", ["/dev/shm", None], ids=["tmpfs", "disk"])
def test_a_disk_of_this_machine_fits_sqlite(folder, tmp_path):
    place = Path(folder or tmp_path)
    before = sorted(place.glob(".jestlab*"))
    assert examine(place) == FileSystem(network=None, missing=())
    assert examine(place).store == "sqlite"
    assert sorted(place.glob(".jestlab*")) == before


@pytest.mark.parametrize(
    ("options", "missing", "store"),
    [((), (), "shared"), (("disable_hardlink",), (LINKS,), "postgresql")],
    ids=["hard links", "no hard links"],
)
def test_a_network_file_system_needs_hard_links_for_a_shared_store(tmp_path, options, missing, store):
    folder = tmp_path / "served"
    folder.mkdir()
    with shared_folder(folder, 1, *options) as [client]:
        examined = examine(client)
        assert examined == FileSystem("sshfs", missing)
        assert examined.store == store
        assert not [*folder.iterdir()]


def test_links_and_renames_that_are_not_exclusive_are_missing(tmp_path, monkeypatch):
    """As on file systems that emulate links by copies."""

    def copy(source: Path, target: Path) -> None:
        Path(target).write_bytes(Path(source).read_bytes())

    monkeypatch.setattr(os, "link", copy)
    monkeypatch.setattr(Path, "replace", copy)
    assert examine(tmp_path).missing == (LINKS, RENAMES)


def test_locks_are_not_required(tmp_path, monkeypatch):
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    monkeypatch.setattr(filesystem, "network_file_system", lambda _: "lustre")
    examined = examine(tmp_path)
    assert examined == FileSystem("lustre", (LOCKS,))
    assert examined.store == "shared"


def test_a_folder_that_is_not_writable_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    with without_rights(), pytest.raises(PermissionError):
        examine(tmp_path)
    folder = tmp_path / "served"
    folder.mkdir()
    with shared_folder(folder, 1, "ro") as [client], pytest.raises(OSError, match="Read-only"):
        examine(client)
