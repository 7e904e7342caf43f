"""The log of a run's metrics, and numbers as other tools write them."""

import pytest

from jestlab.platform.exchange.source_run import MetricLog, nested, whole_number


def test_the_last_value_at_a_step_counts_and_steps_are_sorted():
    log = MetricLog()
    for name, step, value in (("b", 2, 1.0), ("b", 1, 2.0), ("b", 2, 3.0), ("a", 0, 4.0)):
        log.add(name, step, value)
    assert [(name, [*curve.items()]) for name, curve in log.curves().items()] == [
        ("a", [(0, 4.0)]), ("b", [(1, 2.0), (2, 3.0)]),
    ]  # fmt: skip
    assert log.left_out == {MetricLog.REPLACED: 1}


def test_a_restart_drops_the_points_from_its_first_step_on():
    log = MetricLog()
    for step in range(5):
        log.add("loss", step, 0.0)
    log.add("late", 4, 0.0)
    log.drop_from(2)
    log.add("loss", 2, 1.0)
    assert log.curves() == {"loss": {0: 0.0, 1: 0.0, 2: 1.0}}
    assert log.left_out == {MetricLog.REPLACED: 4}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (50, 50), (50.0, 50), ("50", 50), (" 060", 60), ("50.0", 50), (2**53 + 1, 2**53 + 1),
        (str(2**62 + 1), 2**62 + 1),
    ],
)  # fmt: skip
def test_whole_numbers(value, expected):
    assert whole_number(value) == expected


@pytest.mark.parametrize(
    "value", [1.9, "1.9", "x", None, [1], True, "nan", float("inf"), 2**63, "1e999999", "9" * 5000]
)
def test_rejects_other_numbers(value):
    with pytest.raises(ValueError, match="expected a whole number"):
        whole_number(value)


def test_keys_are_nested_by_their_dots():
    assert nested({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    for flat in ({"a": 1, "a.b": 2}, {"a..b": 1}, {".": 1}, {".".join("a" * 50): 1}):
        assert nested(flat) == flat
