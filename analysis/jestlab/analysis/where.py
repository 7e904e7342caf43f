"""Conditions on rows of results: `selection.rule = "joint" and seed < 3`, parsed by a grammar, never run.

    condition  = both { "or" both }
    both       = negated { "and" negated }
    negated    = "not" negated | "(" condition ")" | test
    test       = key [ comparison ]
    comparison = ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
               | ["not"] "in" "(" value { "," value } ")"
               | ["not"] "like" text
               | "is" ["not"] "null"
    key        = name { "." name } | "`" anything "`"
    value      = text in single or double quotes, doubled within | number | "true" | "false"

A key alone is one that holds true, or a number that is not 0; true and false are 1 and 0. A comparison with
what is missing, or is of another type, is neither true nor false, as in SQL, and so is its opposite: such a
row is not kept.
"""

from __future__ import annotations

import fnmatch
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

LONGEST = 10_000
"""Characters of a condition."""

_DEEPEST = 50  # parentheses and negations within each other

Value = str | int | float | bool
"""What a key can be compared with."""

Row = Sequence[Any]
Getter = Callable[[Row], Any]
Truth = Callable[[Row], bool | None]
"""Whether a row satisfies a condition; None where that cannot be said."""


class WhereError(ValueError):
    """A text that is no condition, with the place in it; one line."""


@dataclass(frozen=True)
class Key:
    """The name of a column, or of a config key.

    Attributes:
        name: As written, without backquotes.
        position: Where in the text, from 1.
    """

    name: str
    position: int = field(default=0, compare=False)

    def __str__(self) -> str:
        plain = _NAME.fullmatch(self.name) and self.name.lower() not in _WORDS
        return self.name if plain else f"`{self.name}`"


@dataclass(frozen=True)
class Holds:
    """A key alone."""

    key: Key

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True)
class Compare:
    """A key beside a value."""

    key: Key
    operator: str  # a key of `_OPERATORS`
    value: Value

    def __str__(self) -> str:
        return f"{self.key} {self.operator} {_shown(self.value)}"


@dataclass(frozen=True)
class Among:
    """A key that has one of some values."""

    key: Key
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.key} in ({', '.join(map(_shown, self.values))})"


@dataclass(frozen=True)
class Like:
    """A text of a pattern, in which `%` is any text and `_` any character; case matters."""

    key: Key
    pattern: str

    def __str__(self) -> str:
        return f"{self.key} like {_shown(self.pattern)}"


@dataclass(frozen=True)
class Missing:
    """A key without a value."""

    key: Key

    def __str__(self) -> str:
        return f"{self.key} is null"


@dataclass(frozen=True)
class Not:
    """The opposite."""

    part: Condition

    def __str__(self) -> str:
        return f"not ({self.part})" if isinstance(self.part, And | Or) else f"not {self.part}"


@dataclass(frozen=True)
class And:
    """All of several conditions."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " and ".join(f"({p})" if isinstance(p, And | Or) else str(p) for p in self.parts)


@dataclass(frozen=True)
class Or:
    """Any of several conditions."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " or ".join(f"({p})" if isinstance(p, Or) else str(p) for p in self.parts)


