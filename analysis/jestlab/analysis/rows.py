"""Rows of the store's views, their columns and the config keys of their runs, as conditions compare them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jestlab.analysis.conditions import Condition, Key, Value
from jestlab.analysis.configs import Parsed, lookup, parsed
from jestlab.analysis.units import nearest

if TYPE_CHECKING:
    from sqlalchemy import Connection

Row = Sequence[Any]
Getter = Callable[[Row], Any]

_COMPUTED = {"name": "text", "kind": "text", "experiment": "text", "final": "number", "attempts": "number"}
"""Kinds of columns that SQLite knows no type of, since a view computes them."""

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
"""Default order of rows, by those of these columns that a view has."""

_MEASURED = {"v_evaluations": ("name", "dataset", "metric"), "v_metrics": ("name",)}
"""Columns with names of metrics: an unknown name is a spelling error."""

TAGS = ("tag", "tags")
"""Names of the tags of a row's run and experiment, as in `tag = 'keep'`; views have no such column."""

_EXACT = 2**53  # beyond it a database may round an integer before comparing it


class Several(tuple[str, ...]):
    """Values of one key, of which a row may have several: a test holds if it holds for one of them."""


class Source:
    """A view and the configs of its runs, with the columns that are fetched of both."""

    def __init__(self, connection: Connection, view: str, experiment: str | None) -> None:
        self._connection = connection
        self._view, self._types = _view(connection, view)
        self._experiment = experiment
        self.columns = list(self._types)
        if experiment is not None:
            self._check_experiment(experiment)
        self._fetched: dict[str, int] = {}

    def getter(self, name: str) -> Getter:
        """Make a function that gets a column or config key from a fetched row, ready for comparison."""
        if name in self.columns:
            return self._column(name, _time_text)
        if self._is_inside(name):
            return self._inside(*name.split(".", 1))
        if name in TAGS and not {"fingerprint", "experiment"}.isdisjoint(self.columns):
            return self._tags()
        return self._config_getter(name)

    def shown(self, name: str) -> Getter:
        """Do what `getter` does, ready for output: times are times, nested values are JSON text."""
        if name in self.columns:
            return self._column(name, _time)
        get = self.getter(name)

        def text(row: Row) -> Any:
            value = get(row)
            if isinstance(value, Several):
                return ", ".join(value) or None
            return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value

        return text

    def kinds(self, name: str) -> set[str] | None:
        """List the types of value that a key has; None if only the rows themselves tell."""
        if name in self.columns:
            return {self._types[name]} if self._types[name] else None
        if self._is_inside(name):
            return None
        if name in TAGS:
            return {"text"}
        values = (lookup(tree, name.removeprefix("config.")) for tree in self.configs.values())
        return {kind_of(value) for value in values if value is not None}

    def expand(self, names: Sequence[str]) -> list[str]:
        """Expand `config.*` and the like in a list of columns; each appears once."""
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
        """Yield rows in the view's order: all that satisfy the condition, and perhaps more."""
        from sqlalchemy import column

        statement = _select(self._view, list(self._fetched) or self.columns[:1])
        if self._experiment is not None:
            statement = statement.where(column("experiment") == self._experiment)
        for part in _conjuncts(condition) if condition is not None else ():
            if (narrower := _in_sql(part, self._types)) is not None:
                statement = statement.where(narrower)
        order = [name for name in _ORDER if name in self.columns]
        for row in self._connection.execute(statement.order_by(*(column(name) for name in order))):
            yield tuple(row)

    @cached_property
    def _parsed(self) -> dict[str, Parsed]:
        from sqlalchemy import column

        statement = _select("v_runs", ["fingerprint", "config"])
        if self._experiment is not None:
            statement = statement.where(column("experiment") == self._experiment)
        rows = self._connection.execute(statement).all()
        return {fingerprint: parsed(config) for fingerprint, config in rows if config}

    @cached_property
    def configs(self) -> dict[str, dict[str, Any]]:
        """Configs of the runs, by fingerprint."""
        return {fingerprint: config.tree for fingerprint, config in self._parsed.items()}

    @cached_property
    def config_keys(self) -> list[str]:
        """Dotted keys of all configs, in their order."""
        alike = dict.fromkeys(config.keys for config in self._parsed.values())  # of most runs the same
        return list(dict.fromkeys(key for keys in alike for key in keys))

    def misspelt(self, name: str, test: Condition) -> str | None:
        """Say that a test compares a column of names of what is measured with one that nobody has measured,
        nor any study declares; None if it does not."""
        from sqlalchemy import ColumnElement, column

        if name not in _MEASURED.get(self._view, ()):
            return None
        values = [value for value in test.parts if isinstance(value, str)]
        its: ColumnElement[str] = column(name)
        for value in values:
            one = _select(self._view, [name]).where(its == value).limit(1)
            if self._connection.scalar(one) is not None:
                continue
            every = _select(self._view, [name]).distinct()
            if self._view == "v_metrics":  # has a row for each step: the names in one run have to do
                run = self._connection.scalar(_select(self._view, ["fingerprint"]).limit(1))
                every = every.where(column("fingerprint") == run)
            known = [*sorted(map(str, self._connection.scalars(every))), *self._declared(name)]
            if known and not any(fnmatchcase(value, pattern) for pattern in known):
                return f"nothing declares or has recorded {name} {value!r}: {nearest(value, known)}"
        return None

    def _declared(self, column_name: str) -> list[str]:
        """List the names that studies declare, which may come; patterns unchanged."""
        specs = self._connection.scalars(_select("v_experiments", ["spec"]))
        names = dict.fromkeys(
            name for spec in specs for name in json.loads(spec or "{}").get("metrics") or ()
        )
        if column_name == "name":
            return list(names)
        place = ("dataset", "metric").index(column_name)
        return [parts[place] for name in names if len(parts := name.split("/", 1)) == 2]

    def _column(self, name: str, read_time: Callable[[Any], Any]) -> Getter:
        index = self._index(name)
        if name.endswith("_at"):
            return lambda row: read_time(row[index])
        return lambda row: row[index]

    def _is_inside(self, name: str) -> bool:
        """Return whether a name is a key in a JSON column other than the config."""
        head, dot, _ = name.partition(".")
        return bool(dot) and head != "config" and head in _JSON and head in self.columns

    def _config_getter(self, name: str) -> Getter:
        key = name.removeprefix("config.")
        by_run = {fingerprint: lookup(tree, key) for fingerprint, tree in self.configs.items()}
        sections = (known for known in self.config_keys if known == key or known.startswith(f"{key}."))
        if "fingerprint" not in self.columns or next(sections, None) is None:
            raise ValueError(f"no column or config key {name!r} in {self._view}: {self._nearest(name)}")
        index = self._index("fingerprint")
        return lambda row: by_run.get(row[index])

    def _inside(self, column: str, key: str) -> Getter:
        index = self._index(column)
        known: dict[str, Any] = {}  # few texts differ

        def get(row: Row) -> Any:
            text = row[index]
            if text not in known:
                tree = json.loads(text) if text else None
                # Names of packages and the like may have dots themselves.
                known[text] = tree[key] if isinstance(tree, dict) and key in tree else lookup(tree, key)
            return known[text]

        return get

    def _tags(self) -> Getter:
        """Make a function that gets the tags of a row's run and of its experiment."""
        from sqlalchemy import column

        of_runs: dict[str, set[str]] = {}
        of_experiments: dict[str, set[str]] = {}
        notes = _select("v_notes", ["fingerprint", "experiment", "text"]).where(column("kind") == "tag")
        for fingerprint, experiment, tag in self._connection.execute(notes):
            known, subject = (of_experiments, experiment) if fingerprint is None else (of_runs, fingerprint)
            known.setdefault(subject, set()).add(tag)
        places = [
            (self._index(name), known)
            for name, known in (("fingerprint", of_runs), ("experiment", of_experiments))
            if name in self.columns
        ]
        return lambda row: Several(sorted(set().union(*(known.get(row[at], ()) for at, known in places))))

    def _index(self, column: str) -> int:
        """Fetch a column, and return its index in the fetched rows."""
        return self._fetched.setdefault(column, len(self._fetched))

    def _nearest(self, name: str) -> str:
        keys = self.config_keys if "fingerprint" in self.columns else []
        return nearest(name, [*self.columns, *keys, *(f"config.{key}" for key in keys)], self.columns)

    def _check_experiment(self, experiment: str) -> None:
        from sqlalchemy import column

        if "experiment" not in self.columns:
            raise ValueError(f"{self._view} has no column 'experiment'")
        names = _select("v_runs", ["experiment"]).distinct().order_by(column("experiment"))
        known = [str(name) for name in self._connection.scalars(names)]
        if experiment not in known:
            near = nearest(experiment, known)
            raise ValueError(f"no experiment {experiment!r} in the results store: {near}")


