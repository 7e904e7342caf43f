"""What lies at the paths that configs name, as far as planning looks into it."""

from __future__ import annotations

from pathlib import Path


class Contents:
    """Digests of folders, each read once, and a note of what is not there. For one plan: folders change.

    Attributes:
        absent: What was looked for and is not there → what it would be, such as "folder".
    """

    def __init__(self, note_absent: bool = False) -> None:
        """Begin.

        Args:
            note_absent: Whether what is missing is noted and left, and no error.
        """
        self._note_absent = note_absent
        self.absent: dict[Path, str] = {}
        self._digests: dict[Path, str] = {}

    def passes_over(self, path: Path, what: str) -> bool:
        """Whether nothing lies at a path and nobody minds for now, so that the path itself identifies.

        Args:
            path: Of a file or folder.
            what: Would be there.
        """
        if not self._note_absent or path.exists():
            return False
        self.absent[path] = what
        return True

    def digest(self, folder: Path) -> str:
        """The content digest of a data folder.

        Raises:
            ValueError: It holds no shards.
        """
        if folder not in self._digests:
            from jestlab.models.data import datasets

            self._digests[folder] = datasets.digest(folder)
        return self._digests[folder]
