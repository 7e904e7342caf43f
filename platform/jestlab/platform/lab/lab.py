"""A lab: the root folder of everything that a user's experiments write, its identity, and its store's URL."""

import hashlib
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jestlab.analysis.connection import hidden
from jestlab.analysis.shared import NAME, scratch, store_in
from jestlab.platform.errors import StoreUnreachable, UserError, sentence
from jestlab.platform.lab.secret import store_url_of
from jestlab.platform.whoami import host_name

SHARED = "shared"
"""Value of `--store` for a shared store in the lab's folder."""

SERVE_TOKEN = "JESTLAB_SERVE_TOKEN"
"""Environment variable with a fixed token for `jestlab serve`. Runs don't inherit it."""

CODE = "code"
"""Folder in the root with archives of code; see `programs.shipped`."""

ID_FILE = "lab.id"
"""File in the root with the id of the lab, which moves with the folder."""


class LabId(NamedTuple):
    """The identity of a lab in a store, which may contain the runs of several labs.

    Attributes:
        uid: 32 hexadecimal digits.
        address: The lab's current folder, or the URL of its folder in a bucket.
        host: Machine of the folder; None for a bucket.
    """

    uid: str
    address: str
    host: str | None


@dataclass(frozen=True)
class Lab:
    """The folders and the store of a lab.

    Attributes:
        root: Folder on this machine, absolute. For a lab in a bucket it is temporary: permanent files are in
            the bucket (see `sync`).
        store_url: SQLAlchemy URL of the results store.
        remote: `gs://bucket/folder` or the like; None if `root` is the lab.
    """

    root: Path
    store_url: str
    remote: str | None = None

    @classmethod
    def find(cls, root: str | Path | None = None, store_url: str | None = None) -> "Lab":
        """Find the lab that the arguments name, or else JESTLAB_ROOT and JESTLAB_STORE, or else `./lab`.

        Its store is in the folder: a SQLite file, or, for `store_url="shared"` and new labs on a network file
        system, a shared store. This creates nothing except the temporary folder for labs in buckets.

        Raises:
            UserError: The folder's path has a character that is special in database URLs, the store's secret
                can't be read, a lab in a bucket has a local store, or its temporary folder may belong to
                another user.
        """
        place = root or os.environ.get("JESTLAB_ROOT") or "lab"
        if "://" in str(place):
            return cls._in_bucket(str(place).rstrip("/"), store_url or store_url_of() or "")
        folder = Path(place).expanduser().absolute()
        if special := {"%", "?"} & set(str(folder)):
            raise UserError(f"rename the lab's folder {folder}: its path contains {' and '.join(special)}")
        given = store_url or store_url_of()
        if given == SHARED:
            given = f"sqlite:///{folder / NAME}"
        return cls(folder, given or f"sqlite:///{_store_in(folder)}")

    @classmethod
    def _in_bucket(cls, remote: str, store_url: str) -> "Lab":
        """Return a lab in a bucket, with a temporary root; UserError unless its store is in PostgreSQL."""
        if remote.startswith(("postgres", "sqlite")):
            raise UserError(f"--root {hidden(remote)} is not a folder: use --store for a database's URL")
        if not store_url or store_url.startswith("sqlite"):
            raise UserError(
                f"a lab at {remote} needs its store in PostgreSQL: --store or JESTLAB_STORE; "
                "a SQLite store needs a --root on this machine"
            )
        name = f"{remote.rpartition('/')[2]}-{hashlib.sha256(remote.encode()).hexdigest()[:12]}"
        return cls(_scratch().absolute() / name, store_url, remote)

    @property
    def store_is_missing(self) -> bool:
        """Whether the store is a file that doesn't exist. This check doesn't import SQLAlchemy."""
        prefix = "sqlite:///"
        return self.store_url.startswith(prefix) and not Path(self.store_url.removeprefix(prefix)).exists()

    @property
    def address(self) -> str:
        """The value of `--root` for this lab."""
        return self.remote or str(self.root)

    @property
    def data(self) -> Path:
        """Generated datasets, one folder each, named by content."""
        return self.root / "data"

    @property
    def cache(self) -> Path:
        """Compiled functions and other regenerable files."""
        return self.root / "cache"

    @property
    def slurm(self) -> Path:
        """Files of Slurm jobs."""
        return self.root / "slurm"

    @property
    def xmanager(self) -> Path:
        """XManager's records of launches."""
        return self.root / "xmanager"

    @property
    def reports(self) -> Path:
        """Tables and plots, one folder per experiment; in the working directory for a lab in a bucket."""
        return self.root / "reports" if self.remote is None else Path("lab-reports").absolute()

    def inside(self, path: str | Path) -> Path:
        """Resolve a path from the store.

        A folder of the lab, such as `runs`, may be a link to a larger disk. Links inside that folder may not
        lead out of it.

        Args:
            path: Absolute, or relative to the root.

        Raises:
            UserError: The path leads out of the lab.
        """
        whole = self.root / path
        place, allowed = whole.resolve(), [self.root.resolve()]
        parts = whole.relative_to(self.root).parts if whole.is_relative_to(self.root) else ()
        if len(parts) > 1 and ".." not in parts:
            allowed.append((self.root / parts[0]).resolve())
        if not any(place.is_relative_to(folder) for folder in allowed):
            raise UserError(f"{path} leads out of the lab {self.root}, to {place}")
        return place

    def make_folder(self, path: str | Path) -> Path:
        """Create a folder of the lab if it is missing, but not the root, and return it.

        Args:
            path: Relative to the root.

        Raises:
            StoreUnreachable: The root is missing; its disk may come back.
        """
        if not self.root.is_dir():
            raise _unavailable(self)
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def on_this_machine(self, verb: str) -> None:
        """Raise UserError if the lab is in a bucket, for a verb that needs a local folder."""
        if self.remote is not None:
            raise UserError(f"{verb} needs a lab whose --root is on this machine, not at {self.remote}")


