"""Conditions on rows: their meaning, and clear errors for everything else."""

import sqlite3
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jestlab.analysis.rows import Tags, predicate
from jestlab.conditions import parse

PIECES = [
    "and", "or", "not", "in", "like", "is", "null", "true", "(", ")", ",", "=", "<", "a", "a.b", "'x'", '"',
    "1", "-2.5e3", "`", "import os", "__import__('os')", ";",
]  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join))


def truth(text, value):
    return predicate(parse(text), lambda _: lambda row: row[0])((value,))


@given(TEXTS)
@example("(" * 5000)
@example("not " * 2400 + "a")
@example("a = " + "9" * 5000)
@example("a = 1e999")
@example("a like '" + "%a" * 2000 + "'")
@example("a or " * 1900 + "a")
def test_any_text_is_a_condition_or_an_error_with_the_place(text):
    try:
        parse(text)
    except ValueError as error:
        message = str(error)
        assert "\n" not in message and message.startswith(("character ", "1"))
        assert "character" in message
    else:
        for value in (3, "x", None, float("nan")):
            assert truth(text, value) in (True, False, None)


def test_errors_name_the_place():
    for text, character, message in (
        ("seed <", 7, "expected a key, a text in quotes"),
        ("seed < 3 an label = 'x'", 10, "`and`, `or`"),
        ("rule in (joint)", 10, "put text in quotes"),
        ("rule = null", 1, "write `is null`"),
        ("rule = 'joint", 14, "missing closing quote"),
        ("(seed < 3", 10, "expected `)`"),
        ("seed in 3", 1, "a list in parentheses"),
        ("seed not 3", 6, "`and`, `or`"),
        ("seed in (1 2)", 12, "expected `)`"),
        ("seed is 3", 1, "`null`"),
        ("'joint'", 1, "a comparison"),
        ("0 < seed < 3", 1, "join tests by `and`"),
        ("seed in [1, 2]", 11, "`and`, `or`"),
        ("os.system('x')", 1, "no functions"),
        ("read_csv('/etc/passwd') = 1", 1, "a key or a constant"),
        ("seed = (select 1)", 16, "expected `)`"),
        ("not " * 260 + "a", 801, "at most 200"),
        ("(" * 260 + "a", 201, "at most 200"),
        ("seed < " + "1" * 400, 8, "number out of range"),
    ):
        with pytest.raises(ValueError) as error:
            parse(text)
        assert str(error.value).startswith(f"character {character}, ")
        assert message in str(error.value)


ROWS: list[dict[str, Any]] = [
    {"t": "joint", "n": 3, "x": 0.5, "b": 1},
    {"t": "Joint", "n": -1, "x": None, "b": 0},
    {"t": "it's 100%", "n": 0, "x": 2.0, "b": None},
    {"t": None, "n": None, "x": 1e300, "b": 1},
    {"t": "", "n": 10, "x": -0.0, "b": 0},
]


def joined(sign, first, second):
    return st.tuples(first, second).map(lambda pair: f"{pair[0]} {sign} {pair[1]}")


SIGNS = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">=", "=="])
TEXTS_OF_T = st.sampled_from(["'joint'", "''", "'k'", "'it''s 100%'"])
NUMBERS = st.sampled_from(["-2", "-1", "0", "3", "10", "0.5", "2.0", "1e300", "+3"])
SQL_TESTS = st.one_of(
    st.tuples(st.just("t"), SIGNS, TEXTS_OF_T).map(" ".join),
    st.tuples(st.sampled_from(["n", "x"]), SIGNS, NUMBERS).map(" ".join),
    st.tuples(NUMBERS, SIGNS, st.just("n")).map(" ".join),
    st.tuples(st.just("n"), SIGNS, st.just("x")).map(" ".join),
    st.lists(NUMBERS, min_size=1, max_size=3).map(lambda values: f"n in ({', '.join(values)})"),
    st.lists(NUMBERS, min_size=1, max_size=3).map(lambda values: f"x not in ({', '.join(values)})"),
    st.sampled_from(["j%", "%''s%", "_oint", "%", "", "%o%n_", "[jJ]%"]).map("t like '{}'".format),
    st.sampled_from(["j%", "%o%n_"]).map("t not like '{}'".format),
    st.sampled_from(["t is null", "n is not null", "x is null", "n", "b", "true = b", "b = false"]),
)


