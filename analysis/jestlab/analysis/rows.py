"""Rows of one view of the store: their columns, the config keys of their runs, and conditions on both."""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from .conditions import COMPARISONS, LOGIC, is_key, operands, place
from .configs import lookup, parsed
from .units import nearest

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlglot import Expr

Row = Sequence[Any]
Getter = Callable[[Row], Any]
Truth = Callable[[Row], bool | None]
"""Whether a row satisfies a condition; None if unknown."""

_JSON = ("config", "point", "versions", "environment")
"""JSON columns, whose keys can be named with dots."""

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
"""Columns by which rows are sorted by default, where a view has them."""

_MEASURED = {"v_evaluations": ("name", "dataset", "metric"), "v_metrics": ("name",), "v_latest": ("name",)}
"""View → columns with names of metrics: an unknown name is a spelling error."""

_TAGS = ("tag", "tags")
"""Names of a key that views don't have as a column: the tags of the row's run and experiment."""


class Tags(tuple[str, ...]):
    """Tags of a row. A test of them holds if it holds for one tag."""


class StoreView:
    """A view. Its SELECT fetches the columns that `getter` was asked for."""

    def __init__(self, connection: Connection, name: str, experiment: str | None) -> None:
        from sqlalchemy import inspect

        inspector = inspect(connection)
        names = (*inspector.get_view_names(), *inspector.get_table_names())
        known = sorted(found.removeprefix("v_") for found in names if found.startswith("v_"))
        if name.removeprefix("v_") not in known:
            raise ValueError(f"no view {name!r}: {nearest(name, known)}")
        self.name = f"v_{name.removeprefix('v_')}"
        self.columns = [str(column["name"]) for column in inspector.get_columns(self.name)]
        self._connection, self._fetched = connection, dict[str, int]()
        self._experiment: str | None = None
        if experiment is not None:
            if "experiment" not in self.columns:
                raise ValueError(f"{self.name} has no column 'experiment'")
            experiments = sorted({str(found) for (found,) in self._select("v_runs", ["experiment"])})
            if experiment not in experiments:
                near = nearest(experiment, experiments)
                raise ValueError(f"no experiment {experiment!r} in the results store: {near}")
            self._experiment = experiment

    def getter(self, name: str) -> Getter:
        """Return a function that gets the value of a column, config key, or `tags` from a fetched row.

        Raises:
            ValueError: The name is unknown.
        """
        head, _, key = name.partition(".")
        if name in self.columns:
            index = self._index(name)
            return (lambda row: _time_text(row[index])) if name.endswith("_at") else lambda row: row[index]
        if key and head in _JSON and head != "config" and head in self.columns:
            return self._key_of(head, key)
        if name in _TAGS and not {"fingerprint", "experiment"}.isdisjoint(self.columns):
            return self._tags()
        key = name.removeprefix("config.")
        if "fingerprint" in self.columns and any(f"{known}.".startswith(f"{key}.") for known in self.keys):
            index = self._index("fingerprint")
            by_run = {fingerprint: lookup(tree, key) for fingerprint, (tree, _) in self._configs.items()}
            return lambda row: by_run.get(row[index])
        keys = self.keys if "fingerprint" in self.columns else []
        near = nearest(name, [*self.columns, *keys, *(f"config.{key}" for key in keys)], self.columns)
        raise ValueError(f"no column or config key {name!r} in {self.name}: {near}")

    def expand(self, names: Iterable[str]) -> list[str]:
        """Expand `*` (all columns) and `config.*` (all config keys below) in a list of columns."""
        expanded: list[str] = []
        for name in names:
            section = name.removesuffix("*")
            keys = [*(f"config.{key}" for key in self.keys), *self.keys] if section != name else [name]
            found = self.columns if name == "*" else [key for key in keys if key.startswith(section)]
            if not found:
                raise ValueError(f"no config key {name!r}: {nearest(section, keys, self.columns)}")
            expanded += found
        return list(dict.fromkeys(expanded))

    def rows(self) -> Iterator[Row]:
        """Fetch all rows, of the experiment if one was given, in the view's order."""
        order = [name for name in _ORDER if name in self.columns]
        return self._select(self.name, list(self._fetched) or self.columns[:1], order)

    @cached_property
    def keys(self) -> list[str]:
        """Dotted keys of all configs."""
        distinct = dict.fromkeys(keys for _, keys in self._configs.values())  # most runs have the same keys
        return list(dict.fromkeys(key for keys in distinct for key in keys))

    @cached_property
    def _configs(self) -> Mapping[str, tuple[dict[str, Any], tuple[str, ...]]]:
        """Fingerprint of each run → its config, and the config's dotted keys."""
        rows = self._select("v_runs", ["fingerprint", "config"])
        return {fingerprint: parsed(config) for fingerprint, config in rows if config}

    def _key_of(self, column: str, key: str) -> Getter:
        index = self._index(column)

        @cache  # few texts differ
        def get(text: str | None) -> Any:
            tree = json.loads(text) if text else None
            # The names of packages may contain dots.
            return tree[key] if isinstance(tree, dict) and key in tree else lookup(tree, key)

        return lambda row: get(row[index])

    def _tags(self) -> Getter:
        tags: dict[str, set[str]] = {}
        notes = self._select("v_notes", ["fingerprint", "experiment", "text", "kind"])
        for fingerprint, experiment, text, kind in notes:
            subject = f"experiment {experiment}" if fingerprint is None else fingerprint
            if kind == "tag":
                tags.setdefault(subject, set()).add(text)
        places = [
            (prefix, self._index(name))
            for prefix, name in (("", "fingerprint"), ("experiment ", "experiment"))
            if name in self.columns
        ]
        return lambda row: Tags(
            sorted(set().union(*(tags.get(f"{prefix}{row[index]}", ()) for prefix, index in places)))
        )

    def _index(self, column: str) -> int:
        """Fetch a column, and return its index in the fetched rows."""
        return self._fetched.setdefault(column, len(self._fetched))

    def _select(self, view: str, columns: Sequence[str], order: Sequence[str] = ()) -> Iterator[Row]:
        from sqlalchemy import column, select, table

        statement: Any = select(*map(column, columns)).select_from(table(view)).order_by(*map(column, order))
        if self._experiment is not None and view in (self.name, "v_runs"):
            statement = statement.where(column("experiment") == self._experiment)
        return map(tuple, self._connection.execute(statement))


