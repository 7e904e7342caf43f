"""Filters on columns as they are in Parquet files; tests/test_conditions.py tests what conditions mean."""

import re

import numpy as np
import pyarrow as pa
import pytest

from jestlab.models.data.filters import Filter


@pytest.mark.parametrize("text", ["", "1", "open('/etc/passwd') == ''", "\0 >\n1", "not " * 9000 + "a"])
def test_errors_are_one_line_with_an_example(text):
    with pytest.raises(ValueError) as error:
        Filter.parse(text)
    assert re.fullmatch(r"filter .*: .*character.*write one like.*", str(error.value))


def test_columns():
    assert Filter.parse("b > 1 and (a == 'x' or not c) and c < 2").columns == ["a", "b", "c"]


TABLE = pa.table(
    {
        "row": [0, 1, 2],
        "nothing": pa.nulls(3),
        "half": pa.array(np.array([1.5, 2.5, np.nan], np.float16)),
        "single": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "price": pa.array([1, 2, 3]).cast(pa.decimal128(30, 2)),
        "small": pa.array([-1, -1, 5], pa.int8()),
        "unsigned": pa.array([2**63 - 1, 5, None], pa.uint64()),
        "n": [100, 20_000_000, 20_000_001],
        "good": [True, False, None],
        "category": pa.array(["clean", "blank", "clean"]).dictionary_encode(),
        "long": pa.array(["clean", "blank", None], pa.large_string()),
        "time": pa.array([0, 1, None], pa.timestamp("s")),
        "list": [[1], [2], None],
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("nothing == 'x' or not nothing > 3 or nothing in (1) or nothing like '%'", []),
        ("nothing is null and 'a' is not null and 'a' like 'a%' and not 1 in (2)", [0, 1, 2]),
        ("half > 1.5", [1]),
        ("half is null", [2]),
        ("half >= unsigned", []),
        ("half < 100000000000000000000000", [0, 1]),
        ("price >= 1.5", [1, 2]),
        ("small < 9223372036854775808", [0, 1, 2]),
        ("small < 4.5", [0, 1]),
        ("unsigned > small", [0, 1]),
        ("unsigned in (5, 7)", [1]),
        ("unsigned = 9223372036854775807", [0]),
        ("n > 1e6", [1, 2]),
        ("n > 1.5 and n > single", [0, 1, 2]),
        ("n == 20000001.0", [2]),  # float32 can't hold this number
        ("n in (20000001, 0.5)", [2]),
        ("not n <= 99999999999999999999", []),
        ("good = true or good = 0", [0, 1]),
        ("category like 'cl%' or category == 'x'", [0, 2]),
        ("category in ('clean')", [0, 2]),
        ("long = category", [0, 1]),
        ("time is null or list is null", [2]),
    ],
)
def test_columns_of_any_type_are_compared(condition, rows):
    assert Filter.parse(condition).apply(TABLE)["row"].to_pylist() == rows


def test_numbers_beyond_64_bits_with_a_sign_are_refused():
    table = pa.table({"n": pa.array([2**63, 1], pa.uint64())})
    with pytest.raises(ValueError, match=r"filter 'n > 1': column 'n' has values of 2\^63 or more: write"):
        Filter.parse("n > 1").apply(table)


@pytest.mark.parametrize(
    "condition",
    ["long > 3", "single == 'high'", "long", "single like '%'", "time > 5", "list = 1", "time = list"],
)
def test_types_that_cannot_be_compared_are_refused_in_one_line(condition):
    message = rf"filter '{condition[:6]}.*cannot be compared with each other: {'|'.join(TABLE.column_names)}"
    with pytest.raises(ValueError, match=message) as caught:
        Filter.parse(condition).apply(TABLE)
    assert type(caught.value) is ValueError and "\n" not in str(caught.value)
