"""The language of conditions, SQL's boolean expressions: `selection.rule = "joint" and seed < 3`.

    condition  = "and", "or", "not" and parentheses over tests, with the precedence of SQL
    test       = key                                    holds where the key is true, or a number other than 0
               | operand { comparison operand }         = == != <> < <= > >=, also chained: 0 < seed <= 3
               | operand ["not"] "in" "(" values ")"    also in [ ] or { }
               | operand ["not"] "like" string          % is any text, _ any character; case matters
               | operand "is" ["not"] "null"
    operand    = key | value
    key        = name { "." name } | "`" anything "`"
    value      = string in single or double quotes, doubled within | number | "true" | "false"

Nothing else is accepted: no functions, arithmetic, subqueries or comments. Keywords may be written in any
case, and no other word is reserved. True and false are 1 and 0. A comparison with a missing value (null or
NaN) is neither true nor false, as in SQL, and so is its negation: such a row is not kept.

NOTE: `jestlab.analysis.conditions` and `jestlab.models.data.conditions` are copies of one file, because
neither portion imports the other; tests/test_conditions.py compares them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

LONGEST = 10_000
"""Maximum length of a condition, in characters."""

_DEEPEST = 50  # parentheses and negations within each other

Value = str | int | float | bool
"""A constant in a condition."""


class ConditionError(ValueError):
    """An invalid condition; the message is one line and begins with the place of the error."""


@dataclass(frozen=True)
class Key:
    """A column or config key.

    Attributes:
        name: Its name, without backquotes.
        position: Where it is in the text of the condition, in characters from 1.
    """

    name: str
    position: int


@dataclass(frozen=True)
class Test:
    """A test of operands.

    Attributes:
        sign: A comparison (=, !=, <, <=, > or >=), "in", "like", "null" (the operand is missing), or "true"
            (the operand is a key that holds by itself).
        left: The operand.
        right: What it is tested against: one operand, the constants of a list, one pattern, or nothing.
    """

    sign: str
    left: Key | Value
    right: tuple[Key | Value, ...] = ()

    @property
    def keys(self) -> list[Key]:
        """The keys among the operands."""
        return [operand for operand in (self.left, *self.right) if isinstance(operand, Key)]


@dataclass(frozen=True)
class Junction:
    """Conditions joined by "and" or "or", or one condition after "not"."""

    sign: str
    parts: tuple[Condition, ...]


Condition = Junction | Test


def tests(condition: Condition) -> Iterator[Test]:
    """Yield the tests of a condition, in their order."""
    if isinstance(condition, Test):
        yield condition
    else:
        for part in condition.parts:
            yield from tests(part)


def parse(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConditionError: The text is not a condition.
    """
    if len(text) > LONGEST:
        raise ConditionError(f"{len(text):,} characters: must be at most {LONGEST:,}")
    return _Parser(text).whole()


_TOKEN = re.compile(
    r"""(?P<number>([+-]\s*)?(\d+(_\d+)*(\.(\d+(_\d+)*)?)?|\.\d+(_\d+)*)(e[+-]?\d+)?)
    |(?P<string>'([^']|'')*'|"([^"]|"")*")
    |(?P<key>`([^`]|``)*`)
    |(?P<unclosed>['"`])
    |(?P<sign>==|!=|<>|<=|>=|[=<>])
    |(?P<word>[^\s()\[\]{}<>=!,'"`+-]+)
    |(?P<mark>\S)""",
    re.IGNORECASE | re.VERBOSE,
)
_NAME = re.compile(r"[^\W\d]\w*(\.\w+)*")
_KEYWORDS = frozenset(("and", "or", "not", "in", "like", "is", "null", "true", "false"))
_SIGNS = {"==": "=", "<>": "!="}
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_VALUE_EXPECTED = "expected a key, a text in quotes, a number, true or false"


