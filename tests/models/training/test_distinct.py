"""The estimated number of distinct examples: near the truth, in parts, and through stops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.training.distinct import REGISTERS, Distinct

NUMBERS = st.lists(st.integers(0, 2**40), max_size=200)


@pytest.mark.parametrize("count", [1, 100, 5_000, 40_000, 60_000, 1_000_000])
def test_the_count_is_off_by_few_standard_errors(count):
    found = Distinct()
    for part in np.array_split(np.arange(7, 7 + count), 3):
        found.add(part)
    scattered = Distinct()
    scattered.add(np.random.default_rng(0).integers(0, 2**62, count))
    for one in (found, scattered):
        assert one.count == pytest.approx(count, rel=4 * 1.04 / np.sqrt(REGISTERS), abs=1)


@pytest.mark.parametrize("count", [0, 1, 300, 30_000, 40_960, 42_000, 50_000, 70_000, 130_000])
def test_the_mean_of_many_counts_is_right(count):
    """The raw estimate of HyperLogLog is 2% too high above 2.5 registers' number, where it is first used."""
    rng, counts = np.random.default_rng(0), []
    for _ in range(40):
        found = Distinct()
        found.add(rng.integers(0, 2**62, count))
        counts.append(found.count)
    assert np.mean(counts) == pytest.approx(count, rel=4 * 1.04 / np.sqrt(REGISTERS * 40), abs=0.1)


@given(NUMBERS, NUMBERS)
def test_order_repetition_and_parts_change_nothing(one, other):
    whole, parts, first = Distinct(), Distinct(), Distinct()
    whole.add(np.array(one + other, np.int64))
    for number in [*other, *one, *one]:
        parts.add(np.array([number], np.int64))
    first.add(np.array(one, np.int64))
    second = Distinct()
    second.add(np.array(other, np.int64))
    assert np.array_equal(whole.registers, parts.registers)
    assert np.array_equal(whole.registers, np.maximum(first.registers, second.registers))


def test_counting_continues_from_saved_registers():
    first = Distinct()
    first.add(np.arange(1_000))
    second = Distinct(first.registers)
    second.add(np.arange(500, 1_500))
    whole = Distinct()
    whole.add(np.arange(1_500))
    assert np.array_equal(second.registers, whole.registers)
    assert first.count < second.count  # which copied them
