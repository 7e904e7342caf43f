"""One lab: the folder that holds everything a user's experiments write, and the address of its store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from jestlab.platform import secrets
from jestlab.platform.errors import UserError


@dataclass(frozen=True)
class Lab:
    """Where a lab keeps its things.

    Attributes:
        root: The folder, absolute.
        store_url: SQLAlchemy URL of the results store.
    """

    root: Path
    store_url: str

    @classmethod
    def find(cls, root: str | Path | None = None, store_url: str | None = None) -> Lab:
        """The lab that the options, else JESTLAB_ROOT and JESTLAB_STORE, else `./lab` name. Makes nothing.

        JESTLAB_STORE_SECRET stands for JESTLAB_STORE where that must not be seen.

        Raises:
            UserError: The folder's path has a sign in it that database URLs give a meaning, or the secret
                cannot be had.
        """
        folder = Path(root or os.environ.get("JESTLAB_ROOT") or "lab").expanduser().absolute()
        if odd := {"%", "?"} & set(str(folder)):
            raise UserError(
                f"the lab's folder {folder} has {' and '.join(sorted(odd))} in its path: rename it"
            )
        url = store_url or secrets.store_url() or f"sqlite:///{folder / 'results.db'}"
        return cls(folder, url)

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
        """Tables and plots, one folder an experiment."""
        return self.root / "reports"
