"""CSV files that spreadsheets show, and do not execute.

A spreadsheet takes a cell that begins with one of a few characters for a formula, which may call programs or
send what stands in other cells to somebody. Such a text is written behind an apostrophe: spreadsheets take
it for text. Numbers stay numbers.

References:
    OWASP, "CSV Injection".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd

Value = TypeVar("Value")

_FORMULAS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_TEXT = "'"


def csv_cell(value: Value) -> Value | str:
    """Return a value of a cell as CSV should hold it: only texts that could be formulas change."""
    if not isinstance(value, str) or not value.lstrip(_TEXT).startswith(_FORMULAS) or _is_number(value):
        return value
    return _TEXT + value


def from_csv_cell(text: str) -> str:
    """Return the text that `csv_cell` was given."""
    return text[1:] if text.startswith(_TEXT) and text.lstrip(_TEXT).startswith(_FORMULAS) else text


def to_csv(frame: pd.DataFrame) -> str:
    """Write a frame as CSV, without its index; missing values as empty cells."""
    import pandas as pd  # here: cells alone are also written without

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
