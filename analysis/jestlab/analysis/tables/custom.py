"""Custom tables: a function returns a pandas frame or a `Table`."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..custom import CodeFailed, CustomCode, Results, stem_of
from ..errors import RequestError
from ..metrics import Metric
from ..units import nearest, significant
from . import show
from .core import Column, Record, Table

if TYPE_CHECKING:
    import pandas as pd

_ATTRS = ("caption", "notes", "columns")
_RESERVED = ("row", "apart", "section")
"""Columns of `Table.frame` with a meaning."""


def custom_table(code: CustomCode, results: Results, options: Mapping[str, Any]) -> Table:
    """Make a custom table.

    Args:
        code: `f(results, **options)`, which returns a pandas frame. The index names the rows, or the first
            column if the index only counts. `frame.attrs` may have `caption`, `notes`, and `columns`: for a
            column its goal ("max" or "min": the best is bold), unit, digits, and name, like a spec's
            `metrics`; a column of an evaluation has those of the evaluation. A row with the name of a label
            is based on the label's runs; a reference does not compete. A `Table` is used unchanged.
        results: The first argument of the function.
        options: Its other arguments.

    Raises:
        NotYet: The experiment lacks results that the function requests.
        CodeFailed: The function fails, or returns no such frame.
    """
    import pandas as pd

    made = code(results, options)
    name = f"{results.experiment} {stem_of(code.name)}"
    if isinstance(made, Table):
        return replace(made, name=name)
    if not isinstance(made, pd.DataFrame):
        raise CodeFailed(
            f"{code.name} returned {type(made).__name__}: expected a pandas DataFrame, or a Table"
        )
    try:
        return _table(name, made, results, code)
    except OverflowError:
        raise CodeFailed(f"the frame that {code.name} returned has a number of more than 1.8e308") from None
    except RequestError as error:
        raise CodeFailed(f"the frame that {code.name} returned {error}") from None


def _table(name: str, made: pd.DataFrame, results: Results, code: CustomCode) -> Table:
    """Make a table from a frame; the message of a ValueError continues "the frame ..."."""
    frame = _plain_frame(made)
    if "apart" not in frame:
        frame["apart"] = frame["row"].isin(results.references)
    frame["apart"] = frame["apart"].astype(bool)
    first, *keys = (str(key) for key in frame.columns if key not in _RESERVED)
    declared = _declared(made.attrs, [first, *keys])
    evaluated = [key for key in keys if key in results.frames.evaluated]
    headers = show.metric_headers(evaluated, results.frames.declared)
    formula = f"computed by {code.name}" + (f", code {code.digest[:8]}" if code.digest else "")
    columns = [Column(first, first, lambda row: str(row["row"]), align="left")]
    for key in keys:
        own = declared.get(key, {})
        metric = replace(results.metric(key) if key in evaluated else Metric(), **own)
        header = show.heading(metric.name or key, metric) if own or key not in headers else headers[key]
        is_formatted = key in evaluated or not {"unit", "digits"}.isdisjoint(own)
        columns.append(
            replace(_column(key, frame[key], metric, is_formatted), header=header, formula=formula)
        )
    runs = results.runs
    runs = runs[runs["label"].isin(frame["row"]) & (runs["state"] == "COMPLETED")].reset_index(drop=True)
    parts = runs[["label", "seed", "fingerprint"]].assign(row=runs["label"], experiment=results.experiment)
    notes = made.attrs.get("notes", ())
    notes = tuple(map(str, notes)) if isinstance(notes, list | tuple) else (str(notes),)
    return Table(name, str(made.attrs.get("caption", "")), frame, tuple(columns), notes, parts=parts)


def _plain_frame(made: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of plain values, with the names of the rows in the columns `row` and the first other."""
    import pandas as pd

    if made.columns.nlevels > 1 or made.index.nlevels > 1:
        raise RequestError("has several levels: expected one, so flatten its columns, or reset its index")
    if made.empty:
        raise RequestError("has no rows")
    if made.index.name is not None or not isinstance(made.index, pd.RangeIndex):
        made = made.reset_index(names=str(made.index.name or "name"))
    names = ["name" if name == "row" else str(name) for name in made.columns]
    if len(set(names)) < len(names):
        raise RequestError(f"has several columns of one name: {', '.join(names)}")
    values = {name: [_plain(value) for value in made.iloc[:, i]] for i, name in enumerate(names)}
    rows = [str(value) for value in made.iloc[:, 0]]
    if twice := next((row for row in rows if rows.count(row) > 1), None):
        raise RequestError(f"has two rows called {twice!r}: expected names in its index, or its first column")
    return pd.DataFrame({"row": rows, **values}, dtype=object)


def _declared(attrs: Mapping[Any, Any], columns: list[str]) -> dict[str, dict[str, Any]]:
    """Check the attributes of a frame, and return the declaration of each column."""
    for key in attrs:
        if key not in _ATTRS:
            raise RequestError(f"has attrs[{key!r}]: {nearest(str(key), _ATTRS)}")
    declared = attrs.get("columns", {})
    if not isinstance(declared, Mapping):
        kind = type(declared).__name__
        raise RequestError(f"has attrs['columns'] of {kind}: expected a mapping from columns")
    for column, words in declared.items():
        if column not in columns:
            raise RequestError(f"has no column {column!r}, which its attrs name: {nearest(column, columns)}")
        try:
            Metric(**{"goal": "max", **words})
        except ValidationError as error:
            wrong = error.errors()[0]
            raise RequestError(f"says of column {column!r}, {wrong['loc'][0]}: {wrong['msg']}") from None
        except TypeError as error:
            raise RequestError(f"says of column {column!r}, {error}") from None
    return {column: dict(words) for column, words in declared.items()}


def _column(key: str, values: pd.Series[Any], metric: Metric, is_formatted: bool) -> Column:
    """Make a column: numbers are right-aligned; everything else is text."""
    is_number = not any(isinstance(value, bool | str) for value in values)

    def text(row: Record) -> str:
        value = row[key]
        if value is None or isinstance(value, bool | str):
            return show.MISSING if value is None else str(value)
        if is_formatted:
            return metric.text(value)
        return (f"{value:,}" if isinstance(value, int) else significant(value, 4)).replace("-", "−")

    def rank(row: Record) -> float:
        return math.nan if row[key] is None else metric.rank(float(row[key]))

    is_ranked = is_number and metric.goal is not None
    return Column(key, key, text, rank if is_ranked else None, align="right" if is_number else "left")


def _plain(value: Any) -> bool | int | float | str | None:
    """Return a value as JSON has it; OverflowError if a number is too large."""
    import numpy as np
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral) and math.isfinite(value):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else str(value)