def matching(view: StoreView, condition: Expr) -> list[Row]:
    """Return the rows that satisfy a condition.

    Raises:
        ValueError: The condition names an unknown key, or compares a key with a value of a type that the key
            has in no row, or with the name of a metric that no row has. The message names the place.
    """
    tests = [node for node in condition.walk() if _is_test(node)]
    getters: dict[str, Getter] = {}
    for test in tests:
        for key in _keys(test):
            try:
                getters[key.name] = view.getter(key.name)
            except ValueError as error:
                hint = " (text is written in quotes)" if test.key != "column" else ""
                raise ValueError(f"{_place(key)}{error}{hint}") from None
    measured = {name: get for name, get in getters.items() if name in _MEASURED.get(view.name, ())}
    types: dict[str, set[type]] = {name: set() for name in getters}
    names: dict[str, set[Any]] = {name: set() for name in measured}
    holds, found = predicate(condition, getters.__getitem__), []
    for row in view.rows():
        for name, get in getters.items():
            types[name].add(type(get(row)))
        for name, get in measured.items():
            names[name].add(get(row))
        if holds(row):
            found.append(row)
    kinds = {name: {_kind(each) for each in types[name] - {type(None)}} for name in types}
    for test in tests:
        _check_types(test, kinds)
        for key in _keys(test) if test.key in ("eq", "neq", "in") else ():
            known = names.get(key.name, set())
            for value in operands(test) if known else ():
                if isinstance(value, str) and value not in known:
                    near = nearest(value, sorted(map(str, known)))
                    raise ValueError(f"{_place(key)}no row has {key.name} {value!r}: {near}")
    return found


def _is_test(node: Expr) -> bool:
    if node.key == "column":
        return node.parent is None or node.parent.key in LOGIC
    return node.key in COMPARISONS or node.key in ("in", "like", "is")


def _keys(test: Expr) -> list[Any]:
    return [operand for operand in operands(test) if is_key(operand)]


