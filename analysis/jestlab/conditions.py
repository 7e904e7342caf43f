"""The condition language of data filters and result queries, such as `seed < 3`: a subset of SQL.

A condition, parsed by sqlglot, compares keys with constants or other keys. It has no functions, arithmetic,
subqueries, or comments. A key by itself holds if it is true or a number other than 0. In a pattern, % matches
any text and _ any character; case matters. As in SQL, a comparison with a missing value (null or NaN) is
unknown, and so is its negation.

`analysis` uses it for queries, and `models` for filters of data; neither package imports the other.
"""

from __future__ import annotations

import operator
import re
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from sqlglot import Dialect, Expr

LONGEST, MOST_PARTS = 10_000, 200
"""Maximum number of characters of a condition, and of its opening parentheses, `not`, `and`, and `or`."""

LOGIC = ("and", "or", "not", "paren")
COMPARISONS = {
    "eq": operator.eq,
    "neq": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
"""Comparisons: sqlglot's `key` of a node → the operator in Python."""

_WORDS = ("AND", "OR", "NOT", "IN", "LIKE", "IS", "NULL", "TRUE", "FALSE")
_NAME = re.compile(r"[^\W\d]\w*(\.\w+)*")
_OPERAND = "expected a key, a text in quotes, a number such as 0.5, true or false"
_EXPECTED = {"Required": _OPERAND, "Expectin": "expected `)`"}
"""First eight characters of sqlglot's message → our message."""


def parse(text: str) -> Expr:
    """Parse a condition.

    Returns:
        The root node. Its `key` is one of `LOGIC`, whose children are conditions; one of `COMPARISONS`, "in",
        "like", or "is" (null), whose children are operands; or "column", a key of the data by itself.

    Raises:
        ValueError: The text is not a condition. The message starts with the position of the error.
    """
    from sqlglot import ParseError, TokenError, exp

    if len(text) > LONGEST:
        raise ValueError(f"{len(text):,} characters: must be at most {LONGEST:,}")
    try:
        tokens = _language().tokenize(text)
    except TokenError:
        raise _error(text, len(text), "missing closing quote") from None
    parts = [token for token in tokens if token.token_type.name in ("L_PAREN", "NOT", "AND", "OR")]
    if len(parts) > MOST_PARTS:
        raise _error(text, parts[MOST_PARTS].start, f"expected at most {MOST_PARTS} parts")
    if not tokens:
        raise _error(text, 0, _OPERAND)
    try:
        parser = _language().parser(error_message_context=LONGEST)
        (tree,) = parser.parse_into(exp.Condition, tokens, text)
    except RecursionError:
        raise _error(text, 0, "nested too deeply") from None
    except ParseError as error:
        first = error.errors[0]
        problem = _EXPECTED.get(first["description"][:8])
        is_cut = problem and not first["end_context"].strip()  # sqlglot reports the last token instead
        index = len(text) if is_cut else len(first["start_context"])
        raise _error(text, index, problem or "expected `and`, `or` or the end") from None
    assert tree is not None
    for node in tree.walk():
        if (problem := _problem(node)) is not None:
            raise _error(text, place(node), problem)
    return tree


def operands(test: Expr) -> list[Any]:
    """Return the operands of a test: a node for each key, a Python value for each constant."""
    parts = [test] if test.key == "column" else test.iter_expressions()
    values = [part if part.key == "column" else part.to_py() for part in parts]
    return [float(value) if isinstance(value, Decimal) else value for value in values]


def is_key(operand: Any) -> bool:
    """Return whether an operand is a key (a node with a `name`), not a constant."""
    return getattr(operand, "key", None) == "column"


def place(node: Expr) -> int:
    """Return the index of a node's first character in the text."""
    starts = (part.meta["start"] for part in node.walk() if "start" in part.meta)
    return min(starts, default=place(node.parent) if node.parent else 0)


def _error(text: str, index: int, problem: str) -> ValueError:
    rest = text[index:]
    shown = "".join(c if c.isprintable() else " " for c in rest[:30]) + ("…" if len(rest) > 30 else "")
    return ValueError(f"character {index + 1}, {f'at {shown!r}' if rest else 'at the end'}: {problem}")


def _problem(node: Expr) -> str | None:
    """Return why a node is not part of the language; None if it is."""
    parent = node.parent.key if node.parent else "paren"
    if node.key == "identifier" or (node.key == "boolean" and parent not in LOGIC):
        return None
    if node.key == "column" and not (node.arg_key == "expressions" and parent == "in"):
        return None if node.this.quoted or _NAME.fullmatch(node.name) else _OPERAND
    if parent in LOGIC:
        if node.key == "in" and node.args.keys() - {"this", "expressions"}:
            return "expected a list in parentheses"
        if node.key == "is" and node.expression.key != "null":
            return "expected `null`"
        if node.key == "like" and not node.expression.is_string:
            return "expected a pattern in quotes"
        is_known = node.key in (*LOGIC, *COMPARISONS, "in", "is", "like")
        return None if is_known else "expected a comparison; there are no functions and no arithmetic"
    if node.key == "null":
        return None if parent == "is" else "to ask for null, write `is null` or `is not null`"
    if node.is_number:
        is_finite = node.key == "neg" or float(node.this) < float("inf")
        return None if is_finite else "number out of range"
    return None if node.is_string else "expected a key or a constant: put text in quotes; join tests by `and`"


@cache
def _language() -> Dialect:
    """Define the language for sqlglot, whose parser then recognizes only these tokens."""
    from sqlglot import Dialect, exp, parser, tokens
    from sqlglot import TokenType as Type

    words: dict[str, Any] = {word: Type[word] for word in _WORDS}
    signs = {"==": Type.EQ, "!=": Type.NEQ, "<>": Type.NEQ, "<=": Type.LTE, ">=": Type.GTE}
    others = {"(": Type.L_PAREN, ")": Type.R_PAREN, ",": Type.COMMA, "-": Type.DASH, "+": Type.PLUS}

    class Conditions(Dialect):
        class Tokenizer(tokens.Tokenizer):
            QUOTES: ClassVar = ["'", '"']
            IDENTIFIERS: ClassVar = ["`"]
            STRING_ESCAPES: ClassVar = ["'", '"']
            IDENTIFIER_ESCAPES: ClassVar = ["`"]
            COMMENTS: ClassVar = []
            KEYWORDS = words | signs
            # A dotted name is one word, since a dot isn't a token.
            SINGLE_TOKENS = others | {"=": Type.EQ, "<": Type.LT, ">": Type.GT}
            SINGLE_TOKENS |= dict.fromkeys("'\"`", Type.UNKNOWN)

        class Parser(parser.Parser):
            FUNCTIONS = FUNCTION_PARSERS = NO_PAREN_FUNCTION_PARSERS = {}  # noqa: RUF012

            def _negate_range(self, this: Any = None) -> Any:
                return exp.Not(this=this)

    return Conditions()
