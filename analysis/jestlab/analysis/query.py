"""Query the results store: rows of a view by a condition on columns and config keys, or SQL.

    from jestlab.analysis import query
    query.frame(view="evaluations", where='final and selection.rule = "joint" and seed < 3',
                columns=["label", "seed", "selection.filtering_ratio", "name", "value"])

Conditions are evaluated in Python, where config keys have types, since the JSON functions of databases
differ. Comparisons of columns that mean the same on every database are sent to it with bound parameters.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.analysis import guards
from jestlab.analysis.conditions import Condition, ConditionError, Key, Value, parse
from jestlab.analysis.connection import connect
from jestlab.analysis.rows import (
    TAGS,
    Getter,
    Row,
    Several,
    Source,
    check,
    check_kinds,
    kind_of,
    scalar_kind,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """Rows of a query, under named columns.

    Attributes:
        columns: Their names, each once.
        rows: Values: text, numbers, booleans, None, times in UTC without a zone; lists and sections of a
            config as JSON text.
        more: Whether a limit has left out further rows of a SELECT.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool = False

    def frame(self) -> pd.DataFrame:
        """Convert the rows to a pandas frame."""
        import pandas as pd

        frame = pd.DataFrame.from_records(self.rows, columns=_index(tuple(self.columns)))
        for name in self.columns:
            if name.endswith("_at"):
                frame[name] = pd.to_datetime(frame[name], format="ISO8601")
        return frame


@lru_cache(maxsize=64)
def _index(columns: tuple[str, ...]) -> pd.Index[str]:
    """Make the index of columns: as long as a frame of a few rows takes."""
    import pandas as pd

    return pd.Index(columns)


def default_url() -> str:
    """Return the default store: JESTLAB_STORE, else results.db in JESTLAB_ROOT or ./lab."""
    root = Path(os.environ.get("JESTLAB_ROOT") or "lab").expanduser().absolute()
    return os.environ.get("JESTLAB_STORE") or f"sqlite:///{root / 'results.db'}"


def frame(
    url: str | None = None,
    *,
    view: str = "runs",
    where: str | None = None,
    columns: Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    limit: int | None = None,
    experiment: str | None = None,
    sql: str | None = None,
) -> pd.DataFrame:
    """Query results as a pandas frame.

    Args:
        url: SQLAlchemy URL of the store. None: JESTLAB_STORE, else results.db in JESTLAB_ROOT or ./lab.
        view: As of `select`, and so are all others but the last.
        where: Which rows.
        columns: Which columns.
        order_by: How they are sorted.
        limit: How many.
        experiment: Of which experiment.
        sql: One SELECT over the views instead of all these.

    Raises:
        FileNotFoundError: The store doesn't exist.
        ValueError: The query is invalid; the message names the place.
    """
    if sql is None:
        found = select(url, view, where, columns, order_by, limit, experiment)
    elif where or columns or order_by or limit is not None or experiment:
        raise ValueError("give either SQL, or a view with its condition")
    else:
        found = ask(url, sql)
    return found.frame()


@dataclass(frozen=True)
class Limits:
    """Limits of an answer.

    Attributes:
        rows: Maximum number of rows.
        most_bytes: Maximum size of all rows, as text, and of each value.
        seconds: Maximum time of the database.
    """

    rows: int
    most_bytes: int
    seconds: float


