"""Rows of one view of the store: their columns, the config keys of their runs, and conditions on both."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import String, column, inspect, literal_column, select, table

from jestlab.conditions import COMPARISONS, LOGIC, is_key, operands, parse, place

from .configs import lookup, parsed
from .units import near, nearest

if TYPE_CHECKING:
    from sqlglot import Expr

    from .results import Snapshot

Row = Sequence[Any]
Getter = Callable[[Row], Any]
Truth = Callable[[Row], bool | None]
"""Whether a row satisfies a condition; None if unknown."""

_ORDER = (
    "experiment", "source", "table_name", "position", "label", "seed", "name", "number", "step", "created_at",
)  # fmt: skip
"""Columns by which rows are sorted by default, where a view has them."""

_TEXT = (
    "experiment || '/' || label || '/' || seed || ' ' || fingerprint || ' ' || state || ' ' || "
    "coalesce(reason, '')"
)
"""The text of a run that is searched for words, in SQL."""

_NAMES = frozenset({"experiment", "run", "label", "program", "name", "dataset", "metric", "source"})
"""Columns of names, whose misspelled values are errors."""


class Tags(tuple[str, ...]):
    """The tags of a row's run and experiment. A test holds if it holds for one tag; `!=` if for all."""


class StoreView:
    """A view of the store. `rows` fetches only the columns that `getter` was asked for."""

    def __init__(self, store: Snapshot, name: str, experiment: str | None, words: Sequence[str] = ()) -> None:
        inspector = inspect(store.connection)
        names = (*inspector.get_view_names(), *inspector.get_table_names())
        known = sorted(view.removeprefix("v_") for view in names if view.startswith("v_"))
        if name.removeprefix("v_") not in known:
            raise ValueError(f"no view {name!r}: {nearest(name, known)}")
        self.name = f"v_{name.removeprefix('v_')}"
        self.columns = [str(column["name"]) for column in inspector.get_columns(self.name)]
        if experiment is not None:
            store.check_known(experiment)
            if "experiment" not in self.columns:
                raise ValueError(f"{self.name} has no column 'experiment'")
        self._store, self._experiment, self._words = store, experiment, words
        self._fetched: dict[str, int] = {}  # column → its index in the fetched rows

    def getter(self, name: str) -> Getter:
        """Return a function that gets the value of a column, config key, or `tags` from a fetched row.

        Raises:
            ValueError: The name is unknown.
        """
        columns, decode = self._source(name)
        pick = itemgetter(*(self._fetched.setdefault(column, len(self._fetched)) for column in columns))
        return pick if decode is None else lambda row: decode(pick(row))

    def _source(self, name: str) -> tuple[list[str], Callable[[Any], Any] | None]:
        """Return the columns that a name depends on, and a function from their values to the name's value."""
        if name in self.columns:
            return [name], _time_text if name.endswith("_at") else None
        places: list[str] = [column for column in ("fingerprint", "experiment") if column in self.columns]
        if name in ("tag", "tags") and places:
            return places, self._tags_of
        key = name.removeprefix("config.")
        keys = self.keys if "fingerprint" in self.columns else []
        if key in keys:
            values = {run: lookup(tree, key) for run, (tree, _) in self._configs.items()}
            return ["fingerprint"], values.get
        near = nearest(name, [*self.columns, *keys, *(f"config.{key}" for key in keys)], self.columns)
        raise ValueError(f"no column or config key {name!r} in {self.name}: {near}")

    def expand(self, names: Iterable[str]) -> list[str]:
        """Replace names such as `config.*` and `selection.*` by all config keys in that section."""
        expanded: list[str] = []
        for name in names:
            section = name.removesuffix("*")
            keys = [*(f"config.{key}" for key in self.keys), *self.keys] if section != name else [name]
            if not (matches := [key for key in keys if key.startswith(section)]):
                raise ValueError(f"no config key {name!r}: {nearest(section, keys, self.columns)}")
            expanded += matches
        return list(dict.fromkeys(expanded))

    def rows(self) -> Iterator[Row]:
        """Fetch all rows, or those of the given experiment, in the order of `_ORDER`."""
        order = [name for name in _ORDER if name in self.columns]
        return self._select(self.name, list(self._fetched) or self.columns[:1], order, self._words)

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

    @cached_property
    def _tags(self) -> Mapping[str, set[str]]:
        """Fingerprint of a run, or name of an experiment → its tags."""
        tags: dict[str, set[str]] = {}
        for row in self._store.rows("SELECT fingerprint, experiment, text FROM v_notes WHERE kind = 'tag'"):
            tags.setdefault(row["fingerprint"] or row["experiment"], set()).add(row["text"])
        return tags

    def _tags_of(self, places: str | tuple[str, ...]) -> Tags:
        places = (places,) if isinstance(places, str) else places
        return Tags(sorted({tag for each in places for tag in self._tags.get(each, ())}))

    def _select(
        self, view: str, columns: Sequence[str], order: Sequence[str] = (), words: Sequence[str] = ()
    ) -> Iterator[Row]:
        statement: Any = select(*map(column, columns)).select_from(table(view)).order_by(*map(column, order))
        if self._experiment is not None:
            statement = statement.where(column("experiment") == self._experiment)
        for word in words:
            statement = statement.where(literal_column(_TEXT, String).icontains(word, autoescape=True))
        return map(tuple, self._store.connection.execute(statement))


