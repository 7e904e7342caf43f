"""Write files atomically, and CSV that spreadsheets display without evaluating formulas.

A spreadsheet evaluates a cell that starts with certain characters as a formula, which can execute programs
or send the content of other cells to a server. An apostrophe before the text prevents that (OWASP, "CSV
Injection"). Numbers stay unchanged.
"""

from __future__ import annotations

import contextlib
import csv
import io
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import pandas as pd

Format = Literal["md", "latex", "csv", "html", "json"]
"""Formats in which tables are written."""

FORMATS: tuple[Format, ...] = get_args(Format)


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file atomically, and return its path. Readers see the old or the new content, never a part.

    A missing folder is created. `jestlab.models.data.files`, which analysis can't import, does the same.

    Raises:
        OSError: The file can't be written; the old file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is known before the file exists, so that an interrupt at any time leaves no file behind.
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with partial.open("xb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return path


_FORMULAS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def csv_cell(value: Any) -> Any:
    """Return the value of a cell, with an apostrophe before a text that could be a formula."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(_FORMULAS) or _is_number(value):
        return value
    return "'" + value


def from_csv_cell(text: str) -> str:
    """Undo `csv_cell`: return the original text."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(_FORMULAS) else text


def rows_to_csv(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write rows as CSV; None becomes an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(csv_cell, row) for row in (headers, *rows))
    return text.getvalue()


def to_csv(frame: pd.DataFrame) -> str:
    """Write a frame as CSV, without its index; missing values become empty cells."""
    safe = frame.rename(columns=csv_cell).astype(object).map(csv_cell, na_action="ignore")
    return str(safe.to_csv(index=False, lineterminator="\n"))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not text[:1].isspace()
