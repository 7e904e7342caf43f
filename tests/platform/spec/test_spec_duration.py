"""Durations with their units, and as Slurm writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.spec.duration import parse_duration, written_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90m", 5_400),
        ("4h", 14_400),
        ("1h30m", 5_400),
        ("2d", 172_800),
        ("1d2h3m4s", 93_784),
        ("00:10:00", 600),
        ("2-12:00:00", 216_000),
        (" 4H ", 14_400),
    ],
)
def test_a_duration_is_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "60", "4 hours", "1m2h", "-1h", "1.5h", "0h", "0-00:00:00", "12:00"])
def test_what_is_no_duration_is_told_with_an_example(text):
    with pytest.raises(ValueError, match="write") as raised:
        parse_duration(text)
    assert "\n" not in str(raised.value)


@given(st.integers(1, 10**8))
def test_a_duration_is_written_as_it_is_read(seconds):
    assert parse_duration(written_duration(seconds)) == seconds