def matching(view: StoreView, where: str) -> list[Row]:
    """Return the rows that satisfy a condition.

    Raises:
        ValueError: The condition is invalid, names an unknown key, or compares a key with a value of a type
            that the key has in no row; or no row matches, and a name, such as that of a metric, is in no row
            but resembles one that is. The message gives the position.
    """
    try:
        condition = parse(where)
    except ValueError as error:
        raise ValueError(f"where: {error}") from None
    tests = [node for node in condition.walk() if _is_test(node)]
    getters: dict[str, Getter] = {}
    for key in (operand for test in tests for operand in operands(test) if is_key(operand)):
        try:
            getters[key.name] = view.getter(key.name)
        except ValueError as error:
            raise _error(key, f"{error} (text is written in quotes)") from None
    types: dict[str, set[type]] = {name: set() for name in getters}
    holds, kept = predicate(condition, getters.__getitem__), []
    for row in view.rows():
        for name, get in getters.items():
            types[name].add(type(get(row)))
        if holds(row):
            kept.append(row)
    kinds = {name: {_kind(type_) for type_ in types[name] - {type(None)}} for name in types}
    for test in tests:
        _check_types(test, kinds)
        if not kept and test.key in ("eq", "in"):
            _check_names(test, lambda name: {getters[name](row) for row in view.rows()})
    return kept


def _is_test(node: Expr) -> bool:
    if node.key == "column":
        return node.parent is None or node.parent.key in LOGIC
    return node.key in COMPARISONS or node.key in ("in", "like", "is")


def _error(key: Expr, problem: str) -> ValueError:
    return ValueError(f"where: character {place(key) + 1}: {problem}")


def _check_types(test: Expr, kinds: Mapping[str, set[str]]) -> None:
    """Reject a comparison of values that have no type in common."""
    values = [True, *operands(test)] if test.key == "column" else operands(test)
    for key in filter(is_key, operands(test)):
        for value in values if kinds[key.name] and test.key != "is" else ():
            others = kinds[value.name] if is_key(value) else {_kind(type(value))}
            if others and not others & kinds[key.name]:
                holds, other = (" and ".join(sorted(each)) for each in (kinds[key.name], others))
                hint = "" if is_key(value) else ": write text in quotes, and numbers without"
                raise _error(key, f"{key.name!r} holds {holds}, not {other}{hint}")


def _check_names(test: Expr, known: Callable[[str], set[str]]) -> None:
    """Reject a comparison of a column of names with a name that is in no row, but resembles one that is."""
    key, *names = sorted(operands(test), key=is_key, reverse=True)
    values = known(key.name) - {None} if is_key(key) and key.name in _NAMES else set()
    for name in names:
        if isinstance(name, str) and name not in values and (suggestion := near(name, values)):
            raise _error(key, f"no {key.name} {name!r}: {suggestion}")


def _kind(type_: type) -> str:
    """Return the kind of a type: values of one kind can be compared."""
    if issubclass(type_, int | float | Decimal):
        return "number"
    return {"str": "text", "Tags": "text"}.get(type_.__name__, type_.__name__)


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

        def combined(row: Row) -> bool | None:
            first = left(row)
            if first is decisive:
                return first
            second = right(row)
            return second if second is decisive or first is not None else None

        return combined
    get, *others = [getter(part.name) if is_key(part) else _constant(part) for part in operands(node)]
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


_GLOB = str.maketrans({"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"})


def _like(value: Any, pattern: str) -> bool | None:
    # fnmatch takes linear time for any pattern, unlike several `.*` of a regular expression.
    return fnmatchcase(value, pattern.translate(_GLOB)) if isinstance(value, str) else None


_TESTS: dict[str, Callable[..., bool | None]] = {
    "column": lambda value: bool(value) if isinstance(value, int | float) else None,
    "is": lambda value, null: value is None,
    "in": lambda value, *listed: None if value is None else value in listed,
    "like": _like,
}


def rank(value: Any) -> tuple[int, Any] | None:
    """Return a key to sort a value by: numbers before text; None for values without an order."""
    value = shown("", value) if isinstance(value, Tags) else _present(value)
    kind = _kind(type(value))
    return (kind == "text", value) if kind in ("number", "text") else None


def shown(name: str, value: Any) -> Any:
    """Convert a value for output: texts of times to times, tags to one text, and nested values to JSON."""
    if isinstance(value, Tags):
        return ", ".join(value) or None
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return datetime.fromisoformat(value) if name.endswith("_at") and isinstance(value, str) else value


def _time_text(value: Any) -> Any:
    """Write a time as SQLite stores it; such texts sort by time."""
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else value
