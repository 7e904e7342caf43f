"""The report of an experiment: one HTML page, and beside it a folder with its tables and figures as files."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..claims import parts_of
from ..costs import Scope
from ..custom import Loader
from ..figures.plot import Plot
from ..figures.selected import Pictures
from ..files import write_whole
from ..provenance.document import SUFFIX, Sources
from ..results import Snapshot, opens_store
from .contents import Contents, StillPart, gather
from .page import study_page, union_page
from .tables import TablePart
from .union import Section, UnionContents, gather_union

PAGE = "report.html"
FOLDER = "report"
"""Names of the page and of the folder beside it."""

_SPEC = "study.yaml"


@opens_store
def build(
    store: Snapshot,
    experiment: str,
    folder: str | Path,
    baseline: str | None = None,
    scope: Scope | None = None,
    own: Loader | None = None,
    pictures: Pictures | None = None,
) -> list[Path]:
    """Write the report of an experiment; each file is written atomically.

    The report of a union of studies shows them one after the other, without interactive figures.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the experiment.
        folder: Where to write; created if missing. It gets the page, `report.html`, and in `report/` the
            tables (.tex, .csv) and figures, each with a file that says what it was made from. The page holds
            all of these, too, so that it can be mailed by itself.
        baseline: Label or run to compare with; None for that of the study's reports, else its first
            non-reference run.
        scope: What counts as FLOPs; None for that of the study's reports, else scoring. The studies of a
            union set both.
        own: Imports the figures and tables of one's own that specs ask for; None where none may be executed.
        pictures: Reads what runs selected, which no store holds; None where that cannot be read.

    Returns:
        The files, the page first.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If the URL names no results store, there is no such experiment or baseline, or a baseline
            or scope is given for a union.
        OSError: If the folder cannot be written to.
    """
    folder = Path(folder)
    beside = folder / FOLDER
    if parts_of(store, experiment):
        if baseline is not None or scope is not None:
            raise ValueError(
                f"{experiment} is a union, whose studies say what they compare with: give --baseline and "
                "--scope to one of them"
            )
        union = gather_union(store, experiment, own, pictures)
        sources = Sources(store.url, union.history, {})
        made = _table_files(union.tables, sources)

        def image(section: Section, still: StillPart) -> bytes:
            """The PNG of a study's figure, as it is in the study's own folder beside the union's."""
            place = folder.parent / section.name
            return still.plot.png([place, place / FOLDER])

        page = union_page(union, sources, made, image)
    else:
        contents = gather(store, experiment, baseline, scope, own, pictures)
        options = {"baseline": contents.baseline, "scope": contents.scope}
        sources = Sources(store.url, contents.history, options)
        made = _table_files(contents.tables, sources)
        for plot in contents.plots:
            made |= _plot_files(plot, sources, beside, [folder])
        made[_SPEC] = contents.recipe.spec.encode()
        page = study_page(contents, sources, made)
    _clear(beside, set(made))
    written = [write_whole(beside / name, content) for name, content in made.items()]
    return [write_whole(folder / PAGE, page), *written]


def one_file(contents: Contents | UnionContents, sources: Sources, name: str) -> bytes | None:
    """Make one file of those that a report has beside its page; None if it has none of this name.

    Args:
        contents: What the report says.
        sources: What it was made from.
        name: Name of the file, `summary.csv`.
    """
    stem = name.split(".", 1)[0]
    made = _table_files([part for part in contents.tables if part.name == stem], sources)
    if isinstance(contents, Contents):
        made[_SPEC] = contents.recipe.spec.encode()
        with tempfile.TemporaryDirectory() as folder:
            for plot in contents.plots:
                if plot.name == stem:
                    made |= _plot_files(plot, sources, Path(folder), [])
    return made.get(name)


def _table_files(parts: Iterable[TablePart], sources: Sources) -> dict[str, bytes]:
    """Name → content of the files of tables."""
    made: dict[str, bytes] = {}
    for part in parts:
        csv = part.table.csv().encode()
        files = {f"{part.name}.tex": part.table.latex().encode(), f"{part.name}.csv": csv}
        made |= files | {part.name + SUFFIX: sources.document(csv, files).encode()}
    return made


def _plot_files(plot: Plot, sources: Sources, folder: Path, known: Sequence[Path]) -> dict[str, bytes]:
    """Name → content of the files of a figure; one that is in a known folder is not drawn again."""
    data = plot.data.to_csv(index=False, lineterminator="\n").encode()
    files = {path.name: path.read_bytes() for path in plot.save(folder, known)}
    return files | {plot.name + SUFFIX: sources.document(data, files).encode()}


def _clear(beside: Path, kept: set[str]) -> None:
    """Delete what an earlier report left here and this one does not have, as its provenance files name it."""
    for path in beside.glob(f"*{SUFFIX}"):
        if path.name in kept:
            continue
        with contextlib.suppress(ValueError, KeyError, AttributeError):  # another program's file of that name
            named = [Path(name).name for name in json.loads(path.read_text(encoding="utf-8"))["files"]]
            for name in [*named, path.name]:
                if name not in kept:
                    (beside / name).unlink(missing_ok=True)
