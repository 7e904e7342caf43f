"""Conditions on rows: `selection.rule = "joint" and seed < 3`, SQL's boolean expressions parsed by sqlglot.

    condition  = SQL's `and`, `or`, `not` and parentheses, over tests
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

NOTE: `jestlab.models.data.filters` reads the same language; tests/test_conditions.py compares the two.
"""

from __future__ import annotations

import fnmatch
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType as T

LONGEST = 10_000
"""Maximum length of a condition, in characters."""

_DEEPEST = 50  # parentheses and negations within each other

Value = str | int | float | bool
"""A constant in a condition."""

Row = Sequence[Any]
Getter = Callable[[Row], Any]
Truth = Callable[[Row], bool | None]
"""Whether a row satisfies a condition; None where that is unknown."""


class WhereError(ValueError):
    """An invalid condition; the message is one line and names the place of the error."""


# ---- the grammar

_COMPARISONS: dict[T, type[exp.Binary]] = {
    T.EQ: exp.EQ,
    T.NEQ: exp.NEQ,
    T.LT: exp.LT,
    T.LTE: exp.LTE,
    T.GT: exp.GT,
    T.GTE: exp.GTE,
}
_BRACKETS = {T.L_PAREN: T.R_PAREN, T.L_BRACKET: T.R_BRACKET, T.L_BRACE: T.R_BRACE}
_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
_CLOSED_QUOTES = re.compile(r"""(?:[^'"`]|'[^']*'|"[^"]*"|`[^`]*`)*""")


