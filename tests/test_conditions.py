"""One language of conditions, two readers: `--where` and `data.filter` keep the same rows."""

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jestlab import conditions
from jestlab.analysis import rows
from jestlab.models.data.filters import Filter

COLUMNS: dict[str, list[Any]] = {
    "similarity": [0.1, 0.25, None, 0.3, math.nan, -0.0, 2.5],
    "aesthetic": [3, None, 5, -1, 0, 10, 3],
    "noise": ["clean", "blank", "it's 100%", None, "", "Clean", 'say "x"'],
    "good": [True, False, None, True, False, True, None],
    "order": [0, 1, 2, 3, 4, 5, 6],
}
COUNT = len(COLUMNS["order"])
TABLE = pa.table({"row": list(range(COUNT)), **COLUMNS})


def kept_by_where(text: str) -> list[int]:
    def getter(name: str) -> Callable[[Any], Any]:
        values = COLUMNS[name]
        return lambda row: values[row[0]]

    keeps = rows.predicate(conditions.parse(text), getter)
    return [row for row in range(COUNT) if keeps((row,))]


def kept_by_filter(text: str) -> list[int]:
    kept: list[int] = Filter.parse(text).apply(TABLE)["row"].to_pylist()
    return kept


@pytest.mark.parametrize(
    "text, kept",
    [
        ("aesthetic = 3", [0, 6]),
        ("aesthetic == 3 and similarity <> 2.5", [0]),
        ("similarity < aesthetic", [0, 5, 6]),
        ("noise in ('clean', \"Clean\")", [0, 5]),
        ("noise not in ('clean', 'blank')", [2, 4, 5, 6]),
        ("aesthetic in ()", []),
        ("aesthetic not in ()", [0, 2, 3, 4, 5, 6]),
        ("noise like '%lean'", [0, 5]),
        ("noise like 'c_ean'", [0]),
        ("noise not like '%a%'", [2, 4]),
        ("noise like '%100\\%'", []),
        ("noise = 'it''s 100%'", [2]),
        ('noise = "say ""x"""', [6]),
        ("similarity is null", [2, 4]),
        ("similarity is not null and aesthetic is not null", [0, 3, 5, 6]),
        ("similarity != 0.1", [1, 3, 5, 6]),
        ("not (similarity > 0.2)", [0, 5]),
        ("good", [0, 3, 5]),
        ("aesthetic", [0, 2, 3, 5, 6]),
        ("similarity", [0, 1, 3, 6]),
        ("similarity not in (0.6, 0.7)", [0, 1, 3, 5, 6]),
        ("not good", [1, 4]),
        ("good is null", [2, 6]),
        ("good AND aesthetic >= 3 OR noise = ''", [0, 4, 5]),
        ("`order` > 4", [5, 6]),
        ("order <= 1", [0, 1]),
        ("similarity = -0", [5]),
        ("aesthetic > -1e-3", [0, 2, 4, 5, 6]),
        ("1 < 2", list(range(COUNT))),
        ("noise < 'blank'", [4, 5]),
    ],
)  # fmt: skip
def test_both_keep_these_rows(text, kept):
    assert kept_by_where(text) == kept
    assert kept_by_filter(text) == kept


NUMBERS = st.sampled_from(["0.25", "-1", "5", "3", "0.1", "+0.3", "1e1"])
STRINGS = st.sampled_from(["'clean'", '"blank"', "'it''s 100%'", "''"])
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "==", "=", "!=", "<>"])
NUMERIC = st.sampled_from(["similarity", "aesthetic", "order", "`order`"])
TESTS = st.one_of(
    st.tuples(NUMERIC, SIGNS, NUMBERS).map(" ".join),
    st.tuples(NUMBERS, SIGNS, NUMERIC).map(" ".join),
    st.tuples(NUMERIC, SIGNS, NUMERIC).map(" ".join),
    st.tuples(st.just("noise"), SIGNS, STRINGS).map(" ".join),
    st.lists(STRINGS, min_size=1, max_size=3).map(lambda values: f"noise in ({', '.join(values)})"),
    st.lists(NUMBERS, min_size=1, max_size=3).map(lambda values: f"similarity not in ({', '.join(values)})"),
    st.sampled_from(["%e%", "_lean", "%", "", "[c]%", "%*", "%\\%"]).map("noise like '{}'".format),
    st.sampled_from(["good", "similarity is null", "noise is not null", "noise NOT LIKE 'c%'"]),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        inner.map("not ({})".format),
        inner.map("NOT {}".format),
        st.tuples(inner, inner).map(" and ".join),
        st.tuples(inner, inner).map(" or ".join),
        inner.map("({})".format),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
@example("good or similarity > 0.2 and not aesthetic = 3")
def test_both_keep_the_same_rows(text):
    assert kept_by_where(text) == kept_by_filter(text)
