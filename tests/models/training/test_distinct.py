"""The estimated number of distinct examples: near the truth, in parts, and after stops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.training.distinct import REGISTERS, Distinct

NUMBERS = st.lists(st.integers(0, 2**40), max_size=200)
ERROR = 1.04 / np.sqrt(REGISTERS)


def counted(*parts, registers=None):
    found = Distinct(registers)
    for part in parts:
        found.add(np.asarray(part, np.int64))
    return found


@pytest.mark.parametrize("count", [1, 100, 5_000, 40_000, 60_000, 1_000_000])
def test_the_count_of_consecutive_numbers_is_off_by_few_standard_errors(count):
    parts = np.array_split(np.arange(7, 7 + count), 3)
    assert counted(*parts).count == pytest.approx(count, rel=4 * ERROR, abs=1)


@pytest.mark.parametrize("count", [0, 1, 300, 30_000, 40_960, 42_000, 50_000, 70_000, 130_000])
def test_the_mean_of_many_counts_is_right(count):
    """The raw estimate of HyperLogLog is 2% too high above 2.5 registers' number, where it is first used."""
    rng = np.random.default_rng(0)
    counts = [counted(rng.integers(0, 2**62, count)).count for _ in range(40)]
    assert np.mean(counts) == pytest.approx(count, rel=4 * ERROR / np.sqrt(40), abs=0.1)


@given(NUMBERS, NUMBERS)
def test_order_repetition_parts_and_stops_change_nothing(one, other):
    whole, first, second = counted(one + other), counted(one), counted(other)
    saved = first.registers.copy()
    resumed = counted(other, registers=first.registers)
    assert np.array_equal(first.registers, saved)  # they were copied
    one_by_one = counted(*([number] for number in [*other, *one, *one]))
    for registers in (one_by_one.registers, resumed.registers, np.maximum(saved, second.registers)):
        assert np.array_equal(registers, whole.registers)
