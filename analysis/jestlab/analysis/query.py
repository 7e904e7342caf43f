"""Rows of the results store's views, filtered by a condition on columns and config keys, in one call.

    from jestlab.analysis import query
    query.frame(view="evaluations", where='final and selection.rule = "joint" and seed < 3',
                columns=["label", "seed", "selection.filtering_ratio", "name", "value"])

What a condition means is decided here, in Python, where a config key has a type: the same on every database,
whose functions on JSON differ. SQL narrows beforehand what is fetched by those comparisons with columns that
mean the same everywhere. Configs are few, one a run; rows are many.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.analysis import where as conditions
from jestlab.analysis.connection import connect
from jestlab.analysis.where import Among, Compare, Condition, Getter, Key, Row, Value, WhereError

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

_TEXTS = frozenset((
    "experiment", "run", "label", "fingerprint", "program", "state", "name", "dataset", "metric", "kind",
    "chip", "source", "table_name", "group_name", "method", "variant", "accounting", "quantity", "printed",
    "unit",
))  # fmt: skip
"""Columns of text, of any view, that everybody filters by."""

_NUMBERS = frozenset((
    "seed", "position", "step", "total_steps", "attempts", "needed", "value", "examples_seen", "flops_total",
    "final", "number", "chips", "pid", "exit_code", "size", "image_tower_flops", "text_tower_flops",
    "loss_flops", "learner_flops", "scoring_flops", "selection_flops", "reference_scoring_flops",
    "total_flops", "reference_training_flops", "reference_shared_by", "reference_training_share_flops",
    "planned_chip_hours", "planned_dollars", "actual_flops", "actual_hours", "actual_chip_hours", "ours",
    "baseline", "bold",
))  # fmt: skip
"""Columns of numbers."""

_JSON = frozenset(("config", "point", "versions", "environment"))
"""Columns of JSON, which dotted keys look into."""

_ORDER = (
    "experiment",
    "source",
    "table_name",
    "position",
    "label",
    "seed",
    "name",
    "number",
    "step",
    "created_at",
)
"""How rows are sorted where nobody says, as far as a view has these columns."""

_EXACT = 2**53  # beyond it a database may round an integer before comparing it


@dataclass(frozen=True)
class Result:
    """Rows under named columns.

    Attributes:
        columns: Their names, each once.
        rows: Values: text, numbers, booleans, None, times in UTC without a zone; lists and sections of a
            config as JSON text.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def frame(self) -> pd.DataFrame:
        """As a pandas frame."""
        import pandas as pd

        frame = pd.DataFrame.from_records(self.rows, columns=self.columns)
        for name in self.columns:
            if name.endswith("_at"):
                frame[name] = pd.to_datetime(frame[name], format="ISO8601")
        return frame


def default_url() -> str:
    """Of the store where nobody says: JESTLAB_STORE, else results.db in JESTLAB_ROOT or ./lab."""
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
    """Results as a pandas frame.

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
        FileNotFoundError: There is no store.
        ValueError: The question is wrong; the message says where.
    """
    if sql is None:
        found = select(url, view, where, columns, order_by, limit, experiment)
    elif where or columns or order_by or limit is not None or experiment:
        raise ValueError("give either SQL, or a view with its condition")
    else:
        found = ask(url, sql)
    return found.frame()


def ask(url: str | None, sql: str) -> Result:
    """Execute one SELECT, in a transaction that only reads.

    Args:
        url: As of `frame`.
        sql: The SELECT.

    Raises:
        FileNotFoundError: There is no store.
        ValueError: The SQL is wrong, or would write.
    """
    from sqlalchemy.exc import DBAPIError, StatementError

    with connect(url or default_url()) as connection:
        try:
            # Without parameters `%` is a sign like any other.
            result = connection.execution_options(no_parameters=True).exec_driver_sql(sql)
            if not result.returns_rows:
                raise ValueError("query: this SQL gives no rows")
            return Result(_distinct(result.keys()), [tuple(row) for row in result])
        except (DBAPIError, StatementError) as error:
            raise ValueError("query: " + " ".join(str(error.orig or error).split())) from None


