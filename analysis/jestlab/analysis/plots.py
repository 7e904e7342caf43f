"""A figure that is drawn only when it would look different from the one on disk."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from .files import write_whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Texts:
    """The words on a figure.

    Attributes:
        title: Above it.
        caption: Below it: what is shown, by what convention.
        x: Of the horizontal axis.
        y: Of the vertical axis.
    """

    title: str
    caption: str
    x: str
    y: str


@dataclass(frozen=True)
class Plot:
    """What is to be drawn, before anything is.

    Attributes:
        name: Of its files.
        data: All that it shows, numbers and looks.
        texts: The words on it.
        draw: Makes the figure from data and texts, and from nothing else. matplotlib is imported here first.
    """

    name: str
    data: pd.DataFrame
    texts: Texts
    draw: Callable[[pd.DataFrame, Texts], Figure]

    def figure(self) -> Figure:
        """Draw it."""
        from . import style

        with style.applied():
            return self.draw(self.data, self.texts)

    def digest(self) -> str:
        """Hexadecimal SHA-256 of all that decides its looks: data, words, drawing code, matplotlib."""
        content = hashlib.sha256(f"{self.name}\n{self.texts}\nmatplotlib {version('matplotlib')}\n".encode())
        content.update(self.data.to_csv().encode())
        for module in sorted(Path(__file__).parent.rglob("*.py")):
            content.update(module.read_bytes())
        return content.hexdigest()

    def save(self, folder: str | Path) -> list[Path]:
        """Write it as PNG, SVG and PDF, each whole or not at all; what shows the same already is left alone.

        A file carries the digest it was drawn from in its metadata. The same data gives the same bytes.

        Args:
            folder: Where to; made if it is not there.

        Returns:
            The paths of the three files.
        """
        folder = Path(folder)
        paths = [folder / f"{self.name}{suffix}" for suffix in SUFFIXES]
        digest = self._mark()
        if all(path.is_file() and digest.encode() in path.read_bytes() for path in paths):
            return paths
        from . import style

        contents = []
        with style.applied():
            figure = self.draw(self.data, self.texts)
            for path in paths:
                content = io.BytesIO()
                figure.savefig(content, format=path.suffix[1:], metadata=_metadata(path.suffix, digest))
                contents.append(content.getvalue())
        return [write_whole(path, drawn) for path, drawn in zip(paths, contents, strict=True)]

    def png(self, folders: Sequence[str | Path] = ()) -> bytes:
        """It as a PNG.

        Args:
            folders: Where it may lie already: what shows the same there is taken as it is.
        """
        mark = self._mark()
        for folder in folders:
            path = Path(folder) / f"{self.name}.png"
            if path.is_file() and mark.encode() in (known := path.read_bytes()):
                return known
        from . import style

        content = io.BytesIO()
        with style.applied():
            figure = self.draw(self.data, self.texts)
            figure.savefig(content, format="png", metadata=_metadata(".png", mark))
        return content.getvalue()

    def _mark(self) -> str:
        """What its files carry: the digest that they were drawn from."""
        return f"jestlab:{self.digest()}"


def _metadata(suffix: str, digest: str) -> dict[str, str | None]:
    """What a file of a kind says of itself. A date would make two drawings of the same data differ."""
    if suffix == ".pdf":
        return {"Keywords": digest, "CreationDate": None}
    return {"Description": digest} | ({"Date": None} if suffix == ".svg" else {})