def _place(key: Expr) -> str:
    return f"where: character {place(key) + 1}: "


def _check_types(test: Expr, kinds: Mapping[str, set[str]]) -> None:
    """Refuse a comparison of values that have no type in common."""
    values = [True, *operands(test)] if test.key == "column" else operands(test)
    for key in _keys(test):
        for value in values if kinds[key.name] and test.key != "is" else ():
            others = kinds[value.name] if is_key(value) else {_kind(type(value))}
            if others and not others & kinds[key.name]:
                holds, other = (" and ".join(sorted(each)) for each in (kinds[key.name], others))
                hint = "" if is_key(value) else ": write text in quotes, and numbers without"
                raise ValueError(f"{_place(key)}{key.name!r} holds {holds}, not {other}{hint}")


def _kind(type_: type) -> str:
    """Return the kind of a type: values of one kind can be compared."""
    if issubclass(type_, int | float | Decimal):
        return "number"
    names = {"str": "text", "Tags": "text", "dict": "section"}
    return names.get(type_.__name__, type_.__name__)


def predicate(condition: Expr, getter: Callable[[str], Getter]) -> Truth:
    """Compile a condition to a function of rows.

    Args:
        condition: From `conditions.parse`.
        getter: Returns the function that gets a key's value from a row; None and NaN are missing values.
    """
    node = condition.unnest()
    if node.key == "not":
        inner = predicate(node.this, getter)
        return lambda row: None if (truth := inner(row)) is None else not truth
    if node.key in LOGIC:
        decisive = node.key == "or"
        left, right = predicate(node.this, getter), predicate(node.expression, getter)

        def both(row: Row) -> bool | None:
            first = left(row)
            if first is decisive:
                return first
            second = right(row)
            return second if second is decisive or first is not None else None

        return both
    get, *others = [getter(each.name) if is_key(each) else _constant(each) for each in operands(node)]
    test = _TESTS.get(node.key) or partial(_compared, COMPARISONS[node.key])

    def truth(row: Row) -> bool | None:
        value, rest = _present(get(row)), [_present(other(row)) for other in others]
        if not isinstance(value, Tags):
            return test(value, *rest)
        if node.key == "is":
            return not value
        # A run without tags is known not to have a tag, unlike a run with a missing value.
        holds = all if node.key == "neq" else any
        return holds(test(tag, *rest) is True for tag in value)

    return truth


def _constant(value: Any) -> Getter:
    return lambda row: value


def _present(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _compared(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool | None:
    kind = _kind(type(left))
    is_comparable = kind in ("number", "text") and kind == _kind(type(right))
    return compare(left, right) if is_comparable else None


def _like(value: Any, pattern: str) -> bool | None:
    return _matcher(pattern)(value) is not None if isinstance(value, str) else None


@lru_cache
def _matcher(pattern: str) -> Callable[[str], Any]:
    # Regular expressions of fnmatch take linear time for any pattern, unlike several `.*`.
    wildcards = {"%": "*", "_": "?"}
    glob = "".join(wildcards.get(c, f"[{c}]" if c in "*?[" else c) for c in pattern)
    return re.compile(fnmatch.translate(glob)).match


_TESTS: dict[str, Callable[..., bool | None]] = {
    "column": lambda value: bool(value) if isinstance(value, int | float) else None,
    "is": lambda value, null: value is None,
    "in": lambda value, *listed: None if value is None else value in listed,
    "like": _like,
}


def rank(value: Any) -> tuple[int, Any] | None:
    """Return a key to sort a value by: numbers before text; None for values without an order."""
    if isinstance(value, Tags):
        value = ", ".join(value) or None
    kind = _kind(type(_present(value)))
    return (kind == "text", value) if kind in ("number", "text") else None


def shown(name: str, value: Any) -> Any:
    """Convert a value for output: times are times, nested values are JSON text."""
    if isinstance(value, Tags):
        return ", ".join(value) or None
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return datetime.fromisoformat(value) if name.endswith("_at") and isinstance(value, str) else value


def _time_text(value: Any) -> Any:
    """Write a time as SQLite stores it; such texts sort by time."""
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else value