def select(
    url: str | None = None,
    view: str = "runs",
    where: str | None = None,
    columns: Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    limit: int | None = None,
    experiment: str | None = None,
) -> Result:
    """Rows of one view.

    Args:
        url: As of `frame`.
        view: Its name, with or without `v_`.
        where: A condition, as `jestlab.analysis.where` has it: on the view's columns, on config keys
            (`selection.rule`), and on keys of its columns of JSON (`versions.jax`). A column goes before a
            config key of its name, which is then `config.seed`.
        columns: Columns, config keys, or all config keys below one: `config.*`, `config.selection.*`. None:
            the view's own.
        order_by: Columns or config keys to sort by, after one another; `-value` or `value desc` downwards.
            What is missing comes last.
        limit: Rows at most.
        experiment: Rows of this experiment alone.

    Raises:
        FileNotFoundError: There is no store.
        ValueError: No such view, column, key or experiment, with the nearest that there is; or no condition.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit {limit}: give 0 or more")
    condition = conditions.parse(where) if where is not None else None
    with connect(url or default_url()) as connection:
        source = _Source(connection, _view(connection, view), experiment)
        if condition is not None:
            _check(condition, source)
        kept = conditions.predicate(condition, source.getter) if condition is not None else None
        shown = source.expand(columns) if columns is not None else source.columns
        getters = [source.shown(name) for name in shown]
        sorting = [(source.getter(name), down) for name, down in map(_direction, order_by)]
        found: Iterable[Row] = source.rows(condition)
        if kept is not None:
            found = (row for row in found if kept(row))
        if sorting:
            found = list(found)
            for get, down in reversed(sorting):
                found = _sorted(found, get, down)
        rows = [tuple(get(row) for get in getters) for row in itertools.islice(found, limit)]
    return Result(shown, rows)


class _Source:
    """A view, the configs of its runs, and what is to be fetched of both."""

    def __init__(self, connection: Connection, view: str, experiment: str | None) -> None:
        self._connection = connection
        self._view = view
        self._experiment = experiment
        self.columns = list(connection.execute(_select(view, None)).keys())
        if experiment is not None:
            self._check_experiment(experiment)
        self._fetched: dict[str, int] = {}
        self._configs: dict[str, dict[str, Any]] | None = None
        self._keys: list[str] = []

    def getter(self, name: str) -> Getter:
        """What gets the value of a column or config key from a fetched row, fit for comparison."""
        if name in self.columns:
            index = self._index(name)
            if name.endswith("_at"):
                return lambda row: _time_text(row[index])
            return lambda row: row[index]
        head, dot, rest = name.partition(".")
        if dot and head != "config" and head in _JSON and head in self.columns:
            return self._inside(head, rest)
        return self._config_getter(rest if dot and head == "config" else name, name)

    def shown(self, name: str) -> Getter:
        """As `getter`, fit for output: times are times, what is nested is JSON text."""
        if name in self.columns:
            index = self._index(name)
            if name.endswith("_at"):
                return lambda row: _time(row[index])
            return lambda row: row[index]
        get = self.getter(name)

        def text(row: Row) -> Any:
            value = get(row)
            return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value

        return text

    def kinds(self, name: str) -> set[str] | None:
        """Kinds of value that a key has; None where nobody knows."""
        if name in _TEXTS & set(self.columns):
            return {"text"}
        if name in _NUMBERS & set(self.columns):
            return {"number"}
        head, dot, rest = name.partition(".")
        if name in self.columns or (dot and head != "config" and head in _JSON and head in self.columns):
            return None
        path = (rest if dot and head == "config" else name).split(".")
        values = [value for tree in self.configs.values() if (value := _lookup(tree, path)) is not None]
        kinds = {kind for value in values if (kind := conditions.kind_of(value)) is not None}
        return kinds or None

    def expand(self, names: Sequence[str]) -> list[str]:
        """Columns with `config.*` and its like in full; each once."""
        expanded: list[str] = []
        for name in names:
            if name == "*":
                expanded += self.columns
            elif name.endswith(".*"):
                below = name.removesuffix("*")
                of_config = [f"config.{key}" for key in self.config_keys]
                found = [key for key in (*of_config, *self.config_keys) if key.startswith(below)]
                if not found:
                    raise ValueError(f"no config key {name!r}: {self._nearest(below)}")
                expanded += found
            else:
                expanded.append(name)
        return list(dict.fromkeys(expanded))

    def rows(self, condition: Condition | None) -> Iterator[Row]:
        """Rows with the fetched columns, in the view's order; more than those of the condition."""
        from sqlalchemy import column

        statement = _select(self._view, list(self._fetched) or self.columns[:1])
        if self._experiment is not None:
            statement = statement.where(column("experiment") == self._experiment)
        for part in conditions.conjuncts(condition) if condition is not None else ():
            if (narrower := _in_sql(part, self.columns)) is not None:
                statement = statement.where(narrower)
        order = [name for name in _ORDER if name in self.columns]
        for row in self._connection.execute(statement.order_by(*(column(name) for name in order))):
            yield tuple(row)

    @property
    def configs(self) -> dict[str, dict[str, Any]]:
        """Fingerprint → config, of the runs in question."""
        if self._configs is None:
            from sqlalchemy import column

            statement = _select("v_runs", ["fingerprint", "config"]).distinct()
            if self._experiment is not None:
                statement = statement.where(column("experiment") == self._experiment)
            self._configs = {
                fingerprint: json.loads(config)
                for fingerprint, config in self._connection.execute(statement)
                if config
            }
        return self._configs

    @property
    def config_keys(self) -> list[str]:
        """Dotted keys of all these configs, in their order."""
        if not self._keys:
            self._keys = list(dict.fromkeys(key for tree in self.configs.values() for key in _leaves(tree)))
        return self._keys

    def _config_getter(self, key: str, name: str) -> Getter:
        path = key.split(".")
        by_run = {fingerprint: _lookup(tree, path) for fingerprint, tree in self.configs.items()}
        sections = (known for known in self.config_keys if known == key or known.startswith(f"{key}."))
        if "fingerprint" not in self.columns or next(sections, None) is None:
            raise ValueError(f"no column or config key {name!r} in {self._view}: {self._nearest(name)}")
        index = self._index("fingerprint")
        return lambda row: by_run.get(row[index])

    def _inside(self, column: str, key: str) -> Getter:
        index, path = self._index(column), key.split(".")
        known: dict[str, Any] = {}  # few texts differ

        def get(row: Row) -> Any:
            text = row[index]
            if text not in known:
                tree = json.loads(text) if text else None
                # Names of packages and the like may have dots themselves.
                known[text] = tree[key] if isinstance(tree, dict) and key in tree else _lookup(tree, path)
            return known[text]

        return get

    def _index(self, column: str) -> int:
        """Where a column stands in the fetched rows, from now on."""
        return self._fetched.setdefault(column, len(self._fetched))

    def _nearest(self, name: str) -> str:
        keys = self.config_keys if "fingerprint" in self.columns else []
        return _nearest(name, [*self.columns, *keys, *(f"config.{key}" for key in keys)], self.columns)

    def _check_experiment(self, experiment: str) -> None:
        from sqlalchemy import column

        if "experiment" not in self.columns:
            raise ValueError(f"{self._view} has no column 'experiment'")
        names = _select("v_runs", ["experiment"]).distinct().order_by(column("experiment"))
        known = [str(name) for name in self._connection.scalars(names)]
        if experiment not in known:
            near = _nearest(experiment, known)
            raise ValueError(f"no experiment {experiment!r} in the results store: {near}")


