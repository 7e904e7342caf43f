"""The language of conditions: SQL's boolean expressions, parsed by sqlglot. One file in two copies.

An example: `selection.rule = "joint" and seed < 3`.

A condition compares keys and constants. It has no functions, arithmetic, subqueries, or comments, and only
the reserved words of `_WORDS`. A key by itself holds if it is true, or a number other than 0. In a pattern, %
is any text and _ any character; case matters. As in SQL, a comparison with a missing value (null or NaN) is
unknown, and so is its negation.

NOTE: `jestlab.analysis.conditions` and `jestlab.models.data.conditions` are copies of one file, because
neither portion imports the other; tests/test_conditions.py compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from sqlglot import Dialect

LONGEST, MOST_NESTED = 10_000, 200
"""Limits of a condition: characters; parentheses and negations."""

_WORDS = ("AND", "OR", "NOT", "IN", "LIKE", "IS", "NULL", "TRUE", "FALSE")
_SIGNS = {"eq": "=", "neq": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}  # sqlglot's names → ours
_NAME = re.compile(r"[^\W\d]\w*(\.\w+)*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_OPERAND = "expected a key, a text in quotes, a number, true or false"

Value = str | int | float | bool
"""A constant in a condition."""


class ConditionError(ValueError):
    """An invalid condition. The message is one line; the place of the error comes first."""


@dataclass(frozen=True)
class Key:
    """A column or config key: its name without backquotes, and its place in the text, counted from 1."""

    name: str
    position: int


@dataclass(frozen=True)
class Condition:
    """A condition.

    Attributes:
        sign: "and", "or", or "not" of other conditions. Or a test: a comparison (=, !=, <, <=, >, >=), "in"
            (one of several constants), "like" (a pattern), "null" (is missing), "true" (holds by itself).
        parts: The other conditions; or the operands of a test, each a `Key` or a constant.
    """

    sign: str
    parts: tuple[Any, ...]

    @property
    def keys(self) -> list[Key]:
        """The keys among the operands."""
        return [operand for operand in self.parts if isinstance(operand, Key)]

    @property
    def tests(self) -> Iterator[Condition]:
        """The tests of a condition, in their order."""
        if self.sign not in ("and", "or", "not"):
            yield self
        else:
            for part in self.parts:
                yield from part.tests


def parse(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConditionError: The text is not a condition.
    """
    from sqlglot import ParseError, TokenError, exp

    if len(text) > LONGEST:
        raise ConditionError(f"{len(text):,} characters: must be at most {LONGEST:,}")
    try:
        tokens = _language().tokenize(text)
        nesting = [token for token in tokens if token.token_type.name in ("L_PAREN", "NOT")]
        if len(nesting) > MOST_NESTED:
            raise _error(text, nesting[MOST_NESTED].start, "nested too deeply")
        (node,) = _language().parser().parse_into(exp.Condition, tokens, text) if tokens else [None]
        return _condition(node)
    except TokenError:
        rest = _QUOTED.sub(lambda found: " " * len(found[0]), text)
        raise _error(text, re.search("['\"`]|$", rest).start(), "missing closing quote") from None  # type: ignore[union-attr]
    except ParseError as error:
        found = error.errors[0]
        before = text.splitlines(keepends=True)[: found["line"] - 1]
        end = sum(map(len, before)) + found["col"]
        is_cut = end == len(text.rstrip())  # then sqlglot names the last token
        expected = (
            "expected `)`" if found["description"] == "Expecting )" else "expected `and`, `or` or the end"
        )
        problem = _OPERAND if found["description"].startswith("Required") else expected
        raise _error(text, len(text) if is_cut else end - len(found["highlight"]), problem) from None
    except RecursionError:
        raise _error(text, 0, "nested too deeply") from None
    except _Refused as error:
        node, problem = error.args
        names = [] if node is None else [part.meta["start"] for part in node.walk() if "start" in part.meta]
        place = (
            names[0]
            if names
            else len(text)
            if node is None
            else text.lower().find((node.name or node.key).lower())
        )
        raise _error(text, max(0, place), problem) from None


def _error(text: str, position: int, problem: str) -> ConditionError:
    rest = text[position:]
    shown = "".join(c if c.isprintable() else " " for c in rest[:30]) + ("…" if len(rest) > 30 else "")
    return ConditionError(f"character {position + 1}, {f'at {shown!r}' if rest else 'at the end'}: {problem}")