def ask(url: str | None, sql: str, limits: Limits | None = None) -> Result:
    """Execute one SELECT, in a transaction that only reads.

    Args:
        url: As of `frame`.
        sql: The SELECT.
        limits: Limits of the answer; None for no limits.

    Raises:
        FileNotFoundError: The store doesn't exist.
        ValueError: The SQL is wrong, or would write, or takes too long, or a row is too long.
    """
    from sqlalchemy.exc import DBAPIError, StatementError

    with connect(url or default_url()) as connection, ExitStack() as stack:
        is_postgresql = connection.dialect.name == "postgresql"
        if is_postgresql:
            guards.refuse_secret(sql)
        if limits is not None:
            stack.enter_context(guards.limits(connection, limits.seconds, limits.most_bytes))
        try:
            # Without parameters `%` is a sign like any other. A buffer of several rows may be large.
            options = {"no_parameters": True} | ({} if limits is None else {"max_row_buffer": 1})
            connection = connection.execution_options(**options)
            if is_postgresql and limits is not None:
                # First unchanged, without reading a row: SQL that closes our parenthesis has no limits.
                connection.exec_driver_sql(sql).close()
                sql = guards.short_rows(sql, limits.most_bytes)
            with connection.exec_driver_sql(sql) as result:  # interrupted but open, it would stop a rollback
                if not result.returns_rows:
                    raise ValueError("query: this SQL returns no rows")
                return _limited(distinct(result.keys()), result, limits)
        except (DBAPIError, StatementError) as error:
            if limits is not None and guards.is_out_of_time(error):
                raise ValueError(_TOO_LONG.format(limits.seconds)) from None
            raise ValueError(f"query: {_refused(sql, error.orig or error)}") from None
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
_WRITING = (
    "ALTER|ANALYZE|ATTACH|BEGIN|CALL|COMMIT|COPY|CREATE|DELETE|DETACH|DISCARD|DO|DROP|END|EXECUTE|GRANT|INSERT|"
    "LISTEN|LOCK|MERGE|NOTIFY|PREPARE|REINDEX|REPLACE|RESET|REVOKE|ROLLBACK|SET|SHOW|START|TRUNCATE|UPDATE|VACUUM"
)
_WRITES = re.compile(rf"\s*({_WRITING})\b", re.IGNORECASE)
_WOULD_WRITE = re.compile(
    r"not authorized|readonly database|read-only transaction|data-modifying|multiple commands"
    rf"|INTO is not allowed|near \"({_WRITING})\"",
    re.IGNORECASE,
)
"""How databases say that they were asked for more than a SELECT."""


def _refused(sql: str, error: BaseException) -> str:
    """Say in one line why a database has refused some SQL."""
    if verb := _WRITES.match(sql):
        return f"queries are read-only: expected one SELECT, not {verb[1].upper()}"
    primary = getattr(getattr(error, "diag", None), "message_primary", None)  # of PostgreSQL
    said = " ".join(str(primary or error).split())
    return f"queries are read-only: expected one SELECT ({said})" if _WOULD_WRITE.search(said) else said