class _Conditions(Dialect):
    NUMBERS_CAN_BE_UNDERSCORE_SEPARATED = True

    class Tokenizer(tokens.Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`", '"']  # the parser takes those in double quotes for strings
        COMMENTS: ClassVar = []
        VAR_SINGLE_TOKENS: ClassVar = {"."}  # a dot within a name belongs to it
        SINGLE_TOKENS: ClassVar = {
            "(": T.L_PAREN,
            "[": T.L_BRACKET,
            "{": T.L_BRACE,
            ")": T.R_PAREN,
            "]": T.R_BRACKET,
            "}": T.R_BRACE,
            "=": T.EQ,
            "<": T.LT,
            ">": T.GT,
            ",": T.COMMA,
            ".": T.DOT,
            "-": T.DASH,
            "+": T.PLUS,
            "!": T.UNKNOWN,
            "'": T.UNKNOWN,
            '"': T.UNKNOWN,
            "`": T.UNKNOWN,
        }
        KEYWORDS: ClassVar = {
            "==": T.EQ,
            "!=": T.NEQ,
            "<>": T.NEQ,
            "<=": T.LTE,
            ">=": T.GTE,
            "AND": T.AND,
            "OR": T.OR,
            "NOT": T.NOT,
            "IN": T.IN,
            "LIKE": T.LIKE,
            "IS": T.IS,
            "NULL": T.NULL,
            "TRUE": T.TRUE,
            "FALSE": T.FALSE,
        }

    class Parser(parser.Parser):
        """Parse with sqlglot's `and` and `or` over the tests of this grammar alone."""

        EXPRESSION_PARSERS: ClassVar = {exp.Condition: lambda self: self.whole()}
        depth = 0

        def whole(self) -> exp.Expr:
            condition = self._parse_disjunction()
            if condition is None or self._index < self._tokens_size:
                self.fail("expected `and`, `or` or the end")
            return condition

        def _parse_equality(self, parse_is: bool = True) -> exp.Expr:
            """Parse what `and` and `or` join: a negation, parentheses, or tests."""
            self.depth += 1
            if self.depth > _DEEPEST:
                self.fail("nested too deeply")
            if self._match(T.NOT):
                condition: exp.Expr = exp.Not(this=self._parse_equality())
            elif self._match(T.L_PAREN):
                condition = exp.Paren(this=self._parse_disjunction())
                self.expect(T.R_PAREN, "`)`")
            else:
                condition, *others = self.tests()
                for other in others:
                    condition = exp.And(this=condition, expression=other)
            self.depth -= 1
            return condition

        def tests(self) -> list[exp.Expr]:
            """Parse a key alone, or comparisons: several if they are chained."""
            start = self._index
            found: list[exp.Expr] = []
            left = self.operand()
            while self._match_set(_COMPARISONS):
                comparison = _COMPARISONS[self._prev.token_type]
                right = self.operand()
                found.append(comparison(this=left, expression=right))
                left = right.copy()
            negated = self._match(T.NOT)
            last: exp.Expr | None = None
            if self._match(T.IN):
                last = exp.In(this=left, expressions=self.values())
            elif self._match(T.LIKE):
                last = exp.Like(this=left, expression=self.pattern())
            elif negated:
                self.fail("expected `in` or `like`")
            elif self._match(T.IS):
                negated = self._match(T.NOT)
                self.expect(T.NULL, "`null`")
                last = exp.Is(this=left, expression=exp.Null())
            elif not found and isinstance(left, exp.Column):
                last = left
            elif not found:
                self._retreat(start)
                self.fail("expected a key or a comparison")
            if last is not None:
                found.append(exp.Not(this=last) if negated else last)
            return found

        def operand(self) -> exp.Expr:
            """Parse a key or a value."""
            token = self._curr
            backquoted = self.opens("`")
            if not backquoted and token.token_type != T.VAR:
                return self.value()
            if not backquoted and not _NAME.fullmatch(token.text):
                self.fail("not part of a condition")
            self._advance()
            name = exp.Identifier(this=token.text, quoted=backquoted)
            return exp.Column(this=name.update_positions(token))

        def value(self) -> exp.Expr:
            """Parse a string, a number with or without a sign, true or false."""
            token, start = self._curr, self._index
            if token.token_type == T.STRING or self.opens('"'):
                self._advance()
                return exp.Literal.string(token.text)
            if self._match_set((T.TRUE, T.FALSE)):
                return exp.Boolean(this=token.token_type == T.TRUE)
            sign = "-" if self._match(T.DASH) else "+"
            if sign == "+":
                self._match(T.PLUS)
            point = "." if self._match(T.DOT) else ""
            digits = self._curr.text
            if self._curr.token_type != T.NUMBER:
                self._retreat(start)
                if token.token_type == T.NULL:
                    self.fail("to ask for null, write `is null` or `is not null`")
                if token.token_type == T.VAR or self.opens("`"):
                    self.fail("expected a value: put text in quotes")
                self.fail("expected a key, a text in quotes, a number, true or false")
            if not math.isfinite(_number(sign + point + digits)):
                self._retreat(start)
                self.fail("number out of range")
            self._advance()
            return exp.Literal.number(sign + point + digits)

        def values(self) -> list[exp.Expr]:
            if not self._match_set(_BRACKETS):
                self.fail("expected `(`")
            end = _BRACKETS[self._prev.token_type]
            found: list[exp.Expr] = []
            while self._curr.token_type != end:
                found.append(self.value())
                if not self._match(T.COMMA):
                    break
            self.expect(end, "`,` or the end of the list")
            return found

        def pattern(self) -> exp.Expr:
            if self._curr.token_type != T.STRING and not self.opens('"'):
                self.fail("expected a pattern in quotes")
            return self.value()

        def opens(self, quote: str) -> bool:
            """Tell whether the current token is an identifier in such quotes."""
            return self._curr.token_type == T.IDENTIFIER and self.sql[self._curr.start] == quote

        def expect(self, token: T, shown: str) -> None:
            if not self._match(token):
                self.fail(f"expected {shown}")

        def fail(self, problem: str) -> NoReturn:
            ended = self._index >= self._tokens_size
            raise _error(self.sql, len(self.sql) if ended else self._curr.start, problem)


