"""Filters on metadata: SQL's boolean expressions compiled to PyArrow, such as `similarity > 0.3`.

    condition  = SQL's `and`, `or`, `not` and parentheses, over tests
    test       = column                                 holds where it is true, or a number other than 0
               | operand { comparison operand }         = == != <> < <= > >=, also chained: 0 < width <= 64
               | operand ["not"] "in" "(" values ")"    also in [ ] or { }
               | operand ["not"] "like" string          % is any text, _ any character; case matters
               | operand "is" ["not"] "null"
    operand    = column | value
    column     = name { "." name } | "`" anything "`"
    value      = string in single or double quotes, doubled within | number | "true" | "false"

Nothing else is accepted: no functions, arithmetic, subqueries or comments. Keywords may be written in any
case, and no other word is reserved. True and false are 1 and 0. A comparison with a missing value (null or
NaN) is neither true nor false, as in SQL, and so is its negation: such a row is not kept.

NOTE: `jestlab.analysis.conditions` reads the same language; tests/test_conditions.py compares the two.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType as T

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

_LONGEST = 10_000  # characters
_DEEPEST = 50  # parentheses and negations within each other
_EXAMPLE = "write one like \"similarity > 0.3 and aesthetic > 5 and noise not in ('blank', 'vague')\""


@dataclass(frozen=True)
class Filter:
    """A condition on the columns of a table, in the language of this module.

    Attributes:
        text: The expression, with single spaces.
        tree: Its syntax tree.
    """

    text: str
    tree: exp.Expr

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Parse an expression. Needs no PyArrow, because plans parse filters.

        Args:
            text: The expression.

        Raises:
            ValueError: It is not a condition; the message names the place.
        """
        if len(text) > _LONGEST:
            raise ValueError(f"filter of {len(text):,} characters: must be at most {_LONGEST:,}")
        dialect = _Conditions()
        try:
            tree = dialect.parser().parse_into(exp.Condition, dialect.tokenize(text), text)[0]
        except TokenError:
            closed = _CLOSED_QUOTES.match(text)
            raise _error(text, closed.end() if closed else 0, "missing closing quote") from None
        assert tree is not None
        return cls(" ".join(text.split()), tree)

    @property
    def columns(self) -> list[str]:
        """The names of the columns that it reads, sorted."""
        return sorted({column.name for column in self.tree.find_all(exp.Column)})

    def compile(self, schema: pa.Schema) -> pc.Expression:
        """Compile to a PyArrow expression, which is null where the condition is neither true nor false.

        Args:
            schema: Types of the table's columns; has all of `columns`.

        Raises:
            ValueError: A column is compared with a value of another type.
        """
        return _Compiler(self.text, schema).condition(self.tree)