def select(
    url: str | None = None,
    view: str = "runs",
    where: str | None = None,
    columns: Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    limit: int | None = None,
    experiment: str | None = None,
) -> Result:
    """Select rows of one view.

    Args:
        url: As of `frame`.
        view: Name of the view, with or without `v_`.
        where: A condition in the language of `conditions`, on the view's columns, on config keys
            (`selection.rule`), and on keys of its columns of JSON (`versions.jax`). A column goes before a
            config key of its name, which is then `config.seed`. `tag` is any tag of the run or of its
            experiment: `tag = 'keep'`.
        columns: Columns, config keys, or all config keys below one: `config.*`, `config.selection.*`; `tags`.
            None: the view's own.
        order_by: Columns or config keys to sort by, after one another; `-value` or `value desc` downwards.
            Missing values come last.
        limit: Rows at most.
        experiment: Rows of this experiment alone.

    Raises:
        FileNotFoundError: The store doesn't exist.
        ValueError: No such view, column, key or experiment, with the nearest that there is; or no condition.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit {limit}: give 0 or more")
    try:
        condition = parse(where) if where is not None else None
    except ConditionError as error:
        raise ValueError(f"where: {error}") from None
    with connect(url or default_url()) as connection:
        source = Source(connection, view, experiment)
        untyped = [] if condition is None else check(condition, source)
        kept = predicate(condition, source.getter) if condition is not None else None
        shown = source.expand(columns) if columns is not None else source.columns
        getters = [source.shown(name) for name in shown]
        sorting = [
            (source.shown(name) if name in TAGS else source.getter(name), down)
            for name, down in map(_direction, order_by)
        ]
        found: Iterable[Row] = source.rows(condition)
        if untyped:
            found = list(found)
            for key, test in untyped:
                get = source.getter(key.name)
                check_kinds(key, test, {kind_of(value) for row in found if (value := get(row)) is not None})
        if kept is not None:
            found = (row for row in found if kept(row))
        if sorting:
            found = list(found)
            for get, down in reversed(sorting):
                found = _sorted(found, get, down)
        rows = [tuple(get(row) for get in getters) for row in itertools.islice(found, limit)]
    return Result(shown, rows)


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Truth = Callable[[Row], bool | None]
"""Whether a row satisfies a condition; None where that is unknown."""


def predicate(condition: Condition, getter: Callable[[str], Getter]) -> Truth:
    """Compile a condition to a function of rows.

    Args:
        condition: From `conditions.parse`.
        getter: For a key's name, the function that gets its value from a row; None or NaN is a missing one.
    """
    if condition.sign in ("and", "or", "not"):
        parts = [predicate(part, getter) for part in condition.parts]
        if condition.sign == "and":
            return _all(parts)
        return _negation(_all([_negation(part) for part in parts]) if condition.sign == "or" else parts[0])

    def operand(found: Key | Value) -> Getter:
        if isinstance(found, Key):
            get = getter(found.name)
            return lambda row: _present(get(row))
        return lambda row: found

    get, test = operand(condition.parts[0]), _test(condition, operand)

    def truth(row: Row) -> bool | None:
        value = get(row)
        if not isinstance(value, Several):
            return test(value, row)
        if condition.sign == "null":
            return not value
        # A run without tags is known not to have this tag, unlike a missing value.
        holds = all if condition.sign == "!=" else any
        return holds(test(one, row) is True for one in value)

    return truth


def _test(
    condition: Condition, operand: Callable[[Key | Value], Getter]
) -> Callable[[Any, Row], bool | None]:
    """Compile a test to a function of its left operand's value, and of the row that its right one is from."""
    sign, right = condition.sign, condition.parts[1:]
    if sign == "true":
        return lambda value, row: bool(value) if isinstance(value, int | float) else None
    if sign == "null":
        return lambda value, row: value is None
    if sign == "in":
        return lambda value, row: None if value is None else value in right
    if sign == "like":
        return _like(str(right[0]))
    compare, other = _OPERATORS[sign], operand(right[0])

    def compared(value: Any, row: Row) -> bool | None:
        against = other(row)
        return compare(value, against) if scalar_kind(value) == scalar_kind(against) is not None else None

    return compared


def _present(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _all(parts: Sequence[Truth]) -> Truth:
    def truth(row: Row) -> bool | None:
        known: bool | None = True
        for part in parts:
            found = part(row)
            if found is False:
                return False
            if found is None:
                known = None
        return known

    return truth


def _negation(part: Truth) -> Truth:
    return lambda row: None if (found := part(row)) is None else not found


def _like(pattern: str) -> Callable[[Any, Row], bool | None]:
    # fnmatch's expressions take linear time whatever the pattern, unlike `.*` in a row.
    wild = {"%": "*", "_": "?"}
    glob = "".join(wild.get(c, f"[{c}]" if c in "*?[" else c) for c in pattern)
    matches = re.compile(fnmatch.translate(glob)).match
    return lambda value, row: matches(value) is not None if isinstance(value, str) else None


def _direction(text: str) -> tuple[str, bool]:
    """Parse a column to sort by, and whether downwards."""
    name, _, direction = text.strip().partition(" ")
    if direction.strip().lower() not in ("", "asc", "desc"):
        raise ValueError(f"order {text!r}: write the column, -column, or column desc")
    return name.removeprefix("-"), name.startswith("-") or direction.strip().lower() == "desc"


_RANKS = {"number": 0, "text": 1}


def _sorted(rows: Iterable[Row], get: Getter, down: bool) -> list[Row]:
    """Sort rows by a value: numbers before text, missing and nested values last."""
    ranked = [(_RANKS.get(scalar_kind(get(row)) or ""), row) for row in rows]
    known = [(rank, row) for rank, row in ranked if rank is not None]
    known.sort(key=lambda pair: (pair[0], get(pair[1])), reverse=down)
    return [row for _, row in known] + [row for rank, row in ranked if rank is None]


def distinct(names: Iterable[str], separator: str = "_") -> list[str]:
    """Make names unique by numbering repeated ones: name, name_2."""
    found: list[str] = []
    for name in names:
        candidates = itertools.chain([name], (f"{name}{separator}{number}" for number in itertools.count(2)))
        found.append(next(candidate for candidate in candidates if candidate not in found))
    return found
