"""What attempts record in addition to code and machine. Not part of a run's identity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from jestlab.platform.spec.tree import listed

_Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(listed)]


class Record(BaseModel):
    """Additional data that a study records about each attempt.

    Attributes:
        packages: Installed packages whose versions may matter, in addition to JAX and NumPy.
        files: Files and folders that custom programs read; their content is digested when an attempt starts.
            Relative paths start at the folder of the spec.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    packages: _Texts = ()
    files: _Texts = ()

    def anchored(self, folder: Path) -> Record:
        """Return a copy with absolute paths."""
        files = tuple(str(folder / Path(file).expanduser()) for file in self.files)
        return self.model_copy(update={"files": files})

    def named_files(self) -> dict[str, Path]:
        """Return the files by the shortest names that differ."""
        paths = [Path(file) for file in self.files]
        names = [path.name for path in paths]
        return {
            name if name and names.count(name) == 1 else str(path): path
            for name, path in zip(names, paths, strict=True)
        }
