"""Filters on columns as they are in Parquet files; tests/test_conditions.py tests what conditions mean."""

import re

import numpy as np
import pyarrow as pa
import pytest

from jestlab.models.data.filters import Filter


def kept(expression, table):
    return table.filter(Filter.parse(expression).compile(table.schema))["row"].to_pylist()


NO_COMPARISONS = [
    "__import__('os').system('true')",
    "similarity.__class__() == 1",
    "(lambda: 1)() > 0",
    "open('/etc/passwd') == ''",
    "similarity[0] > 1",
    "[x for x in (1,)] == [1]",
    "similarity > (y := 3)",
    "f'{similarity}' == ''",
    "similarity > 9 ** 9 ** 9",
    "similarity + 1 > 2",
    "similarity if good else good",
    "noise in other",
    "noise is 'clean'",
    "noise in [noise]",
    "similarity > 0.3 and exec('1')",
    "'clean'",
    "1",
    "similarity > null",
    "similarity > 1j",
    "similarity > b'x'",
    "-similarity > 1",
    "*similarity",
    "similarity > 1e400",
    "similarity = 3 -- all",
    "",
    "\0 >\n1",
    "not " * 9000 + "a",
]


def test_refuses_all_but_comparisons():
    accepted = []
    for text in NO_COMPARISONS:
        try:
            Filter.parse(text)
            accepted.append(text)
        except ValueError as error:
            assert re.fullmatch(r"filter .*write one like.*", str(error)), text  # in one line
    assert accepted == []
    with pytest.raises(ValueError, match=r"character 19, at 'and good': expected a key, a text"):
        Filter.parse("similarity > 0.3> and good")


def test_columns():
    assert Filter.parse("b > 1 and (a == 'x' or not c) and c < 2").columns == ["a", "b", "c"]


def test_a_column_without_any_value_satisfies_no_comparison():
    nothing = pa.table({"row": [0], "error": pa.nulls(1)})
    assert kept("error == 'x' or not error > 3", nothing) == []
    assert kept("error is null", nothing) == [0]


def test_integers_beyond_what_float32_holds_are_compared_exactly():
    table = pa.table(
        {
            "row": [0, 1, 2],
            "n": [100, 20_000_000, 20_000_001],
            "narrow": pa.array([0.5, 1.5, 2.5], pa.float32()),
        }
    )
    expected = {
        "n > 1e6": [1, 2],
        "n > 1.5": [0, 1, 2],
        "n == 20000001.0": [2],
        "n in (20000001, 0.5)": [2],
        "n > narrow": [0, 1, 2],
        "not n <= 99999999999999999999": [],
    }
    assert {condition: kept(condition, table) for condition in expected} == expected


def test_categories_are_compared_as_text():
    table = pa.table({"row": [0, 1], "noise": pa.array(["clean", "blank"]).dictionary_encode()})
    assert kept("noise like 'cl%' or noise == 'x'", table) == kept("noise in ('clean')", table) == [0]


@pytest.mark.parametrize("condition", ["noise > 3", "similarity == 'high'", "noise", "similarity like '%'"])
def test_text_and_numbers_do_not_compare(condition):
    with pytest.raises(ValueError, match="cannot be compared with"):
        kept(condition, pa.table({"row": [0], "similarity": [0.1], "noise": ["clean"]}))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("half > 1.5", [1]),
        ("half = 1.5", [0]),
        ("half >= large", []),
        ("large > 5", [0]),
        ("large > -1", [0, 1]),
        ("large = 18446744073709551615", [0]),
        ("large = 18446744073709551616", []),
        ("large < 18446744073709551616", [0, 1]),
        ("small < 9223372036854775808", [0, 1, 2]),
        ("half < 100000000000000000000000", [0, 1]),
        ("large > small", [0, 1]),
        ("large in (5, 7)", [1]),
        ("small < 4.5", [0, 1]),
    ],
)
def test_numbers_of_any_width_are_compared(text, kept):
    table = pa.table(
        {
            "half": pa.array(np.array([1.5, 2.5, np.nan], np.float16)),
            "large": pa.array([2**64 - 1, 5, None], pa.uint64()),
            "small": pa.array([-1, -1, 5], pa.int8()),
            "row": [0, 1, 2],
        }
    )
    assert table.filter(Filter.parse(text).compile(table.schema))["row"].to_pylist() == kept


@pytest.mark.parametrize("text", ["times > 5", "lists = 1", "times = lists"])
def test_types_that_do_not_compare_are_refused_in_one_line(text):
    table = pa.table({"times": pa.array([0], pa.timestamp("s")), "lists": [[1]], "bytes": [b"a"]})
    with pytest.raises(ValueError, match="values of these types don't compare: ") as caught:
        Filter.parse(text).compile(table.schema)
    assert type(caught.value) is ValueError and "\n" not in str(caught.value)
