"""What attempts record besides code and machine, as a study's `record` says; no part of a run's identity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from jestlab.platform.spec.config_tree import listed

_Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(listed)]


class Record(BaseModel):
    """What a study wants to have recorded of each attempt.

    Attributes:
        packages: Installed packages whose versions may matter, beside JAX and NumPy.
        files: Files and folders that programs of one's own read: their content is digested when an attempt
            starts. Paths count as all paths of the spec do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    packages: _Texts = ()
    files: _Texts = ()

    def anchored(self, folder: Path) -> Record:
        """Return it with absolute paths."""
        return self.model_copy(
            update={"files": tuple(str(folder / Path(file).expanduser()) for file in self.files)}
        )

    def named_files(self) -> dict[str, Path]:
        """Return the files by the names that they are recorded under: the shortest that differ."""
        paths = [Path(file) for file in self.files]
        names = [path.name for path in paths]
        return {
            name if name and names.count(name) == 1 else str(path): path
            for name, path in zip(names, paths, strict=True)
        }