def parse(text: str) -> exp.Expr:
    """Parse a condition.

    Args:
        text: A condition in the grammar of this module.

    Returns:
        Its syntax tree: And, Or, Not and Paren, over Column and the tests EQ, NEQ, LT, LTE, GT, GTE, In, Like
        and Is, whose operands are Column, Literal, Neg and Boolean.

    Raises:
        WhereError: It is not a condition; the message names the place.
    """
    if len(text) > LONGEST:
        raise WhereError(f"where: {len(text):,} characters: at most {LONGEST:,}")
    dialect = _Conditions()
    try:
        found = dialect.parser().parse_into(exp.Condition, dialect.tokenize(text), text)[0]
    except TokenError:
        closed = _CLOSED_QUOTES.match(text)
        raise _error(text, closed.end() if closed else 0, "missing closing quote") from None
    assert found is not None
    return found


def _error(text: str, start: int, problem: str) -> WhereError:
    rest = "".join(c if c.isprintable() else " " for c in text[start : start + 30])
    shown = f"at {rest + ('…' if len(text) > start + 30 else '')!r}" if rest else "at the end"
    return WhereError(f"where: character {start + 1}, {shown}: {problem}")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


# ---- what is asked of a row

_OPERATORS: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def constant(node: exp.Expr) -> Value | None:
    """Return the value of a constant operand; None for a key."""
    match node:
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            return str(node.this) if node.is_string else _number(node.this)
        case exp.Neg():  # as sqlglot keeps a negative number
            return -_number(node.this.this)
    return None


def position(column: exp.Column) -> int:
    """Return the position of a key in the text of its condition, in characters from 1."""
    return int(column.this.meta["start"]) + 1


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Split a condition into parts that all have to hold."""
    return condition.flatten() if isinstance(condition, exp.And) else iter((condition,))


def predicate(condition: exp.Expr, getter: Callable[[str], Getter]) -> Truth:
    """Compile a condition to a function of rows.

    Args:
        condition: From `parse`.
        getter: For a key's name, the function that gets its value from a row; None or NaN is a missing one.
    """

    def operand(node: exp.Expr) -> Getter:
        if isinstance(node, exp.Column):
            get = getter(node.name)
            return lambda row: _present(get(row))
        value = constant(node)
        return lambda row: value

    match condition:
        case exp.And():
            return _all([predicate(part, getter) for part in condition.flatten()])
        case exp.Or():
            return _negation(_all([_negation(predicate(part, getter)) for part in condition.flatten()]))
        case exp.Paren():
            return predicate(condition.this, getter)
        case exp.Not():
            return _negation(predicate(condition.this, getter))
        case exp.Column():
            get = operand(condition)
            return lambda row: bool(found) if isinstance(found := get(row), int | float) else None
        case exp.Is():
            get = operand(condition.this)
            return lambda row: get(row) is None
        case exp.In():
            get, values = operand(condition.this), [constant(value) for value in condition.expressions]
            return lambda row: None if (found := get(row)) is None else found in values
        case exp.Like():
            return _like(operand(condition.this), str(condition.expression.this))
    compare = _OPERATORS[type(condition)]
    left, right = operand(condition.this), operand(condition.expression)

    def truth(row: Row) -> bool | None:
        a, b = left(row), right(row)
        return compare(a, b) if kind_of(a) == kind_of(b) is not None else None

    return truth


def kind_of(value: object) -> str | None:
    """Return the type in which values can be compared: text, or number (also true and false); else None."""
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else None


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


def _like(get: Getter, pattern: str) -> Truth:
    # fnmatch's expressions take linear time whatever the pattern, unlike `.*` in a row.
    wild = {"%": "*", "_": "?"}
    glob = "".join(wild.get(c, f"[{c}]" if c in "*?[" else c) for c in pattern)
    matches = re.compile(fnmatch.translate(glob)).match
    return lambda row: matches(found) is not None if isinstance(found := get(row), str) else None
