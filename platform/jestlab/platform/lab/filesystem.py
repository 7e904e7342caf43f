"""Test the abilities of a lab's file system, and choose the kind of store that fits it."""

import fcntl
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jestlab.platform.lab.lab import network_file_system

LINKS, RENAMES, LOCKS = "exclusive hard links", "renames that replace files", "file locks"
"""Abilities of file systems. Locks are not required, because other machines may not see them."""


@dataclass(frozen=True)
class FileSystem:
    """The result of examining a folder.

    Attributes:
        network: Type of the network file system; None for a disk of this machine.
        missing: Abilities that the file system does not have.
    """

    network: str | None
    missing: tuple[str, ...]

    @property
    def store(self) -> Literal["sqlite", "shared", "postgresql"]:
        """The kind of store that fits."""
        if self.network is None:
            return "sqlite"
        return "postgresql" if {*self.missing} - {LOCKS} else "shared"


def examine(folder: Path) -> FileSystem:
    """Test the abilities of a folder's file system in a temporary folder, which is deleted again.

    One machine can't measure how soon other machines see a change.

    Raises:
        OSError: The folder isn't writable.
    """
    tests = {LINKS: _links, RENAMES: _renames, LOCKS: _locks}
    with tempfile.TemporaryDirectory(prefix=".jestlab-doctor-", dir=folder) as name:
        place, missing = Path(name), []
        for ability, test in tests.items():
            (place / "one").write_text("one")
            (place / "two").write_text("two")
            with suppress(OSError):  # the operation isn't supported
                if test(place):
                    continue
            missing.append(ability)
    return FileSystem(network_file_system(folder), tuple(missing))


def _links(place: Path) -> bool:
    os.link(place / "one", place / "link")
    try:
        os.link(place / "two", place / "link")
    except FileExistsError:
        return (place / "link").read_text() == "one"
    return False


def _renames(place: Path) -> bool:
    (place / "one").replace(place / "two")
    return (place / "two").read_text() == "one" and not (place / "one").exists()


def _locks(place: Path) -> bool:
    with (place / "one").open("r+") as one, (place / "two").open("r+") as two:
        fcntl.lockf(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True