def check(condition: Condition, source: Source) -> list[tuple[Key, Condition]]:
    """Refuse unknown names, and comparisons with a type that a key never has; errors name the place.

    Returns:
        The keys whose types only the rows themselves tell, and their tests.
    """
    untyped = []
    for test in condition.tests:
        compares = test.sign in _COMPARISONS
        for key in test.keys:
            try:
                source.getter(key.name)
            except ValueError as error:
                quoted = " (text is written in quotes)" if compares or test.sign == "like" else ""
                raise ValueError(f"{_place(key)}{error}{quoted}") from None
            if test.sign in ("=", "!=", "in") and (wrong := source.misspelt(key.name, test)) is not None:
                raise ValueError(f"{_place(key)}{wrong}")
            kinds = source.kinds(key.name)
            if kinds is None:
                untyped.append((key, test))
                continue
            check_kinds(key, test, kinds)
            other = test.parts[1] if compares else None
            if isinstance(other, Key) and other is not key:
                others = source.kinds(other.name)
                if kinds and others and not kinds & others:
                    one, two = (" and ".join(sorted(each)) for each in (kinds, others))
                    raise ValueError(
                        f"{_place(key)}{key.name!r} holds {one} and {other.name!r} {two}: "
                        "expected keys of one type"
                    )
    return untyped


