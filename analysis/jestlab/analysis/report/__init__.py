"""The report of an experiment: one HTML page, and a folder with its tables and figures as files."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..claims import parts_of
from ..costs import Scope
from ..custom import Loader
from ..errors import RequestError
from ..figures.selected import Pictures
from ..files import write_whole
from ..provenance.document import SUFFIX, Sources
from ..results import Snapshot, opens_store
from .html import PROVENANCE, document, provenance
from .page import PicturePart, ReportPage
from .study import study_page
from .union import union_page

PAGE = "report.html"
FOLDER = "report"
"""Names of the page, and of the folder next to it."""

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
        folder: Where to write; created if missing. The page is `report.html`. The folder `report/` has the
            tables (.tex, .csv) and figures, each with a file about its provenance. The page contains all of
            these, so that it can be mailed by itself.
        baseline: Label or run to compare with; None for that of the study's reports, or else its first
            non-reference run.
        scope: What counts as FLOPs; None for that of the study's reports, or else scoring. The studies of a
            union set both.
        own: Imports custom figures and tables that specs ask for; None if none may be executed.
        pictures: Reads the selected examples of runs; None if they can't be read.

    Returns:
        The files, the page first.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The URL doesn't name a results store, the experiment or the baseline doesn't exist, or a
            baseline or scope is given for a union.
        OSError: The folder can't be written to.
    """
    folder = Path(folder)
    page = gather(store, experiment, baseline, scope, own, pictures)
    sources = Sources(store.url, page.history, page.options)
    made = _files(page, sources, folder / FOLDER, [folder])

    def image(part: PicturePart) -> bytes:
        """Return the PNG of a figure; a figure of a union's study may be in the folder of the study."""
        of_study = folder.parent / part.study
        return made.get(f"{part.plot.name}.png") or part.plot.png([of_study, of_study / FOLDER])

    html = document(page, sources, made, image)
    _clear(folder / FOLDER, set(made))
    written = [write_whole(folder / FOLDER / name, content) for name, content in made.items()]
    return [write_whole(folder / PAGE, html), *written]


@opens_store
def gather(
    store: Snapshot,
    experiment: str,
    baseline: str | None = None,
    scope: Scope | None = None,
    own: Loader | None = None,
    pictures: Pictures | None = None,
) -> ReportPage:
    """Collect the contents of an experiment's page from one moment of the store; see `build`."""
    if not parts_of(store, experiment):
        return study_page(store, experiment, baseline, scope, own, pictures)
    if baseline is not None or scope is not None:
        raise RequestError(
            f"{experiment} is a union: give --baseline and --scope to one of its studies, which set both"
        )
    return union_page(store, experiment, own, pictures)


def one_file(page: ReportPage, sources: Sources, name: str) -> bytes | None:
    """Make one file of a report, such as `summary.csv`; None if the report has no such file."""
    if name == PROVENANCE:
        return provenance(page)
    with tempfile.TemporaryDirectory() as folder:
        return _files(page, sources, Path(folder), [], name.split(".", 1)[0]).get(name)


def _files(
    page: ReportPage, sources: Sources, folder: Path, known: Sequence[Path], only: str | None = None
) -> dict[str, bytes]:
    """Make the files of a report, or those with the stem `only`.

    Args:
        page: The contents.
        sources: The sources of the numbers.
        folder: Where figures are drawn.
        known: Folders that may have figures of an earlier report: equal ones are not drawn again.
        only: Stem of the names of the files; None for all.

    Returns:
        Name → content.
    """
    made: dict[str, bytes] = {}

    def add(name: str, data: bytes, files: dict[str, bytes]) -> None:
        made.update(files | {name + SUFFIX: sources.document(data, files).encode()})

    for part in page.tables:
        if only in (None, part.name):
            csv = part.table.csv().encode()
            add(part.name, csv, {f"{part.name}.tex": part.table.latex().encode(), f"{part.name}.csv": csv})
    for plot in [] if page.is_union else page.plots:  # the figures of a union are files of its studies
        if only in (None, plot.name):
            data = plot.data.to_csv(index=False, lineterminator="\n").encode()
            add(plot.name, data, {path.name: path.read_bytes() for path in plot.save(folder, known)})
    return made | ({_SPEC: page.recipe.spec.encode()} if page.recipe else {})


def _clear(beside: Path, kept: set[str]) -> None:
    """Delete files of earlier reports that this one doesn't have, which their provenance files name."""
    for path in beside.glob(f"*{SUFFIX}"):
        if path.name in kept:
            continue
        with contextlib.suppress(ValueError, KeyError, AttributeError):  # another program's file of that name
            named = [Path(name).name for name in json.loads(path.read_text(encoding="utf-8"))["files"]]
            for name in [*named, path.name]:
                if name not in kept:
                    (beside / name).unlink(missing_ok=True)