def missing_column(columns: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the first column that metadata lack, with the nearest that they have; None if they have all.

    Args:
        columns: Names of the columns that are read.
        known: Names of the columns that exist.

    Returns:
        "column 'simlarity': did you mean 'similarity'?", for the end of a message.
    """
    for column in columns:
        if column not in known:
            near = difflib.get_close_matches(column, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
            return f"column {column!r}: {hint}"
    return None


def _error(text: str, start: int, problem: str) -> ValueError:
    shown = "".join(c if c.isprintable() else " " for c in text[start : start + 30])
    where = f"character {start + 1}, at {shown!r}" if shown else "at the end"
    whole = " ".join(text.split())
    whole = whole if len(whole) <= 200 else whole[:200] + "…"
    return ValueError(f"filter {whole!r}: {where}: {problem}; {_EXAMPLE}")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _constant(node: exp.Expr) -> str | int | float:
    """The value of a constant operand; true and false are 1 and 0."""
    if isinstance(node, exp.Boolean):
        return int(node.this)
    if isinstance(node, exp.Neg):  # as sqlglot keeps a negative number
        return -_number(node.this.this)
    return str(node.this) if node.is_string else _number(node.this)


class _Compiler:
    """Compiles a syntax tree for tables of one schema.

    Types are made alike here, because PyArrow casts an integer column to float32 where a constant fits it
    exactly, and then refuses values above 2^24.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._text, self._schema, self._pa, self._pc = text, schema, pa, pc
        self._unknown = pc.scalar(pa.scalar(None, pa.bool_()))

    def condition(self, node: exp.Expr) -> pc.Expression:
        match node:
            case exp.And() | exp.Or():
                whole, *others = [self.condition(part) for part in node.flatten()]
                for part in others:
                    whole = whole & part if isinstance(node, exp.And) else whole | part
                return whole
            case exp.Not():
                return ~self.condition(node.this)
            case exp.Paren():
                return self.condition(node.this)
            case exp.Column():
                return self._where_present([node], self._truth(node))
            case exp.Is():
                return ~self._present([node.this])
            case exp.In():
                return self._where_present([node.this], self._among(node.this, node.expressions))
            case exp.Like():
                return self._where_present([node.this], self._like(node.this, node.expression))
        operands = [node.this, node.expression]
        return self._where_present(operands, self._compared(_OPERATORS[type(node)], *operands))

    def _present(self, operands: Sequence[exp.Expr]) -> pc.Expression:
        """Whether no operand is missing; NaN counts as missing."""
        present = self._pc.scalar(True)
        for node in operands:
            if isinstance(node, exp.Column):
                present = present & ~self._pc.field(node.name).is_null(nan_is_null=True)
        return present

    def _where_present(self, operands: Sequence[exp.Expr], test: pc.Expression) -> pc.Expression:
        return self._pc.if_else(self._present(operands), test, self._unknown)

    def _truth(self, node: exp.Column) -> pc.Expression:
        if self._pa.types.is_boolean(self._schema.field(node.name).type):
            return self._pc.field(node.name)
        return self._compared(operator.ne, node, exp.Literal.number("0"))

    def _compared(self, compare: Any, left: exp.Expr, right: exp.Expr) -> pc.Expression:
        kinds = self._kind(left), self._kind(right)
        if "null" in kinds:
            return self._unknown
        if set(kinds) == {"integer", "float"}:
            left_value, right_value = (self._as_float(node) for node in (left, right))
        else:
            if {"text", "integer"} == set(kinds) or {"text", "float"} == set(kinds):
                raise self._mismatch(left, right)
            left_value, right_value = (self._value(node) for node in (left, right))
        found: pc.Expression = compare(left_value, right_value)
        return found

    def _among(self, node: exp.Expr, listed: Sequence[exp.Expr]) -> pc.Expression:
        """Whether an operand equals one of some constants."""
        among = self._pc.scalar(False)
        for constant in listed:
            among = among | self._compared(operator.eq, node, constant)
        return among

    def _like(self, node: exp.Expr, pattern: exp.Expr) -> pc.Expression:
        if self._kind(node) == "null":
            return self._unknown
        if self._kind(node) != "text":
            raise self._mismatch(node, pattern)
        escaped = str(pattern.this).replace("\\", "\\\\")  # our language has no escape character
        return self._pc.match_like(self._value(node), escaped)

    def _kind(self, node: exp.Expr) -> str:
        """ "integer" (Booleans, too), "float", "text", "null" (a column without any value), or "other"."""
        if not isinstance(node, exp.Column):
            value = _constant(node)
            if isinstance(value, str):
                return "text"
            return "integer" if float(value).is_integer() and abs(value) < 2**63 else "float"
        is_type, found = self._pa.types, self._schema.field(node.name).type
        if is_type.is_dictionary(found):
            found = found.value_type
        if is_type.is_integer(found) or is_type.is_boolean(found):
            return "integer"
        if is_type.is_floating(found) or is_type.is_decimal(found):
            return "float"
        if is_type.is_string(found) or is_type.is_large_string(found) or is_type.is_string_view(found):
            return "text"
        return "null" if is_type.is_null(found) else "other"

    def _value(self, node: exp.Expr) -> pc.Expression:
        """An operand; columns of categories and of Booleans are converted to their values."""
        if not isinstance(node, exp.Column):
            convert = {"integer": int, "float": float, "text": str}[self._kind(node)]
            return self._pc.scalar(convert(_constant(node)))
        field, found = self._pc.field(node.name), self._schema.field(node.name).type
        if self._pa.types.is_dictionary(found):
            return field.cast(found.value_type)
        return field.cast(self._pa.int8()) if self._pa.types.is_boolean(found) else field

    def _as_float(self, node: exp.Expr) -> pc.Expression:
        """A number as float64."""
        return self._value(node).cast(self._pa.float64(), safe=False)

    def _mismatch(self, left: exp.Expr, right: exp.Expr) -> ValueError:
        column, other = (left, right) if isinstance(left, exp.Column) else (right, left)
        name = column.name if isinstance(column, exp.Column) else repr(_constant(column))
        is_text = "text" if self._kind(column) == "text" else "a number"
        shown = other.name if isinstance(other, exp.Column) else repr(_constant(other))
        return ValueError(
            f"filter {self._text!r}: {name} is {is_text} and cannot be compared with {shown}: put text in "
            "quotes, and write numbers without"
        )


# ---- the grammar, the same as in `jestlab.analysis.conditions`

_COMPARISONS: dict[T, type[exp.Binary]] = {
    T.EQ: exp.EQ,
    T.NEQ: exp.NEQ,
    T.LT: exp.LT,
    T.LTE: exp.LTE,
    T.GT: exp.GT,
    T.GTE: exp.GTE,
}
_OPERATORS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = dict(
    zip(
        _COMPARISONS.values(),
        (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
        strict=True,
    )
)
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
        """sqlglot's `and` and `or` over the tests of this grammar alone."""

        EXPRESSION_PARSERS: ClassVar = {exp.Condition: lambda self: self.whole()}
        depth = 0

        def whole(self) -> exp.Expr:
            condition = self._parse_disjunction()
            if condition is None or self._index < self._tokens_size:
                self.fail("expected `and`, `or` or the end")
            return condition

        def _parse_equality(self, parse_is: bool = True) -> exp.Expr:
            """What `and` and `or` join: a negation, parentheses, or tests."""
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
            """A key alone, or comparisons: several where they are chained."""
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
            """A key or a value."""
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
            """A string, a number with or without a sign, true or false."""
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
            """Whether the current token is an identifier in such quotes."""
            return self._curr.token_type == T.IDENTIFIER and self.sql[self._curr.start] == quote

        def expect(self, token: T, shown: str) -> None:
            if not self._match(token):
                self.fail(f"expected {shown}")

        def fail(self, problem: str) -> NoReturn:
            ended = self._index >= self._tokens_size
            raise _error(self.sql, len(self.sql) if ended else self._curr.start, problem)
