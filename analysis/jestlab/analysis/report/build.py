"""Building the report of an experiment: a page, and beside it a folder of its tables and figures."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..claims import is_union
from ..files import write_whole
from .contents import Contents, gather
from .page import page
from .sources import SUFFIX, Sources
from .union import gather_union
from .union_page import union_page

if TYPE_CHECKING:
    from ..costs import Scope
    from ..plots import Plot
    from .parts import StillPart, TablePart
    from .union import Section

PAGE = "report.html"
FOLDER = "report"
"""Names of the page and of the folder beside it."""


def build(
    url: str,
    experiment: str,
    folder: str | Path,
    baseline: str | None = None,
    scope: Scope | None = None,
) -> list[Path]:
    """Write the report of an experiment; every file appears whole or not at all.

    That of a union of studies shows them one after the other, without interactive figures.

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.
        folder: Where to; made if it is not there. The page is `report.html` there. Its tables (.tex, .csv)
            and figures lie in `report/`, with a file for each that says what it was made from.
        baseline: Label or run to compare with; None as the study's reports say, else the first run that is no
            reference.
        scope: What counts as FLOPs; None as the study's reports say, else scoring. In a union its studies say
            both.

    Returns:
        The files, the page first.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If what is there is no results store, it does not know the experiment, or it has no such
            baseline; or a union is told what only its studies have.
        OSError: If the folder cannot be written to.
    """
    if is_union(url, experiment):
        if baseline is not None or scope is not None:
            raise ValueError(f"the studies of {experiment} say what they compare with: give one of them")
        return _build_union(url, experiment, Path(folder))
    contents = gather(url, experiment, baseline, scope)
    sources = Sources.of(url, contents.history, {"baseline": contents.baseline, "scope": contents.scope})
    folder = Path(folder)
    beside = folder / FOLDER
    beside.mkdir(parents=True, exist_ok=True)
    made = _files(contents, sources, beside)
    _clear(beside, set(made))
    written = [write_whole(beside / name, content) for name, content in made.items()]
    images = {still.plot.name: made[f"{still.plot.name}.png"] for still in contents.stills}
    text = page(contents, sources, FOLDER, images)
    return [write_whole(folder / PAGE, text), *written]


def _build_union(url: str, experiment: str, folder: Path) -> list[Path]:
    """The page of a union, and its tables beside it; its figures are those of its studies."""
    contents = gather_union(url, experiment)
    sources = Sources.of(url, contents.history, {})
    beside = folder / FOLDER
    beside.mkdir(parents=True, exist_ok=True)
    made = _table_files(contents.tables, sources)
    _clear(beside, set(made))
    written = [write_whole(beside / name, content) for name, content in made.items()]

    def image(section: Section, still: StillPart) -> bytes:
        own = folder.parent / section.name
        return still.plot.png([own, own / FOLDER])

    def own_page(section: Section) -> str:
        there = (folder.parent / section.name / PAGE).is_file()
        return f"../{quote(section.name)}/{PAGE}" if there else ""

    text = union_page(contents, sources, FOLDER, image, own_page)
    return [write_whole(folder / PAGE, text), *written]


def _table_files(parts: Iterable[TablePart], sources: Sources) -> dict[str, bytes]:
    """Name → content of the files of tables."""
    made: dict[str, bytes] = {}
    for part in parts:
        csv = part.table.csv().encode()
        files = {f"{part.name}.tex": part.table.latex().encode(), f"{part.name}.csv": csv}
        made |= files | {part.name + SUFFIX: sources.document(csv, files).encode()}
    return made


def _files(contents: Contents, sources: Sources, beside: Path) -> dict[str, bytes]:
    """Name → content of every file beside the page."""
    made = _table_files(contents.tables, sources)
    for plot in contents.plots:
        data = plot.data.to_csv(index=False, lineterminator="\n").encode()
        files = _drawn(plot, beside)
        made |= files | {plot.name + SUFFIX: sources.document(data, files).encode()}
    made["study.yaml"] = contents.recipe.spec.encode()
    return made


def _drawn(plot: Plot, beside: Path) -> dict[str, bytes]:
    """A figure's files; taken from disk where they show the same already, since drawing is slow."""
    paths = plot.save(beside)
    return {path.name: path.read_bytes() for path in paths}


def _clear(beside: Path, kept: set[str]) -> None:
    """Take away what an earlier report left here and this one has not: its own provenance files name it."""
    for path in beside.glob(f"*{SUFFIX}"):
        if path.name in kept:
            continue
        with contextlib.suppress(ValueError, KeyError, AttributeError):  # somebody else's file, of that name
            named = [Path(name).name for name in json.loads(path.read_text(encoding="utf-8"))["files"]]
            for name in [*named, path.name]:
                if name not in kept:
                    (beside / name).unlink(missing_ok=True)