def identify(lab: Lab) -> LabId:
    """Return the lab's id; create it if it is missing.

    Raises:
        UserError: The file contains no id, or can't be written.
        StoreUnreachable: The lab's folder is missing.
    """
    if (existing := known_id(lab)) is not None:
        return existing
    partial = lab.root / f".{ID_FILE}.{uuid.uuid4().hex}"
    try:
        partial.write_text(uuid.uuid4().hex)
        with suppress(FileExistsError):  # another process was faster
            os.link(partial, lab.root / ID_FILE)
    except FileNotFoundError:
        raise _unavailable(lab) from None
    except OSError as error:
        raise UserError(f"{lab.root / ID_FILE} cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    if (created := known_id(lab)) is None:
        raise _unavailable(lab)
    return created


def known_id(lab: Lab) -> LabId | None:
    """Return the lab's id; None if it has no id yet. The id of a lab in a bucket is a hash of its URL.

    Raises:
        UserError: The file contains no id, or can't be read.
    """
    if lab.remote is not None:
        return LabId(uuid.uuid5(uuid.NAMESPACE_URL, lab.remote).hex, lab.remote, None)
    try:
        uid = (lab.root / ID_FILE).read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{lab.root / ID_FILE} cannot be read: {error.strerror}") from None
    if len(uid) != 32 or set(uid) - set("0123456789abcdef"):
        raise UserError(f"{lab.root}/{ID_FILE} contains no lab id: delete it to create a new one")
    return LabId(uid, str(lab.root), host_name())


def _store_in(root: Path) -> Path:
    """Return the path of the store in a lab's folder, or of the one to create."""
    path = store_in(root)
    return root / NAME if not path.exists() and network_file_system(root) else path


def network_file_system(path: Path) -> str | None:
    """Return the type of a path's network file system, where SQLite's locks are unsafe; None if it is local.

    Args:
        path: May not exist yet.
    """
    import psutil

    try:
        mounts = psutil.disk_partitions(all=True)
    except OSError:
        return None
    around = [mount for mount in mounts if path.absolute().is_relative_to(mount.mountpoint)]
    if not around:
        return None
    kind = max(around, key=lambda mount: len(Path(mount.mountpoint).parts)).fstype.removeprefix("fuse.")
    return kind if kind in _NETWORK else None


_NETWORK = frozenset((
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "cifs", "smb3", "smbfs", "ceph", "afs",
    "glusterfs", "panfs", "orangefs", "ocfs2", "gfs2", "wekafs", "pvfs2", "vastfs", "quobyte", "daos", "s3fs",
    "gcsfuse", "sshfs",
))  # fmt: skip


def _unavailable(lab: Lab) -> StoreUnreachable:
    return StoreUnreachable(f"the lab's folder {lab.root} is missing")


def _scratch() -> Path:
    """Return the local folder for labs in buckets, which only this user can write to."""
    try:
        return scratch()
    except OSError as error:
        raise UserError(sentence(error)) from None
