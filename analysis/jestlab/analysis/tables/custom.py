"""Custom tables: a function returns a pandas frame."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from ..custom import CodeFailed, CustomCode, Results, stem_of
from ..errors import RequestError
from ..metrics import Metric
from ..units import nearest, significant
from . import show
from .core import Column, Record, Table

_RESERVED = ("row", "apart", "section")
"""Columns of `Table.frame` with a special meaning: `_` is added to a custom column of that name."""


class _Attrs(BaseModel):
    """The attributes of a frame."""

    model_config = ConfigDict(extra="forbid")
    caption: str = ""
    notes: tuple[str, ...] = ()
    columns: dict[str, Metric] = {}


def custom_table(code: CustomCode, results: Results, options: Mapping[str, Any]) -> Table:
    """Make a custom table.

    Args:
        code: `f(results, **options)`, which returns a pandas frame. The rows are named by the index, or by
            the first column if the index only counts. `frame.attrs` may have `caption`, `notes`, and
            `columns`: column → goal ("max" or "min": the best is bold), unit, digits, and name, as in a
            spec's `metrics`. By default, a column named like an evaluation has those of the evaluation. A row
            named like a label is based on the label's runs; a reference does not compete.

    Raises:
        NotYet: The experiment lacks results that the function requests.
        CodeFailed: The function fails or returns something else.
    """
    frame = code(results, options)
    if not isinstance(frame, pd.DataFrame):
        raise code.unexpected(frame, "a pandas DataFrame")
    try:
        return _table(_plain_frame(frame), frame.attrs, results, code)
    except ValidationError as error:
        wrong = error.errors()[0]
        reason = f"has attrs {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
        raise CodeFailed(f"the frame that {code.name} returned {reason}") from None
    except RequestError as error:
        raise CodeFailed(f"the frame that {code.name} returned {error}") from None


def _table(frame: pd.DataFrame, attrs: Mapping[Any, Any], results: Results, code: CustomCode) -> Table:
    """Make a table from a frame of plain values; the message of a RequestError continues "the frame ..."."""
    written = _Attrs.model_validate(attrs)
    first, *keys = frame.columns[1:]
    if unknown := [name for name in written.columns if name not in frame]:
        raise RequestError(f"has no column {unknown[0]!r}, which attrs name: {nearest(unknown[0], keys)}")
    frame["apart"] = frame["row"].isin(results.references)
    evaluated = [key for key in keys if key in results.frames.evaluated]
    headers = show.metric_headers(evaluated, results.frames.declared)
    formula = f"computed by {code.name}" + (f", code {code.digest[:8]}" if code.digest else "")
    columns = [Column(first, first, lambda row: str(row["row"]), align="left")]
    for key in keys:
        metric = results.metric(key) if key in evaluated else Metric()
        header = headers.get(key, key)
        if key in written.columns:
            metric = replace(metric, **attrs["columns"][key])
            header = show.heading(metric.name or key, metric)
        columns.append(_column(key, header, frame[key], metric, formula))
    runs = results.runs
    runs = runs[runs["label"].isin(frame["row"]) & (runs["state"] == "COMPLETED")].reset_index(drop=True)
    parts = runs[["label", "seed", "fingerprint"]].assign(row=runs["label"], experiment=results.experiment)
    name = f"{results.experiment} {stem_of(code.name)}"
    return Table(name, written.caption, frame, tuple(columns), written.notes, parts=parts)


def _plain_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of plain values; `row` and the column after it both have the names of the rows."""
    if frame.columns.nlevels > 1 or frame.index.nlevels > 1:
        raise RequestError("has several levels: expected one, so flatten its columns, or reset its index")
    if frame.empty:
        raise RequestError("has no rows")
    if frame.index.name is not None or not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index(names=str(frame.index.name or "name"))
    columns = [f"{name}_" if name in _RESERVED else str(name) for name in frame.columns]
    rows = [str(value) for value in frame.iloc[:, 0]]
    for kind, names in (("columns", columns), ("rows", rows)):
        ((name, times),) = Counter(names).most_common(1)
        if times > 1:
            raise RequestError(f"has two {kind} called {name!r}: expected unique names of rows and columns")
    values = {name: [_plain(value) for value in frame.iloc[:, i]] for i, name in enumerate(columns)}
    return pd.DataFrame({"row": rows, **values}, dtype=object)


def _column(key: str, header: str, values: pd.Series[Any], metric: Metric, formula: str) -> Column:
    """Make a column: numbers are right-aligned; everything else is text."""
    is_number = not any(isinstance(value, bool | str) for value in values)

    def text(row: Record) -> str:
        value = row[key]
        if value is None or isinstance(value, bool | str):
            return show.MISSING if value is None else str(value)
        if metric.suffix or metric.digits is not None:
            return metric.text(value)
        return (f"{value:,}" if isinstance(value, int) else significant(value, 4)).replace("-", "−")

    def rank(row: Record) -> float:
        return math.nan if row[key] is None else metric.rank(float(row[key]))

    return Column(
        key, header, text, rank if is_number and metric.goal else None, formula=formula,
        align="right" if is_number else "left",
    )  # fmt: skip


def _plain(value: Any) -> bool | int | float | str | None:
    """Convert a value to a type of JSON; None if it is missing."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else str(value)
