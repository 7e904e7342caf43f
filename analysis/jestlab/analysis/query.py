"""Query the results store: select rows of a view by a condition on columns and config keys, or use SQL.

    from jestlab.analysis import query
    query.frame(view="evaluations", where='final and selection.rule = "joint" and seed < 3',
                columns=["label", "seed", "selection.filtering_ratio", "name", "value"])

Conditions are evaluated in Python, where config keys have types: the JSON functions of databases differ.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError, StatementError

from . import read_only
from .connection import connect
from .results import opened
from .rows import Row, StoreView, matching, rank, shown
from .shared import store_in
from .units import nearest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """Rows of a query, under named columns.

    Attributes:
        columns: Names of the columns, without duplicates.
        rows: Values: text, numbers, booleans, None, times in UTC without a zone; lists and sections of a
            config as JSON text.
        more: Whether a limit cut off further rows.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool = False

    def frame(self) -> pd.DataFrame:
        """Convert the rows to a pandas frame."""
        import pandas as pd

        frame = pd.DataFrame.from_records(self.rows, columns=self.columns)
        for name in self.columns:
            if name.endswith("_at"):
                frame[name] = pd.to_datetime(frame[name], format="ISO8601")
        return frame


def default_url() -> str:
    """Return the default store: JESTLAB_STORE, else that in JESTLAB_ROOT or ./lab."""
    root = Path(os.environ.get("JESTLAB_ROOT") or "lab").expanduser().absolute()
    return os.environ.get("JESTLAB_STORE") or f"sqlite:///{store_in(root)}"


def frame(url: str | None = None, *, sql: str | None = None, **selection: Any) -> pd.DataFrame:
    """Query results as a pandas frame.

    Args:
        url: SQLAlchemy URL of the store. None: JESTLAB_STORE, else results.db in JESTLAB_ROOT or ./lab.
        sql: One SELECT over the views, instead of a selection.
        selection: Arguments of `select`: view, where, columns, order_by, limit, and experiment.

    Raises:
        FileNotFoundError: The store doesn't exist.
        ValueError: The query is invalid; the message gives the position.
    """
    if sql is not None and selection:
        raise ValueError("give either SQL, or a view with its condition")
    return (select(url, **selection) if sql is None else ask(url, sql)).frame()


@dataclass(frozen=True)
class Limits:
    """Limits of an answer.

    Attributes:
        rows: Maximum number of rows.
        most_bytes: Maximum size of each value, and of all rows together as text.
        seconds: Maximum time that the database may take.
    """

    rows: int
    most_bytes: int
    seconds: float


def ask(url: str | None, sql: str, limits: Limits | None = None) -> Result:
    """Execute one SELECT in a read-only transaction.

    Args:
        url: As in `frame`.
        sql: The SELECT.
        limits: Limits of the answer; None for no limits.

    Raises:
        FileNotFoundError: The store doesn't exist.
        ValueError: The SQL is invalid, would write, or exceeds a limit.
    """
    with connect(url or default_url()) as connection, ExitStack() as stack:
        is_postgresql = connection.dialect.name == "postgresql"
        if is_postgresql:
            read_only.refuse_secret(sql)
        if limits is not None:
            stack.enter_context(read_only.limits(connection, limits.seconds, limits.most_bytes))
        try:
            # Without parameters, `%` needs no escape. Rows are buffered one by one, since they may be large.
            options = {"no_parameters": True} | ({} if limits is None else {"max_row_buffer": 1})
            connection = connection.execution_options(**options)
            if is_postgresql and limits is not None:
                # Execute the SQL unchanged first, without reading a row: SQL that is valid only within the
                # parentheses of `short_rows`, which it closes, would evade the limits.
                connection.exec_driver_sql(sql).close()
                sql = read_only.short_rows(sql, limits.most_bytes)
            with connection.exec_driver_sql(sql) as result:  # closed, so that it can't block a rollback
                if not result.returns_rows:
                    raise ValueError("query: this SQL returns no rows")
                return _limited(distinct(result.keys()), result, limits)
        except (DBAPIError, StatementError) as error:
            if limits is not None and read_only.is_out_of_time(error):
                raise ValueError(_TOO_LONG.format(limits.seconds)) from None
            raise ValueError(f"query: {_refused(url or default_url(), sql, error.orig or error)}") from None
        except MemoryError:
            raise ValueError("query: takes too much memory: ask for less") from None