Condition = Holds | Compare | Among | Like | Missing | Not | And | Or

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SPELLINGS = {"==": "=", "<>": "!="}
_WORDS = frozenset({"and", "or", "not", "in", "like", "is", "null", "true", "false"})
_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
_TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>'(?:[^']|'')*' | "(?:[^"]|"")*")
      | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<quoted>`[^`]+`)
      | (?P<name>[^\W\d]\w*(?:\.\w+)*)
      | (?P<sign>==|!=|<>|<=|>=|[=<>(),])""",
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str  # a group of `_TOKENS`, a word of the grammar, or "end"
    text: str
    start: int


def parse(text: str) -> Condition:
    """Read a condition.

    Args:
        text: As the module's grammar says.

    Raises:
        WhereError: It is none; the message names the place.
    """
    if len(text) > LONGEST:
        raise WhereError(f"where: {len(text):,} characters: at most {LONGEST:,}")
    return _Parser(text).whole()


class _Parser:
    """One method a rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_scan(text))
        self._next = 0
        self._depth = 0

    def whole(self) -> Condition:
        condition = self._condition()
        if self._token.kind != "end":
            self._fail("expected `and`, `or` or the end")
        return condition

    def _condition(self) -> Condition:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Condition:
        parts = [self._negated()]
        while self._take("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negated(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail("nested too deeply")
        try:
            if self._take("not"):
                return Not(self._negated())
            if self._take("("):
                condition = self._condition()
                self._expect(")")
                return condition
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Condition:
        key = self._key()
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            return Not(Missing(key)) if negated else Missing(key)
        if self._token.text in _OPERATORS or self._token.text in _SPELLINGS:
            sign = self._advance().text
            return Compare(key, _SPELLINGS.get(sign, sign), self._value())
        negated = self._take("not")
        if self._take("in"):
            test: Condition = self._among(key)
        elif self._take("like"):
            if self._token.kind != "text":
                self._fail("expected a pattern in quotes")
            test = Like(key, _unquoted(self._advance().text))
        elif negated:
            self._fail("expected `in` or `like`")
        else:
            return Holds(key)
        return Not(test) if negated else test

    def _among(self, key: Key) -> Among:
        self._expect("(")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._expect(")")
        return Among(key, tuple(values))

    def _key(self) -> Key:
        token = self._token
        if token.kind not in ("name", "quoted"):
            self._fail("expected the name of a column or config key")
        return Key(self._advance().text.strip("`"), token.start + 1)

    def _value(self) -> Value:
        token = self._token
        if token.kind == "null":
            self._fail("to ask for null, write `is null` or `is not null`")
        if token.kind in ("name", "quoted"):
            self._fail("expected a value: put text in quotes")
        if token.kind not in ("text", "number", "true", "false"):
            self._fail("expected a text in quotes, a number, true or false")
        if token.kind == "number":
            number = _number(token.text)
            if not math.isfinite(number):
                self._fail("a number out of range")
            self._advance()
            return number
        self._advance()
        return _unquoted(token.text) if token.kind == "text" else token.kind == "true"

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _advance(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _take(self, kind: str) -> bool:
        taken = self._token.kind == kind
        self._next += taken
        return taken

    def _expect(self, kind: str) -> None:
        if not self._take(kind):
            self._fail(f"expected `{kind}`")

    def _fail(self, problem: str) -> NoReturn:
        raise _error(self._text, self._token.start, problem)


def _scan(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            opened = text[position] in "'\"`"
            raise _error(text, position, "a quote without its end" if opened else "no part of a condition")
        kind, found = match.lastgroup or "", match.group()
        if kind == "name" and found.lower() in _WORDS:
            kind = found.lower()
        if kind != "space":
            yield _Token(found if kind == "sign" else kind, found, position)
        position = match.end()
    yield _Token("end", "", len(text))


def _error(text: str, start: int, problem: str) -> WhereError:
    rest = "".join(c if c.isprintable() else " " for c in text[start : start + 30])
    shown = f"at {rest + ('…' if len(text) > start + 30 else '')!r}" if rest else "at the end"
    return WhereError(f"where: character {start + 1}, {shown}: {problem}")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value.replace(chr(39), chr(39) * 2)}'" if isinstance(value, str) else repr(value)


# ---- what is asked of a row


def keys(condition: Condition) -> Iterator[tuple[Key, tuple[Value, ...]]]:
    """All keys, each with the values that it is compared with."""
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from keys(part)
        case Not(part):
            yield from keys(part)
        case Compare(key, _, value):
            yield key, (value,)
        case Among(key, values):
            yield key, values
        case Like(key, pattern):
            yield key, (pattern,)
        case Holds(key):
            yield key, (True,)
        case Missing(key):
            yield key, ()


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Conditions that all have to hold, together as much as the given one."""
    return condition.parts if isinstance(condition, And) else (condition,)


def predicate(condition: Condition, getter: Callable[[str], Getter]) -> Truth:
    """A condition as a function of rows.

    Args:
        condition: The condition.
        getter: For a key's name, the function that gets its value from a row; None is a missing one.
    """
    match condition:
        case And(parts):
            return _all([predicate(part, getter) for part in parts])
        case Or(parts):
            inverse = _all([_negation(predicate(part, getter)) for part in parts])
            return _negation(inverse)
        case Not(part):
            return _negation(predicate(part, getter))
        case Missing(key):
            get = getter(key.name)
            return lambda row: get(row) is None
        case Holds(key):
            return _holds(getter(key.name))
        case Compare(key, sign, value):
            return _compared(getter(key.name), _OPERATORS[sign], value)
        case Among(key, values):
            get = getter(key.name)
            return _negation(_all([_compared(get, operator.ne, value, other=True) for value in values]))
        case Like(key, pattern):
            return _like(getter(key.name), pattern)


def kind_of(value: object) -> str | None:
    """text, or number, which false and true are too: values of a kind can be compared. None for all else."""
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else None


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
    def truth(row: Row) -> bool | None:
        found = part(row)
        return None if found is None else not found

    return truth


def _holds(get: Getter) -> Truth:
    def truth(row: Row) -> bool | None:
        value = get(row)
        return bool(value) if isinstance(value, int | float) else None

    return truth


def _compared(
    get: Getter, compare: Callable[[Any, Any], bool], value: Value, other: bool | None = None
) -> Truth:
    """A comparison; `other` is said of a present value of another kind."""
    kind = kind_of(value)

    def truth(row: Row) -> bool | None:
        found = get(row)
        if kind_of(found) != kind:
            return None if found is None else other
        return compare(found, value)

    return truth


def _like(get: Getter, pattern: str) -> Truth:
    # fnmatch's expressions take linear time whatever the pattern, unlike `.*` in a row.
    wild = {"%": "*", "_": "?"}
    glob = "".join(wild.get(c, f"[{c}]" if c in "*?[" else c) for c in pattern)
    matches = re.compile(fnmatch.translate(glob)).match

    def truth(row: Row) -> bool | None:
        value = get(row)
        return matches(value) is not None if isinstance(value, str) else None

    return truth
