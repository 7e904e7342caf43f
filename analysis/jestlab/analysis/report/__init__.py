"""The report of an experiment: one HTML page, and a folder with its tables and figures as files."""

import hashlib
import json
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from urllib.parse import quote

from ..files import write_whole
from ..tables.core import Record
from .contents import gather as gather
from .contents import read_answer as read_answer
from .html import PROVENANCE, document, provenance
from .page import FigurePart, ReportPage

PAGE = "report.html"
FOLDER = "report"
"""Names of the page, and of the folder next to it."""

_SUFFIX = ".provenance.json"
_SPEC = "study.yaml"


def build(page: ReportPage, folder: str | Path) -> list[Path]:
    """Write the report of an experiment; each file is written atomically.

    Args:
        page: The contents, from `gather`.
        folder: Where to write; created if missing. The page is `report.html`. The folder `report/` has the
            tables (.tex, .csv, .md) and figures, each with a file about its provenance. The page contains
            all of these, so that it can be mailed by itself.

    Returns:
        The files, the page first.

    Raises:
        OSError: The folder can't be written to.
    """
    folder = Path(folder)
    files = _files(page, [folder / FOLDER, folder])

    def image(part: FigurePart) -> bytes:
        """Return the PNG of a figure; a figure of a union's study may be in the folder of the study."""
        of_study = folder.parent / part.study
        return files.get(f"{part.plot.name}.png") or part.plot.png([of_study, of_study / FOLDER])

    def log(row: Record) -> str:
        """Return the path of a log relative to the page, which is in `reports/NAME` of a lab by default."""
        name = row["log"] if isinstance(row["log"], str) else ""  # NaN without a log
        return f"../../{quote(name)}" if (folder.parent.parent / name).is_file() else ""

    html = document(page, files, image, log)
    for path in (folder / FOLDER).glob(f"*{_SUFFIX}"):  # files of earlier reports
        if path.name not in files:
            for stale in path.parent.glob(f"{escape(path.name.removesuffix(_SUFFIX))}.*"):
                stale.unlink()
    written = [write_whole(folder / FOLDER / name, content) for name, content in files.items()]
    return [write_whole(folder / PAGE, html), *written]


def one_file(page: ReportPage, name: str) -> bytes | None:
    """Return the content of one file of a report, such as `summary.csv`; None for an unknown file."""
    if name == PROVENANCE:
        return provenance(page)
    return _files(page, [], name.split(".", 1)[0]).get(name)


def _files(page: ReportPage, folders: Sequence[Path], only: str | None = None) -> dict[str, bytes]:
    """Return the files of a report, or those with the stem `only`: name → content.

    Figures are drawn unless one of the folders has them, up to date, from an earlier report.
    """
    files: dict[str, bytes] = {}

    def add(name: str, data: str, own: dict[str, bytes]) -> None:
        """Add the files of a table or figure, which show `data`, and a file about their provenance."""
        about = {
            "files": {name: {"sha256": _sha256(content)} for name, content in sorted(own.items())},
            "data_sha256": _sha256(data.encode()),
            **page.sources,
        }
        files.update(own | {name + _SUFFIX: f"{json.dumps(about, indent=2, ensure_ascii=False)}\n".encode()})

    for part in page.tables:
        if only in (None, part.name):
            table, csv = part.table, part.table.csv()
            texts = {"tex": table.latex(), "csv": csv, "md": table.markdown()}
            add(part.name, csv, {f"{part.name}.{form}": text.encode() for form, text in texts.items()})
    # The figures of a union are in the reports of its studies.
    for plot in [] if page.is_union else [plot for part in page.figures for plot in part.plots]:
        if only in (None, plot.name):
            data = plot.data.to_csv(index=False, lineterminator="\n")
            add(plot.name, data, plot.files(folders))
    recipe = page.sections[-1].recipe  # a union has none
    return files | ({_SPEC: recipe.spec.encode()} if recipe else {})


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