def check_kinds(key: Key, test: Condition, kinds: set[str]) -> None:
    """Refuse a test that compares a key with a value of a type that it never has.

    Args:
        key: The key, an operand of the test.
        test: The test.
        kinds: The types that the key has; empty where it has no values.
    """
    if test.sign == "null" or not kinds:
        return
    for value in (True,) if test.sign == "true" else test.parts:
        if not isinstance(value, Key) and kind_of(value) not in kinds:
            holds = " and ".join(sorted(kinds))
            remedy = _remedy(value) if kinds & {"text", "number"} else "ask only whether it is null"
            raise ValueError(f"{_place(key)}{key.name!r} holds {holds}, not {kind_of(value)}: {remedy}")


def _place(key: Key) -> str:
    return f"where: character {key.position}: "


def _remedy(value: Value) -> str:
    """Return the remedy: how to write a value of the other type."""
    if isinstance(value, str):
        return "leave the quotes out" if _PLAIN.fullmatch(value) else "compare it with a number"
    return "put it in quotes" if not isinstance(value, bool) else "compare it with a text"


_PLAIN = re.compile(r"true|false|[+-]?[\d.]+", re.IGNORECASE)


def scalar_kind(value: object) -> str | None:
    """Return the type in which values can be compared: text, or number (also true and false); else None."""
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else None


def kind_of(value: object) -> str:
    """Name the type of a value: text, number, list or section."""
    return scalar_kind(value) or ("list" if isinstance(value, list) else "section")


_COMPARISONS = frozenset(("=", "!=", "<", "<=", ">", ">="))


def _conjuncts(condition: Condition) -> Iterator[Condition]:
    """Split a condition into parts that all have to hold."""
    if condition.sign == "and":
        for part in condition.parts:
            yield from _conjuncts(part)
    else:
        yield condition


def _in_sql(test: Condition, types: Mapping[str, str]) -> Any | None:
    """Translate a condition to SQL if every database gives it the same meaning; else None."""
    from sqlalchemy import column

    key, *right = test.parts
    if not isinstance(key, Key):
        return None
    name = key.name
    kind = types.get(name, "")
    if not all(_exact(kind, value) for value in right):
        return None
    if test.sign == "in":
        return column(name).in_(right)
    # Databases sort texts in many ways.
    if test.sign not in _COMPARISONS or (kind == "text" and test.sign != "="):
        return None
    return column(name).op(test.sign, is_comparison=True)(right[0])


def _exact(kind: str, value: Key | Value) -> bool:
    if isinstance(value, str):
        return kind == "text" and "\0" not in value
    return kind == "number" and not isinstance(value, Key | bool) and abs(value) < _EXACT


def _select(view: str, columns: Sequence[str]) -> Any:
    """Build a SELECT of some columns of a view."""
    from sqlalchemy import column, select, table

    return select(*(column(name) for name in columns)).select_from(table(view))


def _view(connection: Connection, name: str) -> tuple[str, dict[str, str]]:
    """Find a view by its name, and its columns: name → text, number, or empty if no type is declared."""
    from sqlalchemy import inspect, types

    inspector = inspect(connection)
    known = [
        found
        for found in (*inspector.get_view_names(), *inspector.get_table_names())
        if found.startswith("v_")
    ]
    view = next((candidate for candidate in (name, f"v_{name}") if candidate in known), None)
    if view is None:
        raise ValueError(f"no view {name!r}: {nearest(name, sorted(n.removeprefix('v_') for n in known))}")
    columns: dict[str, str] = {}
    for column in inspector.get_columns(view):
        declared, found = column["type"], column["name"]
        if isinstance(declared, types.String | types.DateTime):  # times are compared as text
            columns[found] = "text"
        elif isinstance(declared, types.Integer | types.Numeric | types.Boolean):
            columns[found] = "number"
        else:
            columns[found] = "number" if found.endswith(("_flops", "_hours")) else _COMPUTED.get(found, "")
    return view, columns


def _time(value: Any) -> datetime | None:
    """Parse a time, which SQLite keeps as text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _time_text(value: Any) -> str | None:
    """Write a time as SQLite keeps it, which sorts correctly."""
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else value
