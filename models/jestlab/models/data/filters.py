"""Filter expressions: "similarity > 0.3 and aesthetic > 5", parsed by whitelist, never run as Python."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.compute as pc

_LONGEST = 10_000  # characters
_EXAMPLE = "write one like \"similarity > 0.3 and aesthetic > 5 and noise not in ('blank', 'vague')\""
_METHODS: dict[type[ast.cmpop], str] = {
    ast.Lt: "__lt__",
    ast.LtE: "__le__",
    ast.Gt: "__gt__",
    ast.GtE: "__ge__",
    ast.Eq: "__eq__",
    ast.NotEq: "__ne__",
}


@dataclass(frozen=True)
class Filter:
    """A condition on the columns of a table.

    Grammar: comparisons (`<`, `<=`, `>`, `>=`, `==`, `!=`, chained or not) of columns with numbers, strings
    and each other; `in` and `not in` with a list of constants; a Boolean column alone; `and`, `or`, `not`,
    parentheses. Nothing else: no calls, attributes, subscripts or arithmetic.

    Attributes:
        text: The expression.
        tree: Its syntax tree, checked.
    """

    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Parse an expression, and refuse whatever is not one.

        Args:
            text: The expression.

        Raises:
            ValueError: It is none; the message quotes the part that is not.
        """
        read = cls.read(text)
        try:
            read.compile()
        except (RecursionError, MemoryError):
            raise _too_deep(text) from None
        return read

    @classmethod
    def read(cls, text: str) -> Filter:
        """The expression's syntax alone, without PyArrow: enough to know its columns, where plans are made.

        Args:
            text: The expression.

        Raises:
            ValueError: It is no expression.
        """
        if len(text) > _LONGEST:
            raise ValueError(f"filter of {len(text)} characters: at most {_LONGEST}")
        text = " ".join(text.split())
        try:
            return cls(text, ast.parse(text, mode="eval").body)
        except SyntaxError as error:
            raise ValueError(f"filter {text!r}: {error.msg}; {_EXAMPLE}") from None
        except (RecursionError, MemoryError):
            raise _too_deep(text) from None

    @property
    def columns(self) -> list[str]:
        """Names of the columns it reads, sorted."""
        return sorted({node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)})

    def compile(self) -> pc.Expression:
        """As a PyArrow expression, in which a comparison with a missing value is not satisfied."""
        return _compile(self.tree, self.text)


def missing_column(columns: Sequence[str], known: Sequence[str]) -> str | None:
    """The first column that metadata lack, with the nearest that they have; None if they have all.

    Args:
        columns: Those that are read.
        known: Those that are there.

    Returns:
        "column 'simlarity': did you mean 'similarity'?", for the end of a message.
    """
    for column in columns:
        if column not in known:
            near = difflib.get_close_matches(column, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
            return f"column {column!r}: {hint}"
    return None


def _too_deep(text: str) -> ValueError:
    return ValueError(f"filter {text[:60]!r}…: nested too deeply")


def _compile(node: ast.expr, text: str) -> pc.Expression:
    """A condition: and/or/not, a comparison, or the name of a Boolean column."""
    import pyarrow.compute as pc

    match node:
        case ast.BoolOp(op=joint, values=values):
            whole = _compile(values[0], text)
            for value in values[1:]:
                part = _compile(value, text)
                whole = whole & part if isinstance(joint, ast.And) else whole | part
            return whole
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_compile(operand, text)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            whole = _compare(left, ops[0], comparators[0], node, text)
            for first, op, second in zip(comparators, ops[1:], comparators[1:], strict=False):
                whole = whole & _compare(first, op, second, node, text)
            return whole
        case ast.Name(id=name):
            return pc.field(name)
    raise _refusal(node, text)


def _compare(left: ast.expr, op: ast.cmpop, right: ast.expr, whole: ast.Compare, text: str) -> pc.Expression:
    """One comparison of two operands."""
    if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple | ast.Set):
        import pyarrow as pa
        import pyarrow.compute as pc

        value = _operand(left, text)
        # `isin` says false of a missing value, and its negation true; SQL says neither.
        among = pc.if_else(
            value.is_valid(),
            value.isin([_constant(element, text) for element in right.elts]),
            pc.scalar(pa.scalar(None, pa.bool_())),
        )
        return ~among if isinstance(op, ast.NotIn) else among
    if type(op) not in _METHODS:
        raise _refusal(whole, text)
    compared: pc.Expression = getattr(_operand(left, text), _METHODS[type(op)])(_operand(right, text))
    return compared


def _operand(node: ast.expr, text: str) -> pc.Expression:
    """A column or a constant."""
    import pyarrow.compute as pc

    return pc.field(node.id) if isinstance(node, ast.Name) else pc.scalar(_constant(node, text))


def _constant(node: ast.expr, text: str) -> float | str:
    """The value of a number, with or without a sign, a string or a Boolean."""
    match node:
        case ast.Constant(value=bool() | float() | str() as value):
            return value
        case ast.Constant(value=int() as value) if abs(value) < 2**63:
            return value
        case ast.UnaryOp(
            op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as value)
        ):
            if not isinstance(value, bool) and abs(value) < 2**63:
                return -value if isinstance(sign, ast.USub) else value
    raise _refusal(node, text)


def _refusal(node: ast.expr, text: str) -> ValueError:
    """What is wrong with a part of a filter."""
    part = ast.get_source_segment(text, node) or text
    return ValueError(
        f"filter {text!r}: {part!r} is not a comparison of a column with a number or string; {_EXAMPLE}"
    )
