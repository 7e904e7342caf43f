"""The language of conditions, SQL's boolean expressions; one file in two copies.

An example: `selection.rule = "joint" and seed < 3`.

Nothing is accepted but the grammar below: no functions, arithmetic, subqueries or comments. Keywords may be
written in any case, and no other word is reserved. A key by itself holds where it is true, or a number
other than 0. True and false are 1 and 0. In a pattern, % is any text and _ any character; case matters. A
comparison with a missing value (null or NaN) is neither true nor false, as in SQL, and so is its negation:
such a row is not kept.

NOTE: `jestlab.analysis.conditions` and `jestlab.models.data.conditions` are copies of one file, because
neither portion imports the other; tests/test_conditions.py compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from lark import Lark, Token

LONGEST = 10_000
"""Maximum length of a condition, in characters."""

_DEEPEST = 50  # conditions within each other

_GRAMMAR = r"""
    ?start: disjunction | _NEVER OTHER
    ?disjunction: conjunction (_OR conjunction)*
    ?conjunction: factor (_AND factor)*
    ?factor: NOT factor -> negation | LPAR disjunction ")" -> group | tests

    tests: key -> holds | operand comparison+ | operand comparison* last_test
    comparison: SIGN operand
    ?last_test: [NOT] _IN values -> within | [NOT] _LIKE string -> like | _IS [NOT] _NULL -> missing
    values: "(" _values? ")" | "[" _values? "]" | "{" _values? "}"
    _values: value ("," value)* ","?

    ?operand: key | value
    key: NAME -> name | QUOTED -> quoted_name
    ?value: string | NUMBER -> number | _TRUE -> true | _FALSE -> false
    string: STRING

    _OR: /or(?![\w.])/i
    _AND: /and(?![\w.])/i
    NOT: /not(?![\w.])/i
    _IN: /in(?![\w.])/i
    _LIKE: /like(?![\w.])/i
    _IS: /is(?![\w.])/i
    _NULL: /null(?![\w.])/i
    _TRUE: /true(?![\w.])/i
    _FALSE: /false(?![\w.])/i
    NAME: /(?!(and|or|not|in|like|is|null|true|false)(?![\w.]))[^\W\d]\w*(\.\w+)*/i
    QUOTED: /`([^`]|``)*`/
    STRING: /'([^']|'')*'|"([^"]|"")*"/
    NUMBER: /([+-]\s*)?(\d+(_\d+)*(\.(\d+(_\d+)*)?)?|\.\d+(_\d+)*)(e[+-]?\d+)?/i
    SIGN: "==" | "!=" | "<>" | "<=" | ">=" | "=" | "<" | ">"
    LPAR: "("
    OTHER.-1: /\S/
    %declare _NEVER
    %ignore /\s+/
"""
"""The grammar, for lark. OTHER is part of no condition: it makes every text a series of tokens, so that all
errors are found by the parser, which knows what it expects."""

_SIGNS = {"==": "=", "<>": "!="}

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
    from lark.exceptions import UnexpectedToken

    if len(text) > LONGEST:
        raise ConditionError(f"{len(text):,} characters: must be at most {LONGEST:,}")
    try:
        return cast(Condition, _parser().parse(text))
    except UnexpectedToken as error:
        position = len(text) if error.token.type == "$END" else error.token.start_pos or 0
        raise _error(text, position, _problem(error.token, error.accepts or set())) from None
    except _TokenError as error:
        raise _error(text, error.token.start_pos or 0, str(error)) from None


def _error(text: str, position: int, problem: str) -> ConditionError:
    rest = text[position:]
    shown = "".join(c if c.isprintable() else " " for c in rest[:30]) + ("…" if len(rest) > 30 else "")
    return ConditionError(f"character {position + 1}, {f'at {shown!r}' if rest else 'at the end'}: {problem}")


def _problem(token: Token, accepted: set[str]) -> str:
    """Say what was expected in place of a token, given the types of the tokens that can stand there."""
    if token.type == "OTHER" and token in "'\"`":
        return "missing closing quote"
    if "NUMBER" in accepted and token.type == "_NULL":
        return "to ask for null, write `is null` or `is not null`"
    if "NAME" not in accepted and "NUMBER" in accepted and token.type in ("NAME", "QUOTED"):
        return "expected a value: put text in quotes"
    expected = {
        "$END": "`and`, `or` or the end",
        "NUMBER": "a key, a text in quotes, a number, true or false",
        "_AND": "`and`, `or` or `)`",
        "SIGN": "a comparison",
        "_LIKE": "`in` or `like`",
        "STRING": "a pattern in quotes",
        "_NULL": "`null`",
        "COMMA": "`,` or the end of the list",
        "LPAR": "`(`",
        "RPAR": "`)`",
    }
    return next(f"expected {text}" for type_, text in expected.items() if type_ in accepted)


