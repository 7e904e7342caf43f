"""Conditions on rows: what they mean, and that no text is anything else than a condition or an error."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jestlab.analysis import where
from jestlab.analysis.where import Among, And, Compare, Holds, Key, Like, Missing, Not, Or, WhereError, parse

NAMES = st.one_of(
    st.from_regex(r"[a-z_][a-z0-9_]{0,5}(\.[a-z0-9_]{1,4}){0,2}", fullmatch=True),
    st.text(st.characters(exclude_characters="`", codec="utf-8"), min_size=1, max_size=8),
)
KEYS = st.builds(Key, NAMES)
VALUES = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
TESTS = st.one_of(
    st.builds(Holds, KEYS),
    st.builds(Missing, KEYS),
    st.builds(Compare, KEYS, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), VALUES),
    st.builds(Among, KEYS, st.lists(VALUES, min_size=1, max_size=4).map(tuple)),
    st.builds(Like, KEYS, st.text(st.characters(codec="utf-8"), max_size=12)),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=8,
)


@given(CONDITIONS)
@example(Compare(Key("not"), "=", 'it\'s "so"'))
@example(Compare(Key("a"), "<", -1e-300))
def test_a_condition_reads_back_from_its_text(condition):
    text = str(condition)
    if len(text) <= where.LONGEST:
        assert parse(text) == condition


PIECES = [
    "and",
    "or",
    "not",
    "in",
    "like",
    "is",
    "null",
    "true",
    "(",
    ")",
    ",",
    "=",
    "<",
    "a",
    "a.b",
    "'x'",
    '"',
]
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from([*PIECES, "1", "-2.5e3", "`", "import os", "__import__('os')", ";"]), max_size=20
    ).map(" ".join),
)


@given(TEXTS)
@example("(" * 5000)
@example("not " * 2000 + "a")
@example("a = " + "9" * 5000)
@example("a = 1e999")
@example("a like '" + "%a" * 2000 + "'")
def test_any_text_is_a_condition_or_an_error_of_one_line_with_the_place(text):
    try:
        condition = parse(text)
    except WhereError as error:
        message = str(error)
        assert "\n" not in message and message.startswith("where: ")
        assert "character" in message
    else:
        assert parse(str(condition)) == condition


@pytest.mark.parametrize(
    "text, character, said",
    [
        ("seed <", 7, "at the end: expected a text in quotes, a number, true or false"),
        ("seed < 3 an label = 'x'", 10, "expected `and`, `or` or the end"),
        ("rule = joint", 8, "expected a value: put text in quotes"),
        ("rule = null", 8, "write `is null`"),
        ("rule = 'joint", 8, "a quote without its end"),
        ("(seed < 3", 10, "expected `)`"),
        ("seed in 3", 9, "expected `(`"),
        ("seed not 3", 10, "expected `in` or `like`"),
        ("3 < seed", 1, "expected the name of a column or config key"),
        ("os.system('x')", 10, "expected `and`, `or` or the end"),
        ("seed < 3; drop table run", 9, "no part of a condition"),
    ],
)
def test_what_is_wrong_and_where(text, character, said):
    with pytest.raises(WhereError) as error:
        parse(text)
    assert str(error.value).startswith(f"where: character {character}, ")
    assert said in str(error.value)


ROWS: list[dict[str, Any]] = [
    {"t": "joint", "n": 3, "x": 0.5, "b": 1},
    {"t": "Joint", "n": -1, "x": None, "b": 0},
    {"t": "it's 100%", "n": 0, "x": 2.0, "b": None},
    {"t": None, "n": None, "x": 1e300, "b": 1},
    {"t": "", "n": 10, "x": -0.0, "b": 0},
]
SIGNS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
SQL_TESTS = st.one_of(
    st.builds(Compare, st.just(Key("t")), SIGNS, st.sampled_from(["joint", "", "k"])),
    st.builds(Compare, st.sampled_from([Key("n"), Key("x")]), SIGNS,
              st.one_of(st.integers(-2, 11), st.sampled_from([0.5, 2.0, 1e300]))),
    st.builds(Among, st.just(Key("n")), st.lists(st.integers(-1, 4), min_size=1, max_size=3).map(tuple)),
    st.builds(Like, st.just(Key("t")), st.sampled_from(["j%", "%'s%", "_oint", "%", "", "%o%n_", "[jJ]%"])),
    st.builds(Missing, st.sampled_from([Key("t"), Key("n"), Key("x")])),
    st.builds(Holds, st.sampled_from([Key("n"), Key("b")])),
)  # fmt: skip


@given(
    st.recursive(
        SQL_TESTS,
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=6,
    )
)
def test_on_columns_of_one_type_it_means_what_sqlite_takes_it_for(condition):
    """The text of a condition is SQL, apart from SQLite's own ways: the oracle is told of none."""
    names = ["t", "n", "x", "b"]
    kept = where.predicate(condition, lambda name: lambda row: row[names.index(name)])
    rows = [tuple(row[name] for name in names) for row in ROWS]
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute("CREATE TABLE r (t TEXT, n INTEGER, x REAL, b INTEGER)")
    database.executemany("INSERT INTO r VALUES (?, ?, ?, ?)", rows)
    wanted = database.execute(f"SELECT * FROM r WHERE {condition} ORDER BY rowid").fetchall()
    database.close()
    assert [row for row in rows if kept(row)] == wanted


def test_what_cannot_be_compared_is_neither_true_nor_false():
    def truth(text, value):
        return where.predicate(parse(text), lambda _: lambda row: row[0])((value,))

    assert truth("a = 'x'", 3) is None
    assert truth("not a = 'x'", 3) is None
    assert truth("a = 'x' or a = 3", 3) is True
    assert truth("a < 3", None) is None
    assert truth("a", "text") is None
    assert truth("a = 1", [1]) is None
    assert truth("a = true", True) is True and truth("a = true", 1) is True
    assert truth("a in (1, 'x')", "x") is True and truth("a not in (1, 'y')", "x") is True


@pytest.mark.parametrize("text", ["a like 'J%'", "A AND NOT b OR c IS NOT NULL", "`strange key!` <> 3"])
def test_spellings(text):
    assert parse(str(parse(text))) == parse(text)


def test_patterns_take_linear_time():
    pattern = "%a" * 200 + "b"
    kept = where.predicate(Like(Key("t"), pattern), lambda _: lambda row: row[0])
    assert kept(("a" * 20_000,)) is False