def _check(condition: Condition, source: _Source) -> None:
    """Raise for unknown names, and for values that a key never has the type of, with the place."""
    for key, values in conditions.keys(condition):
        place = f"where: character {key.position}: "
        try:
            source.getter(key.name)
        except ValueError as error:
            raise WhereError(place + str(error)) from None
        kinds = source.kinds(key.name)
        for value in values:
            if kinds and (kind := conditions.kind_of(value)) not in kinds:
                holds = " and ".join(sorted(kinds))
                raise WhereError(f"{place}{key.name!r} holds {holds}, not {kind}: {_remedy(value)}")


def _remedy(value: Value) -> str:
    """How a value of the other kind is written."""
    if isinstance(value, str):
        return "leave the quotes out" if _PLAIN.fullmatch(value) else "compare it with a number"
    return "put it in quotes" if not isinstance(value, bool) else "compare it with a text"


_PLAIN = re.compile(r"true|false|[+-]?[\d.]+", re.IGNORECASE)


def _in_sql(condition: Condition, columns: Sequence[str]) -> Any | None:
    """A condition as SQL, where every database takes it for just what it is; None for all others."""
    from sqlalchemy import column

    match condition:
        case Compare(Key(name), sign, value) if name in columns and _exact(name, value):
            if name in _NUMBERS or sign == "=":  # texts are sorted in many ways
                return column(name).op(sign, is_comparison=True)(value)
        case Among(Key(name), values) if name in columns and all(_exact(name, value) for value in values):
            return column(name).in_(values)
    return None