class _TokenError(Exception):
    def __init__(self, token: Token, problem: str) -> None:
        super().__init__(problem)
        self.token = token


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(_GRAMMAR, parser="lalr", maybe_placeholders=True, transformer=cast(Any, _Builder()))


class _Builder:
    """Builds a condition: one method for each rule of the grammar, given what its parts have become.

    A test is on its way as (sign, what is tested against, whether it is negated); its left operand is that of
    the comparison, or the right one of the comparison before it.
    """

    def disjunction(self, parts: list[Condition]) -> Condition:
        return Junction("or", tuple(parts))

    def conjunction(self, parts: list[Condition]) -> Condition:
        return Junction("and", tuple(parts))

    def negation(self, parts: list[Any]) -> Condition:
        return _not_too_deep(parts[0], Junction("not", (parts[1],)))

    def group(self, parts: list[Any]) -> Condition:
        return _not_too_deep(parts[0], parts[1])

    def holds(self, parts: list[Key]) -> Condition:
        return Test("true", parts[0])

    def tests(self, parts: list[Any]) -> Condition:
        left, *rest = parts
        found: list[Condition] = []
        for sign, right, negated in rest:
            test = Test(sign, left, right)
            found.append(Junction("not", (test,)) if negated else test)
            left = right[0] if right else left
        return found[0] if len(found) == 1 else Junction("and", tuple(found))

    def comparison(self, parts: list[Any]) -> tuple[str, Any, bool]:
        return _SIGNS.get(parts[0], str(parts[0])), (parts[1],), False

    def within(self, parts: list[Any]) -> tuple[str, Any, bool]:
        return "in", parts[1], parts[0] is not None

    def like(self, parts: list[Any]) -> tuple[str, Any, bool]:
        return "like", (parts[1],), parts[0] is not None

    def missing(self, parts: list[Any]) -> tuple[str, Any, bool]:
        return "null", (), parts[0] is not None

    def values(self, parts: list[Value]) -> tuple[Value, ...]:
        return tuple(parts)

    def name(self, parts: list[Token]) -> Key:
        return Key(str(parts[0]), (parts[0].start_pos or 0) + 1)

    def quoted_name(self, parts: list[Token]) -> Key:
        return Key(parts[0][1:-1].replace("``", "`"), (parts[0].start_pos or 0) + 1)

    def string(self, parts: list[Token]) -> str:
        quote = parts[0][0]
        return parts[0][1:-1].replace(2 * quote, quote)

    def number(self, parts: list[Token]) -> int | float:
        digits = "".join(parts[0].split())
        try:
            number: int | float = int(digits)
        except ValueError:
            number = float(digits)
        if abs(number) > sys.float_info.max:
            raise _TokenError(parts[0], "number out of range")
        return number

    def true(self, _: object) -> bool:
        return True

    def false(self, _: object) -> bool:
        return False


def _not_too_deep(token: Token, condition: Condition) -> Condition:
    def depth(condition: Condition) -> int:
        return 0 if isinstance(condition, Test) else 1 + max(map(depth, condition.parts))

    if depth(condition) > _DEEPEST:
        raise _TokenError(token, "nested too deeply")
    return condition
