"""CSV files that spreadsheets display without evaluating formulas.

A spreadsheet evaluates a cell that starts with certain characters as a formula, which can execute programs
or send the content of other cells to a server. An apostrophe before the text prevents that. Numbers stay
unchanged.

References:
    OWASP, "CSV Injection".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd

Value = TypeVar("Value")

_FORMULAS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def csv_cell(value: Value) -> Value | str:
    """Return the value of a cell, with an apostrophe before a text that could be a formula."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(_FORMULAS) or _is_number(value):
        return value
    return "'" + value


def from_csv_cell(text: str) -> str:
    """Return the text that `csv_cell` was given."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(_FORMULAS) else text


def to_csv(frame: pd.DataFrame) -> str:
    """Write a frame as CSV, without its index; missing values become empty cells."""
    import pandas as pd

    safe: Any = frame.rename(columns=csv_cell)
    for place, kind in enumerate(frame.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(place, frame.iloc[:, place].map(csv_cell, na_action="ignore"))
    return str(safe.to_csv(index=False, lineterminator="\n"))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not text[:1].isspace()
