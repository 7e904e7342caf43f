"""One lab: where everything lies that a user's experiments write, and the address of its store."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from jestlab.platform import secrets
from jestlab.platform.errors import UserError

SCRATCH = "JESTLAB_SCRATCH"
"""Where labs in buckets have their folders on this machine."""


@dataclass(frozen=True)
class Lab:
    """Where a lab keeps its things.

    Attributes:
        root: The folder on this machine, absolute. Of a lab in a bucket it is scratch: what of it has to last
            is in the bucket (see `mirror`).
        store_url: SQLAlchemy URL of the results store.
        remote: `gs://bucket/folder`, or the like; None where `root` is the lab.
    """

    root: Path
    store_url: str
    remote: str | None = None

    @classmethod
    def find(cls, root: str | Path | None = None, store_url: str | None = None) -> Lab:
        """The lab that the options, else JESTLAB_ROOT and JESTLAB_STORE, else `./lab` name. Makes nothing.

        JESTLAB_STORE_SECRET stands for JESTLAB_STORE where that must not be seen.

        Raises:
            UserError: The folder's path has a sign in it that database URLs give a meaning, the secret cannot
                be had, or a lab in a bucket has no store that all its machines see.
        """
        place = root or os.environ.get("JESTLAB_ROOT") or "lab"
        if "://" in str(place):
            return cls._in_bucket(str(place).rstrip("/"), store_url or secrets.store_url() or "")
        folder = Path(place).expanduser().absolute()
        if odd := {"%", "?"} & set(str(folder)):
            raise UserError(
                f"the lab's folder {folder} has {' and '.join(sorted(odd))} in its path: rename it"
            )
        url = store_url or secrets.store_url() or f"sqlite:///{folder / 'results.db'}"
        return cls(folder, url)

    @classmethod
    def _in_bucket(cls, remote: str, store_url: str) -> Lab:
        if not store_url or store_url.startswith("sqlite"):
            raise UserError(
                f"a lab at {remote} needs its store in PostgreSQL: --store or JESTLAB_STORE; "
                "a SQLite store needs a --root on this machine"
            )
        name = f"{remote.rpartition('/')[2]}-{hashlib.sha256(remote.encode()).hexdigest()[:12]}"
        scratch = os.environ.get(SCRATCH) or Path(tempfile.gettempdir()) / f"jestlab-scratch-{os.geteuid()}"
        return cls(Path(scratch).absolute() / name, store_url, remote)

    @property
    def address(self) -> str:
        """What `--root` says, on any machine."""
        return self.remote or str(self.root)

    def on_this_machine(self, verb: str) -> None:
        """Refuse what only a lab whose folder is on this machine can do.

        Args:
            verb: What is refused.

        Raises:
            UserError: The lab is in a bucket.
        """
        if self.remote is not None:
            raise UserError(f"{verb} needs a lab whose --root is on this machine, not at {self.remote}")

    @property
    def data(self) -> Path:
        """Data made from settings, one folder a dataset, named by content."""
        return self.root / "data"

    @property
    def cache(self) -> Path:
        """Compiled functions and other things that can be made again."""
        return self.root / "cache"

    @property
    def xmanager(self) -> Path:
        """XManager's own records of launches."""
        return self.root / "xmanager"

    @property
    def reports(self) -> Path:
        """Tables and plots, one folder an experiment: here, where the lab is in a bucket."""
        return self.root / "reports" if self.remote is None else Path("lab-reports").absolute()