def _exact(name: str, value: Value) -> bool:
    if isinstance(value, str):
        return name in _TEXTS and "\0" not in value
    return name in _NUMBERS and not isinstance(value, bool) and abs(value) < _EXACT


def _select(view: str, columns: Sequence[str] | None) -> Any:
    """SELECT of some columns of a view; None for all of them, and no row."""
    from sqlalchemy import column, literal_column, select, table

    if columns is None:
        return select(literal_column("*")).select_from(table(view)).limit(0)
    return select(*(column(name) for name in columns)).select_from(table(view))


def _view(connection: Connection, name: str) -> str:
    """The view that is meant, of those that there are."""
    from sqlalchemy import inspect

    inspector = inspect(connection)
    known = [
        found
        for found in (*inspector.get_view_names(), *inspector.get_table_names())
        if found.startswith("v_")
    ]
    for candidate in (name, f"v_{name}"):
        if candidate in known:
            return candidate
    raise ValueError(f"no view {name!r}: {_nearest(name, sorted(n.removeprefix('v_') for n in known))}")


def _direction(text: str) -> tuple[str, bool]:
    """A column to sort by, and whether downwards."""
    name, _, direction = text.strip().partition(" ")
    if direction.strip().lower() not in ("", "asc", "desc"):
        raise ValueError(f"order {text!r}: write the column, -column, or column desc")
    return name.removeprefix("-"), name.startswith("-") or direction.strip().lower() == "desc"


_RANKS = {"number": 0, "text": 1}


def _sorted(rows: Iterable[Row], get: Getter, down: bool) -> list[Row]:
    """Rows in the order of a value; kinds apart, what is missing or nested last."""
    known: list[tuple[int, Row]] = []
    rest: list[Row] = []
    for row in rows:
        rank = _RANKS.get(conditions.kind_of(get(row)) or "")
        if rank is None:
            rest.append(row)
        else:
            known.append((rank, row))
    known.sort(key=lambda pair: (pair[0], get(pair[1])), reverse=down)
    return [row for _, row in known] + rest


def _lookup(tree: Any, path: Sequence[str]) -> Any:
    """What stands at a path; None where nothing does."""
    for part in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _time(value: Any) -> datetime | None:
    """SQLite keeps times as text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _time_text(value: Any) -> str | None:
    """A time as SQLite keeps it, which sorts as it should."""
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else value


def _distinct(names: Iterable[str]) -> list[str]:
    """Names of columns, with a number at those that stand there already."""
    found: list[str] = []
    for name in names:
        candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        found.append(next(candidate for candidate in candidates if candidate not in found))
    return found


def _nearest(name: str, known: Sequence[str], listed: Sequence[str] | None = None) -> str:
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if matches:
        return f"did you mean {matches[0]!r}?"
    some = list(known if listed is None else listed)
    return "it has " + ", ".join(some[:12]) + (", …" if len(some) > 12 else "") if some else "there is none"
