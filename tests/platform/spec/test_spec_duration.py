"""Durations with their units, and as Slurm writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.spec.duration import parse_duration, written_duration


def test_parses_durations():
    seconds = {
        "90m": 5_400, "4h": 14_400, "1h30m": 5_400, "2d": 172_800, "1d2h3m4s": 93_784,
        "00:10:00": 600, "2-12:00:00": 216_000, " 4H ": 14_400,
    }  # fmt: skip
    assert {text: parse_duration(text) for text in seconds} == seconds


def test_rejects_other_texts_with_an_example(subtests):
    for text in ("", "60", "4 hours", "1m2h", "-1h", "1.5h", "0h", "0-00:00:00", "12:00"):
        with subtests.test(text), pytest.raises(ValueError, match=r"^[^\n]*write[^\n]*$"):
            parse_duration(text)


@given(st.integers(1, 10**8))
def test_written_durations_parse_back(seconds):
    assert parse_duration(written_duration(seconds)) == seconds