class _Parser:
    """A recursive-descent parser: one method for each rule of the grammar, and one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_TOKEN.finditer(text))
        self._index = self._depth = 0
        for token in self._tokens:
            if token.lastgroup == "unclosed":
                self._fail("missing closing quote")
            self._index += 1
        self._index = 0

    def whole(self) -> Condition:
        condition = self._disjunction()
        if self._index < len(self._tokens):
            self._fail("expected `and`, `or` or the end")
        return condition

    def _disjunction(self) -> Condition:
        return self._junction("or", lambda: self._junction("and", self._negation))

    def _junction(self, sign: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._takes(sign):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Junction(sign, tuple(parts))

    def _negation(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail("nested too deeply")
        if self._takes("not"):
            condition: Condition = Junction("not", (self._negation(),))
        elif self._takes("("):
            condition = self._disjunction()
            self._expect(")", "`)`")
        else:
            condition = self._tests()
        self._depth -= 1
        return condition

    def _tests(self) -> Condition:
        """Parse a key alone, or comparisons: several if they are chained."""
        start = self._index
        found: list[Condition] = []
        left = self._operand()
        while self._kind == "sign":
            sign = self._next()
            right = self._operand()
            found.append(Test(_SIGNS.get(sign, sign), left, (right,)))
            left = right
        negated = self._takes("not")
        last = None
        if self._takes("in"):
            last = Test("in", left, self._values())
        elif self._takes("like"):
            if self._kind != "string":
                self._fail("expected a pattern in quotes")
            last = Test("like", left, (self._value(),))
        elif negated:
            self._fail("expected `in` or `like`")
        elif self._takes("is"):
            negated = self._takes("not")
            self._expect("null", "`null`")
            last = Test("null", left)
        elif not found and isinstance(left, Key):
            last = Test("true", left)
        elif not found:
            self._index = start
            self._fail("expected a key or a comparison")
        if last is not None:
            found.append(Junction("not", (last,)) if negated else last)
        return found[0] if len(found) == 1 else Junction("and", tuple(found))

    def _operand(self) -> Key | Value:
        if self._kind not in ("key", "word"):
            return self._value()
        if self._kind == "word" and not _NAME.fullmatch(self._word):
            self._fail("not part of a condition")
        position = self._place + 1
        name = self._next()
        return Key(name[1:-1].replace("``", "`") if name[0] == "`" else name, position)

    def _value(self) -> Value:
        if self._kind in ("true", "false"):
            return self._next().lower() == "true"
        if self._kind == "string":
            text = self._next()
            return text[1:-1].replace(2 * text[0], text[0])
        if self._kind == "null":
            self._fail("to ask for null, write `is null` or `is not null`")
        if self._kind != "number":
            is_name = self._kind in ("key", "word")
            self._fail("expected a value: put text in quotes" if is_name else _VALUE_EXPECTED)
        number = as_number("".join(self._word.split()))
        if not math.isfinite(number):
            self._fail("number out of range")
        self._index += 1
        return number

    def _values(self) -> tuple[Value, ...]:
        if self._word not in _BRACKETS:
            self._fail("expected `(`")
        end = _BRACKETS[self._next()]
        found: list[Value] = []
        while self._word != end:
            found.append(self._value())
            if not self._takes(","):
                break
        self._expect(end, "`,` or the end of the list")
        return tuple(found)

    @property
    def _word(self) -> str:
        """The text of the next token; empty at the end."""
        return self._tokens[self._index][0] if self._index < len(self._tokens) else ""

    @property
    def _kind(self) -> str:
        """The kind of the next token: a group of `_TOKEN`, or the keyword that it is."""
        if not self._word:
            return "end"
        word = self._word.lower()
        return word if word in _KEYWORDS else str(self._tokens[self._index].lastgroup)

    @property
    def _place(self) -> int:
        return self._tokens[self._index].start() if self._word else len(self._text)

    def _next(self) -> str:
        self._index += 1
        return self._tokens[self._index - 1][0]

    def _takes(self, word: str) -> bool:
        taken = self._word.lower() == word
        self._index += taken
        return taken

    def _expect(self, word: str, shown: str) -> None:
        if not self._takes(word):
            self._fail(f"expected {shown}")

    def _fail(self, problem: str) -> NoReturn:
        rest = self._text[self._place :]
        shown = "".join(c if c.isprintable() else " " for c in rest[:30]) + ("…" if len(rest) > 30 else "")
        raise ConditionError(
            f"character {self._place + 1}, {f'at {shown!r}' if rest else 'at the end'}: {problem}"
        )


def as_number(text: str) -> int | float:
    """Read a number, as an integer if it is one."""
    try:
        return int(text)
    except ValueError:
        return float(text)
