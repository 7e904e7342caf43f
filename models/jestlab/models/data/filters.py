"""Filters on metadata, such as `similarity > 0.3`: conditions on columns, evaluated by PyArrow."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jestlab.conditions import COMPARISONS, LOGIC, is_key, operands, parse

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from sqlglot import Expr

_EXAMPLE = "write one like \"similarity > 0.3 and aesthetic > 5 and noise not in ('blank', 'vague')\""


@dataclass(frozen=True)
class Filter:
    """A condition on the columns of a table, in the language of `conditions`.

    Attributes:
        text: The expression, with single spaces.
        condition: The parsed expression.
    """

    text: str
    condition: Expr

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Parse an expression. Needs no PyArrow, because plans parse filters.

        Raises:
            ValueError: It is not a condition; the message names the place.
        """
        whole = " ".join(text.split())
        try:
            return cls(whole, parse(text))
        except ValueError as error:
            raise ValueError(f"filter {whole[:200]!r}: {error}; {_EXAMPLE}") from None

    @property
    def columns(self) -> list[str]:
        """The names of the columns that the condition reads, sorted."""
        return sorted({node.name for node in self.condition.walk() if node.key == "column"})

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table that satisfy the condition.

        Args:
            table: Has all of `columns`. In the result, these columns are integers, float64, or strings.

        Raises:
            ValueError: The condition compares values that aren't comparable, such as texts and numbers.
        """
        import pyarrow as pa

        try:
            for name in self.columns:
                try:
                    converted = _converted(table[name])
                except ValueError as error:
                    raise ValueError(f"filter {self.text!r}: column {name!r} {error}") from None
                table = table.set_column(table.column_names.index(name), name, converted)
            return table.filter(_compile(self.condition, table.schema))
        except (pa.ArrowException, TypeError):
            types = ", ".join(f"{name} is {table.schema.field(name).type}" for name in self.columns)
            raise ValueError(
                f"filter {self.text!r}: these values cannot be compared with each other: {types}: put text "
                "in quotes, and write numbers without"
            ) from None


def missing_column(columns: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the first of some columns that is unknown, for a message; None if all are known.

    The message is "column 'simlarity': did you mean 'similarity'?", or lists the known columns.
    """
    for column in columns:
        if column not in known:
            near = difflib.get_close_matches(column, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
            return f"column {column!r}: {hint}"
    return None


def _converted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert numbers to int64 or float64, with NaN as missing, and categories to their values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_type, found = pa.types, column.type
    if is_type.is_dictionary(found):
        return _converted(column.cast(found.value_type))
    if is_type.is_uint64(found) and (pc.max(column).as_py() or 0) >= 2**63:
        raise ValueError("has values of 2^63 or more: write it as text")
    if is_type.is_boolean(found) or is_type.is_integer(found):
        return column.cast(pa.int64())
    if is_type.is_floating(found) or is_type.is_decimal(found):
        numbers = column.cast(pa.float64())
        return pc.if_else(pc.is_nan(numbers), None, numbers)
    return column


def _compile(condition: Expr, schema: pa.Schema) -> pc.Expression:
    """Compile a condition to a PyArrow expression, which is null where its value is unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    node = condition.unnest()
    if node.key == "not":
        return ~_compile(node.this, schema)
    if node.key in LOGIC:
        left, right = (_compile(part, schema) for part in (node.this, node.expression))
        return left & right if node.key == "and" else left | right
    first, *others = (_operand(each, schema) for each in operands(node))
    if node.key == "is":
        return first[0].is_null()
    if any(kind == pa.null() for _, kind in (first, *others)):
        return pc.scalar(pa.scalar(None, pa.bool_()))
    if node.key == "like":
        # Our language has no escape character.
        return pc.match_like(first[0], operands(node)[1].replace("\\", "\\\\"))
    if node.key == "in":
        compared = _compare("neq", first, first)  # false, or null where the value is missing
        for constant in others:
            compared = compared | _compare("eq", first, constant)
        return compared
    if node.key == "column":
        return _compare("neq", first, _operand(0, schema))
    return _compare(node.key, first, others[0])


def _operand(operand: Any, schema: pa.Schema) -> tuple[pc.Expression, pa.DataType]:
    """Return a key or a constant as an expression, and its type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_key(operand):
        return pc.field(operand.name), schema.field(operand.name).type
    if isinstance(operand, int | float):
        is_whole = float(operand).is_integer() and abs(operand) < 2**63
        operand = int(operand) if is_whole else float(operand)
    constant = pa.scalar(operand)
    return pc.scalar(constant), constant.type


def _compare(
    key: str, left: tuple[pc.Expression, pa.DataType], right: tuple[pc.Expression, pa.DataType]
) -> pc.Expression:
    """Compare two operands; an integer and a float are compared as floats."""
    import pyarrow as pa

    values, types = zip(left, right, strict=True)
    if len({kind in (pa.int64(), pa.float64()) for kind in types}) > 1:
        raise TypeError("a number is compared with something else")
    if pa.float64() in types:  # PyArrow alone would choose float32 for some constants
        values = tuple(value.cast(pa.float64(), safe=False) for value in values)
    return COMPARISONS[key](*values)
