"""Tables of one's own: what a function returns, a pandas frame or a `Table`, as a table like any other."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import units
from ..custom import CodeFailed, CustomCode, Results, stem_of
from ..metrics import Metric, MetricError
from . import show
from .core import Column, Record, Table

if TYPE_CHECKING:
    import pandas as pd

_ATTRS = ("caption", "notes", "columns")
_RESERVED = ("row", "apart", "ours", "section")
"""Columns of `Table.frame` that have a meaning of their own."""


def own_table(code: CustomCode, results: Results, options: Mapping[str, Any]) -> Table:
    """Make a table of one's own.

    Args:
        code: `f(results, **options)`, which returns a pandas frame, one row a line. The index names the rows,
            or the first column where the index only counts them. `frame.attrs` may say `caption`, `notes` and
            `columns`: for a column its goal ("max" or "min": the best is bold), unit, digits and name, in the
            words of a spec's `metrics`; evaluations that are columns have theirs. A row that is named like a
            label of the study rests on its runs; that of a reference does not compete. A `Table` is taken as
            it is.
        results: What it gets.
        options: Its further arguments.

    Raises:
        NotYet: The experiment lacks results that it asks for.
        CodeFailed: It fails, or returns no such frame.
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
    except ValueError as error:
        raise CodeFailed(f"the frame that {code.name} returned {error}") from None


def _table(name: str, made: pd.DataFrame, results: Results, code: CustomCode) -> Table:
    """Make a table of a frame; ValueError, which goes on after "the frame", if that is not one of rows."""
    frame, first = _with_rows(made, results.references)
    caption, notes, said = _attrs(made.attrs, [str(name) for name in frame.columns])
    evaluated = [name for name in frame.columns if name in results.frames.evaluated]
    headers = show.metric_headers(evaluated, results.frames.declared)
    formula = f"computed by {code.name}" + (f", code {code.digest[:8]}" if code.digest else "")
    columns = [Column(first, first, lambda row: str(row["row"]), align="left")]
    for key in frame.columns:
        if key in (*_RESERVED, first):
            continue
        own = said.get(key, {})
        metric = replace(results.metric(key), **own) if key in evaluated else Metric(**own)
        known = key in evaluated or bool({"unit", "digits"} & own.keys())
        header = headers[key] if key in headers and not own else show.heading(metric.name or key, metric)
        columns.append(_column(key, header, metric, known, frame[key], formula))
    return Table(name, caption, frame, tuple(columns), notes, parts=_parts(results, list(frame["row"])))


def _with_rows(made: pd.DataFrame, apart: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Return a frame with the columns `row`, which names its rows, and `apart`; and the heading of the names.

    Args:
        made: As it was returned.
        apart: Rows that do not compete, where its own column `apart` does not say.
    """
    import pandas as pd

    if made.columns.nlevels > 1 or made.index.nlevels > 1:
        raise ValueError("has several levels: expected one, so flatten its columns, or reset its index")
    if made.empty:
        raise ValueError("has no rows")
    if isinstance(made.index, pd.RangeIndex) and made.index.name is None:
        first = str(made.columns[0])
        frame = made.copy()
    else:
        first = str(made.index.name or "name")
        frame = made.reset_index(names=first)
    frame = frame.rename(columns=str)
    first, frame = ("name", frame.rename(columns={"row": "name"})) if first == "row" else (first, frame)
    if not frame.columns.is_unique or "row" in frame.columns:
        raise ValueError(f"has several columns of one name, or one called row: {', '.join(frame.columns)}")
    rows = [str(value) for value in frame[first]]
    if twice := next((row for row in rows if rows.count(row) > 1), None):
        raise ValueError(f"has two rows called {twice!r}: expected names in its index, or its first column")
    for name in frame.columns:
        frame[name] = pd.Series([_plain(value) for value in frame[name]], frame.index, dtype=object)
    frame.insert(0, "row", rows)
    frame["apart"] = frame["apart"].astype(bool) if "apart" in frame else frame["row"].isin(apart)
    return frame, first


def _attrs(attrs: Mapping[Any, Any], columns: Sequence[str]) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """Return caption, notes, and what is said of columns."""
    for key in attrs:
        if key not in _ATTRS:
            raise ValueError(f"has attrs[{key!r}]: {units.nearest(str(key), _ATTRS)}")
    notes = attrs.get("notes", ())
    notes = tuple(map(str, notes)) if isinstance(notes, list | tuple) else (str(notes),)
    declared = attrs.get("columns", {})
    if not isinstance(declared, Mapping):
        raise ValueError(
            f"has attrs['columns'] of {type(declared).__name__}: expected a mapping from columns"
        )
    said: dict[str, Any] = {}
    for column, words in declared.items():
        if column not in columns:
            raise ValueError(
                f"has no column {column!r}, which its attrs name: {units.nearest(column, columns)}"
            )
        try:
            Metric.parse({"goal": "max", **words})
        except (MetricError, TypeError) as error:
            raise ValueError(f"says of column {column!r}, {error}") from None
        said[column] = dict(words)
    return str(attrs.get("caption", "")), notes, said


def _column(
    key: str, header: str, metric: Metric, known: bool, values: pd.Series[Any], formula: str
) -> Column:
    """Make a column: numbers aligned at the right, everything else as text."""
    is_number = all(_is_number(value) or _is_missing(value) for value in values)

    def text(row: Record) -> str:
        value = row[key]
        if _is_missing(value):
            return show.MISSING
        if not _is_number(value):
            return str(value)
        if isinstance(value, numbers.Integral) and not known:
            return f"{int(value):,}".replace("-", "−")
        return metric.text(float(value)) if known else units.significant(float(value), 4).replace("-", "−")

    def rank(row: Record) -> float:
        return math.nan if not _is_number(row[key]) else metric.rank(float(row[key]))

    return Column(
        key,
        header,
        text,
        rank=rank if is_number and metric.goal is not None else None,
        align="right" if is_number else "left",
        formula=formula,
    )


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: a number, true or false, null, or a text."""
    if _is_number(value):
        return int(value) if isinstance(value, numbers.Integral) and math.isfinite(value) else float(value)
    return value if isinstance(value, bool) or _is_missing(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and str(value) not in ("True", "False") and not _is_missing(value)


def _is_missing(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _parts(results: Results, rows: Sequence[str]) -> pd.DataFrame:
    """Return the completed runs that rows rest on which are named like their label."""
    runs = results.runs
    runs = runs[runs["label"].isin(rows) & (runs["state"] == "COMPLETED")]
    parts = runs[["label", "seed", "fingerprint"]].assign(row=runs["label"], experiment=results.experiment)
    return parts.reset_index(drop=True)
