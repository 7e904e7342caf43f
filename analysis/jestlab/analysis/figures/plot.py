"""A figure before it is drawn: its data, its texts, and how to draw and save it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import write_whole
from .style import applied

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Texts:
    """The words on a figure.

    Attributes:
        title: Above the figure.
        caption: Below the figure: what is shown, and by what convention.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
    """

    title: str
    caption: str
    x: str
    y: str


@dataclass(frozen=True)
class Plot:
    """Everything a figure shows, as plain data.

    Attributes:
        name: Stem of the figure's file names.
        data: All that the figure shows: numbers and looks.
        texts: The words on it.
        draw: Draws the printed figure from data and texts alone, and is the first to import matplotlib.
    """

    name: str
    data: pd.DataFrame
    texts: Texts
    draw: Callable[[pd.DataFrame, Texts], Figure]

    def figure(self) -> Figure:
        """Draw the figure with matplotlib."""
        with applied():
            return self.draw(self.data, self.texts)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the figure as PNG, SVG and PDF, each atomically; files that are up to date stay untouched.

        Each file carries in its metadata the digest it was drawn from. The same data gives the same bytes.

        Args:
            folder: Where to write; created if missing.

        Returns:
            The paths of the three files.

        Raises:
            OSError: A file cannot be written.
        """
        paths = [Path(folder) / f"{self.name}{suffix}" for suffix in SUFFIXES]
        if all(self._current(path) is not None for path in paths):
            return paths
        contents = self._drawn(SUFFIXES)
        return [write_whole(path, drawn) for path, drawn in zip(paths, contents, strict=True)]

    def png(self, folders: Sequence[str | Path] = ()) -> bytes:
        """Render the figure to PNG bytes.

        Args:
            folders: Where an up-to-date file may exist already, which is then returned as it is.
        """
        for folder in folders:
            found = self._current(Path(folder) / f"{self.name}.png")
            if found is not None:
                return found
        return self._drawn([".png"])[0]

    def _current(self, path: Path) -> bytes | None:
        """Content of a file that shows this figure; None if there is none, or it shows another."""
        content = path.read_bytes() if path.is_file() else b""
        return content if self._mark.encode() in content else None

    def _drawn(self, suffixes: Sequence[str]) -> list[bytes]:
        """The figure, drawn once, in each of the formats."""
        contents = []
        with applied():
            figure = self.draw(self.data, self.texts)
            for suffix in suffixes:
                content = io.BytesIO()
                figure.savefig(content, format=suffix[1:], metadata=_metadata(suffix, self._mark))
                contents.append(content.getvalue())
        return contents

    @cached_property
    def _mark(self) -> str:
        """What the metadata of the files says: a digest of data, texts and code, which decide their looks."""
        content = hashlib.sha256(f"{self.name}\n{self.texts}\n{_code()}\n".encode())
        content.update(self.data.to_csv().encode())
        return f"jestlab:{content.hexdigest()}"


@cache
def _code() -> str:
    """Digest of our code and the version of matplotlib, taken once in a process."""
    content = hashlib.sha256(f"matplotlib {version('matplotlib')}\n".encode())
    for module in sorted(Path(__file__).parents[1].rglob("*.py")):
        content.update(module.read_bytes())
    return content.hexdigest()


def _metadata(suffix: str, mark: str) -> dict[str, str | None]:
    """Metadata of a file. Without a date, since two drawings of the same data must not differ."""
    if suffix == ".pdf":
        return {"Keywords": mark, "CreationDate": None}
    return {"Description": mark} | ({"Date": None} if suffix == ".svg" else {})