@cache
def _language() -> Dialect:
    """Define the language for sqlglot: these tokens are all that its parser can use."""
    from sqlglot import Dialect, parser, tokens
    from sqlglot import TokenType as Type

    words: dict[str, Any] = {word: Type[word] for word in _WORDS}
    signs = {"==": Type.EQ, "!=": Type.NEQ, "<>": Type.NEQ, "<=": Type.LTE, ">=": Type.GTE}
    brackets = {"(": Type.L_PAREN, ")": Type.R_PAREN}
    brackets |= {**dict.fromkeys("[{", Type.L_BRACKET), **dict.fromkeys("]}", Type.R_BRACKET)}
    others = {",": Type.COMMA, "=": Type.EQ, "<": Type.LT, ">": Type.GT, "-": Type.DASH, "+": Type.PLUS}

    class Conditions(Dialect):
        NUMBERS_CAN_BE_UNDERSCORE_SEPARATED = True

        class Tokenizer(tokens.Tokenizer):
            QUOTES: ClassVar = ["'", '"']
            IDENTIFIERS: ClassVar = ["`"]
            STRING_ESCAPES: ClassVar = ["'", '"']
            IDENTIFIER_ESCAPES: ClassVar = ["`"]
            COMMENTS: ClassVar = []
            KEYWORDS = words | signs
            # A dotted name is one word, since a dot isn't a token.
            SINGLE_TOKENS = brackets | others | dict.fromkeys("'\"`", Type.UNKNOWN)

        class Parser(parser.Parser):
            FUNCTIONS = FUNCTION_PARSERS = NO_PAREN_FUNCTION_PARSERS = {}  # noqa: RUF012

    return Conditions()


class _Refused(Exception):
    """An expression that is not part of the language, and why."""


def _condition(node: Any) -> Condition:
    """Convert what sqlglot has parsed."""
    if node is None:
        raise _Refused(node, _OPERAND)
    if node.key in ("and", "or"):
        return Condition(node.key, tuple(map(_condition, node.flatten(unnest=False))))
    if node.key == "paren":
        return _condition(node.this)
    if node.key == "not" or node.args.get("negate"):
        node.set("negate", None)
        return Condition("not", (_condition(node.this if node.key == "not" else node),))
    if node.key == "column":
        return Condition("true", (_operand(node),))
    if node.key == "is" and node.expression.key == "null":
        return Condition("null", (_operand(node.this),))
    if node.key == "in" and not node.args.keys() - {"this", "expressions", "negate"}:
        return Condition("in", (_operand(node.this), *map(_constant, node.expressions)))
    if node.key == "like":
        if not node.expression.is_string:
            raise _Refused(node.expression, "expected a pattern in quotes")
        return Condition("like", (_operand(node.this), node.expression.this))
    if node.key in ("is", "in"):
        raise _Refused(None, "expected `null`" if node.key == "is" else "expected a list in parentheses")
    operands, signs = _chain(node)
    values = list(map(_operand, operands))
    if not signs:
        raise _Refused(None, "expected a comparison")
    found = [
        Condition(sign, (left, right)) for sign, left, right in zip(signs, values, values[1:], strict=False)
    ]
    return found[0] if len(found) == 1 else Condition("and", tuple(found))


def _chain(node: Any) -> tuple[list[Any], list[str]]:
    """Split `0 < a <= 3` into its operands and the signs between them."""
    if node.key not in _SIGNS:
        return [node], []
    (left, before), (right, after) = _chain(node.this), _chain(node.expression)
    return left + right, [*before, _SIGNS[node.key], *after]


def _operand(node: Any) -> Key | Value:
    if node.key != "column":
        return _constant(node)
    name, is_quoted = node.name, node.this.quoted
    if not is_quoted and re.fullmatch(r"\.\d+", name):
        return float(name)
    if not is_quoted and not _NAME.fullmatch(name):
        raise _Refused(node, _OPERAND)
    return Key(name, node.this.meta["start"] + 1)


def _constant(node: Any) -> Value:
    if node.key == "neg" and node.this.is_number:
        return -_constant(node.this)  # type: ignore[operator]
    if node.key == "boolean":
        return bool(node.this)
    if node.key == "null":
        raise _Refused(node, "to ask for null, write `is null` or `is not null`")
    if node.key != "literal":
        raise _Refused(node, "expected a value: put text in quotes; there are no functions and no arithmetic")
    if node.is_string:
        return str(node.this)
    if abs(float(node.this)) == float("inf"):
        raise _Refused(node, "number out of range")
    return int(node.this) if node.this.isdigit() else float(node.this)
