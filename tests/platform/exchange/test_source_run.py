"""The log of a run's metrics, and numbers as other tools write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.exchange.source_run import MetricLog, nested, whole_number


def curves(log: MetricLog) -> dict[str, dict[int, float]]:
    return {
        name: dict(zip(steps.tolist(), values.tolist(), strict=True))
        for name, (steps, values) in log.curves().items()
    }


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ([1, 2, 3, 0], [0, 1, 2, 3]),  # the last one without a step, which is step 0
        ([30, 10, 20], [10, 20, 30]),  # logged in parallel
        ([1, 2, 3, 4, 2, 3], [1, 2, 3]),  # resumed after step 1
        ([1, 2, 3, 4, 2, 3, 4, 5, 4], [1, 2, 3, 4]),  # and again after step 3
        ([0, 0, 0], [0]),
    ],
)
def test_a_metric_that_goes_back_to_a_step_is_a_restart(written, read):
    log = MetricLog()
    for value, step in enumerate(written):
        log.add("acc", step, float(value))
    last = {step: float(value) for value, step in enumerate(written)}
    assert curves(log)["acc"] == {step: last[step] for step in read}


def test_points_may_be_added_out_of_order_with_their_times():
    log = MetricLog()
    for name, steps in (("acc", [10, 20]), ("loss", range(1, 26))):
        for step in steps:
            log.add(name, step, 0.0, time=step)
    for step in range(8, 16):
        log.add("loss", step, 1.0, time=100 + step)
    assert "acc" not in curves(log)
    log.drop_from(0)
    assert curves(log) == {}


@given(
    attempts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=4),
    every=st.integers(2, 9),
)
def test_only_the_history_that_survived_is_kept(attempts, every):
    last, log = -1, MetricLog()
    survived: dict[str, dict[int, float]] = {"loss": {}, "acc": {}}
    for number_, (resumed, count) in enumerate(attempts):
        first = min(resumed, last + 1)
        for name, curve in survived.items():
            survived[name] = {step: value for step, value in curve.items() if step < first}
        last = first + count - 1
        for step in range(first, last + 1):
            for name in ("loss", "acc") if step % every == 0 else ("loss",):
                log.add(name, step, number_)
                survived[name][step] = number_
    assert curves(log) == {name: curve for name, curve in survived.items() if curve}


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