def _limited(columns: list[str], answer: Iterable[Sequence[Any]], limits: Limits | None) -> Result:
    """Read the first rows of an answer, within the limits."""
    if limits is None:
        return Result(columns, list(map(tuple, answer)))
    rows: list[tuple[Any, ...]] = []
    left, ends = limits.most_bytes, time.monotonic() + limits.seconds
    for row in answer:
        if time.monotonic() > ends:
            raise ValueError(_TOO_LONG.format(limits.seconds))
        left -= sum(len(value if isinstance(value, str | bytes) else str(value)) for value in row)
        if left < 0 and not rows:
            raise ValueError(f"query: a row is longer than {limits.most_bytes:,} bytes: ask for less of it")
        if left < 0 or len(rows) == limits.rows:
            return Result(columns, rows, more=True)
        rows.append(tuple(row))
    return Result(columns, rows)


_TOO_LONG = "query: took longer than {:g} s: ask for less"


def _refused(url: str, sql: str, error: BaseException) -> str:
    """Explain in one line why the database rejected a query; suggest a view for an unknown table."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)  # set by PostgreSQL
    message = " ".join(str(primary or error).split())
    if not re.match(r"\W*(SELECT|WITH|VALUES|TABLE)\b", sql, re.IGNORECASE):
        return f"queries are read-only: expected one SELECT ({message})"
    if (unknown := re.match(r'(?:no such table: |relation ")(?:\w+\.)?(\w+)', message)) is None:
        return message
    with opened(url) as store:
        return f"{message}: {nearest(unknown[1], inspect(store.connection).get_view_names())}"


def select(
    url: str | None = None,
    view: str = "runs",
    where: str | None = None,
    columns: str | Sequence[str] | None = None,
    order_by: str | Sequence[str] = (),
    limit: int | None = None,
    experiment: str | None = None,
    words: Sequence[str] = (),
) -> Result:
    """Select rows of one view.

    Args:
        url: As in `frame`.
        view: Name of the view, with or without `v_`.
        where: A condition (see `conditions`) on columns of the view and config keys (`selection.rule`). If
            both have the same name, such as `seed`, the config key is `config.seed`. `tag = 'keep'` holds if
            the run or its experiment has this tag.
        columns: Columns, config keys, or all config keys below one: `config.*`, `config.selection.*`; `tags`.
            None: the columns of the view.
            Like `order_by`, either a list, or a text with commas.
        order_by: Columns or config keys to sort by; `-value` sorts in descending order. Missing values come
            last.
        limit: Maximum number of rows.
        experiment: Only rows of this experiment.
        words: Only runs with all these texts in name, fingerprint, state, or reason; case doesn't matter.

    Raises:
        FileNotFoundError: The store doesn't exist.
        ValueError: A name is unknown (the message suggests the nearest one), or the condition is invalid.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit {limit}: expected 0 or more")
    with opened(url or default_url()) as store:
        source = StoreView(store, view, experiment, words)
        names = source.expand(_listed(columns)) if columns is not None else source.columns
        getters = {name: source.getter(name) for name in names}
        sorting = [
            (source.getter(name.removeprefix("-")), name.startswith("-")) for name in _listed(order_by)
        ]
        selected: Iterable[Row] = source.rows() if where is None else matching(source, where)
        for get, is_descending in reversed(sorting):
            ranked = [(rank(get(row)), row) for row in selected]
            known = [pair for pair in ranked if pair[0] is not None]
            known.sort(key=itemgetter(0), reverse=is_descending)
            selected = [row for _, row in (*known, *(pair for pair in ranked if pair[0] is None))]
        rows = [
            tuple(shown(name, get(row)) for name, get in getters.items())
            for row in itertools.islice(selected, limit)
        ]
    return Result(names, rows)


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else names


def distinct(names: Iterable[str], separator: str = "_") -> list[str]:
    """Make names unique by numbering repeated ones: name, name_2."""
    unique: list[str] = []
    for name in names:
        candidates = itertools.chain([name], (f"{name}{separator}{number}" for number in itertools.count(2)))
        unique.append(next(candidate for candidate in candidates if candidate not in unique))
    return unique