@given(
    st.recursive(
        SQL_TESTS,
        lambda inner: st.one_of(
            inner.map("not ({})".format),
            inner.map("NOT {}".format),
            joined("and", inner, inner),
            joined("OR", inner, inner),
            inner.map("({})".format),
        ),
        max_leaves=6,
    )
)
@example("n = 3 or x = 2.0 and not b")
def test_means_the_same_as_in_sqlite_on_columns_of_one_type(condition):
    """The text of a condition is SQL: SQLite is the oracle, precedence of `and`, `or` and `not` included."""
    names = ["t", "n", "x", "b"]
    kept = predicate(parse(condition), lambda name: lambda row: row[names.index(name)])
    rows = [tuple(row[name] for name in names) for row in ROWS]
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute("CREATE TABLE r (t TEXT, n INTEGER, x REAL, b INTEGER)")
    database.executemany("INSERT INTO r VALUES (?, ?, ?, ?)", rows)
    wanted = database.execute(f"SELECT * FROM r WHERE {condition} ORDER BY rowid").fetchall()
    database.close()
    assert [row for row in rows if kept(row)] == wanted


@given(st.text(st.characters(codec="utf-8"), max_size=12), st.sampled_from("'\""))
@example('it\'s "so"', "'")
@example("\\", '"')
def test_quoted_text_is_literal(text, quote):
    condition = f"a = {quote}{text.replace(quote, 2 * quote)}{quote}"
    assert truth(condition, text) is True
    assert truth(condition, text + "x") is False


def keys_of(text):
    asked: list[str] = []

    def getter(name):
        asked.append(name)
        return lambda row: None

    predicate(parse(text), getter)
    return asked


@given(st.one_of(
    st.from_regex(r"[a-z_][a-z0-9_]{0,5}(\.[a-z0-9_]{1,4}){0,2}", fullmatch=True),
    st.text(st.characters(exclude_characters="`", codec="utf-8"), min_size=1, max_size=8),
))  # fmt: skip
@example("not")
@example("select")
def test_any_name_in_backquotes_is_a_key(name):
    assert keys_of(f"`{name}` > 1") == [name]


def test_only_words_of_the_grammar_are_reserved():
    for name in ("if", "case", "select", "a.b.c.d.e.f", "layers.0", "not.x", "größe"):
        assert keys_of(f"{name} = 1") == [name]


def test_values_that_cannot_be_compared_are_unknown_and_patterns_take_linear_time():
    cases: dict[bool | None, dict[str, Any]] = {
        None: {"a = 'x'": 3, "not a = 'x'": 3, "a < 3": None, "a": "text", "a = 1": [1]},
        True: {"a = 'x' or a = 3": 3, "a = true": 1, "true = a": True, "a in (1, 'x')": "x",
               "a not in (1, 'y')": "x"},
        False: {f"t like '{'%a' * 200}b'": "a" * 20_000},
    }  # fmt: skip
    for expected, values in cases.items():
        for text, value in values.items():
            assert truth(text, value) is expected, text


def test_tags_of_a_run_are_compared_one_by_one():
    """A run without a tag is known not to have it."""
    for condition, kept in {
        "a = 'b'": [2], "a != 'b'": [1, 0], "a is null": [0], "a is not null": [2, 1], "a like 'a%'": [2, 1],
    }.items():  # fmt: skip
        found = [len(tags) for tags in (("a", "b"), ("a",), ()) if truth(condition, Tags(tags))]
        assert found == kept, condition
