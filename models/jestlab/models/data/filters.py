"""Filters on metadata, such as `similarity > 0.3`: conditions on its columns, compiled to PyArrow."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from jestlab.models.data.conditions import COMPARISONS, LOGIC, is_key, operands, parse

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
            shown = whole if len(whole) <= 200 else whole[:200] + "…"
            raise ValueError(f"filter {shown!r}: {error}; {_EXAMPLE}") from None

    @property
    def columns(self) -> list[str]:
        """The names of the columns that it reads, sorted."""
        return sorted({node.name for node in self.condition.walk() if node.key == "column"})

    def compile(self, schema: pa.Schema) -> pc.Expression:
        """Compile to a PyArrow expression, which is null where the condition is neither true nor false.

        Args:
            schema: Types of the table's columns; has all of `columns`.

        Raises:
            ValueError: A column is compared with a value of another type.
        """
        import pyarrow as pa

        try:
            compiled = _Compiler(self.text, schema).condition(self.condition)
            schema.empty_table().select(self.columns).filter(compiled)
        except (pa.ArrowException, TypeError):
            types = ", ".join(f"{name} is {schema.field(name).type}" for name in self.columns)
            raise ValueError(f"filter {self.text!r}: values of these types don't compare: {types}") from None
        return compiled


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


Operand = Any
"""A key, as a node of the condition, or a constant."""


class _Compiler:
    """Compiles a condition for tables of one schema.

    Types are made alike here, because PyArrow casts an integer column to float32 where a constant fits it
    exactly, and then refuses values above 2^24.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._text, self._schema, self._pa, self._pc = text, schema, pa, pc
        self._unknown = pc.scalar(pa.scalar(None, pa.bool_()))

    def condition(self, condition: Expr) -> pc.Expression:
        node = condition.unnest()
        if node.key not in LOGIC:
            return self._test(node)
        whole = self.condition(node.this)
        if node.key == "not":
            return ~whole
        other = self.condition(node.expression)
        return whole & other if node.key == "and" else whole | other

    def _test(self, test: Expr) -> pc.Expression:
        left, *right = operands(test)
        present = self._pc.scalar(True)
        for operand in filter(is_key, (left, *right)):
            present = present & ~self._pc.field(operand.name).is_null(nan_is_null=True)
        if test.key == "is":
            return ~present
        if test.key == "column":
            found = self._truth(left)
        elif test.key == "in":
            found = self._among(left, right)
        elif test.key == "like":
            found = self._like(left, right[0])
        else:
            found = self._compared(COMPARISONS[test.key], left, right[0])
        return self._pc.if_else(present, found, self._unknown)

    def _truth(self, operand: Operand) -> pc.Expression:
        if is_key(operand) and self._pa.types.is_boolean(self._schema.field(operand.name).type):
            return self._pc.field(operand.name)
        return self._compared(COMPARISONS["neq"], operand, 0)

    def _compared(self, compare: Any, left: Operand, right: Operand) -> pc.Expression:
        kinds = self._kind(left), self._kind(right)
        if "null" in kinds:
            return self._unknown
        if set(kinds) == {"integer", "float"}:
            left_value, right_value = (self._as_float(each) for each in (left, right))
        else:
            if {"text", "integer"} == set(kinds) or {"text", "float"} == set(kinds):
                raise self._mismatch(left, right)
            left_value, right_value = (self._value(each) for each in (left, right))
            # PyArrow compares uint64 with no other integers.
            if "integer" in kinds and any(map(self._is_wide, (left, right))):
                left_value, right_value = (v.cast(self._pa.decimal128(20)) for v in (left_value, right_value))
        found: pc.Expression = compare(left_value, right_value)
        return found

    def _among(self, operand: Operand, listed: Sequence[Operand]) -> pc.Expression:
        """Whether an operand equals one of some constants."""
        among = self._pc.scalar(False)
        for constant in listed:
            among = among | self._compared(COMPARISONS["eq"], operand, constant)
        return among

    def _like(self, operand: Operand, pattern: str) -> pc.Expression:
        if self._kind(operand) == "null":
            return self._unknown
        if self._kind(operand) != "text":
            raise self._mismatch(operand, pattern)
        escaped = pattern.replace("\\", "\\\\")  # our language has no escape character
        return self._pc.match_like(self._value(operand), escaped)

    def _kind(self, operand: Operand) -> str:
        """ "integer" (Booleans, too), "float", "text", "null" (a column without any value), or "other"."""
        if isinstance(operand, str):
            return "text"
        if not is_key(operand):
            return "integer" if float(operand).is_integer() and abs(operand) < 10**20 else "float"
        is_type, found = self._pa.types, self._schema.field(operand.name).type
        if is_type.is_dictionary(found):
            found = found.value_type
        if is_type.is_integer(found) or is_type.is_boolean(found):
            return "integer"
        if is_type.is_floating(found) or is_type.is_decimal(found):
            return "float"
        if is_type.is_string(found) or is_type.is_large_string(found) or is_type.is_string_view(found):
            return "text"
        return "null" if is_type.is_null(found) else "other"

    def _value(self, operand: Operand) -> pc.Expression:
        """An operand; columns of categories and of Booleans are converted to their values."""
        if not is_key(operand):
            convert: Callable[[Any], Any] = {"integer": int, "float": float, "text": str}[self._kind(operand)]
            value = convert(operand)
            return self._pc.scalar(self._pa.scalar(Decimal(value)) if self._is_wide(operand) else value)
        field, found = self._pc.field(operand.name), self._schema.field(operand.name).type
        is_type = self._pa.types
        if is_type.is_dictionary(found):
            found = found.value_type
            field = field.cast(found)
        # PyArrow compares no float16.
        if is_type.is_float16(found):
            return field.cast(self._pa.float32())
        return field.cast(self._pa.int8()) if is_type.is_boolean(found) else field

    def _is_wide(self, operand: Operand) -> bool:
        """Whether an integer may not fit into 64 bits with a sign."""
        if is_key(operand):
            return "uint64" in str(self._schema.field(operand.name).type)
        return self._kind(operand) == "integer" and not -(2**63) <= int(operand) < 2**63

    def _as_float(self, operand: Operand) -> pc.Expression:
        return self._value(operand).cast(self._pa.float64(), safe=False)

    def _mismatch(self, left: Operand, right: Operand) -> ValueError:
        first, other = (left, right) if is_key(left) else (right, left)
        name, shown = (each.name if is_key(each) else repr(each) for each in (first, other))
        is_text = "text" if self._kind(first) == "text" else "a number"
        return ValueError(
            f"filter {self._text!r}: {name} is {is_text} and cannot be compared with {shown}: put text in "
            "quotes, and write numbers without"
        )
