"""Declarations of metrics by specs and programs, and how values are written and ranked."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from jestlab.analysis.metrics import Metric, Metrics

PPL: dict[str, Any] = {"goal": "min", "unit": "raw", "name": "PPL", "digits": 2}


def of(declared, *programs):
    """Return the metrics of a spec with these declarations."""
    return Metrics.of_spec({"metrics": declared}, programs)


def test_a_declaration_is_written_back_without_defaults():
    metric = Metric(**PPL)
    assert metric == Metric("min", "raw", "PPL", 2)
    assert metric.written() == {"goal": "min", "name": "PPL", "digits": 2}
    assert of({"wiki/ppl": metric.written()}).of("wiki/ppl") == metric


@pytest.mark.parametrize("invalid", [
    {"goal": "low"}, {"gaol": "min"}, {"digits": -1}, {"digits": 13}, {"digits": True}, {"scale": "cube"},
    {"unit": "m" * 17}, {"unit": " "}, {"name": 3}, {"name": "a\nb"},
])  # fmt: skip
def test_rejects_invalid_declarations(invalid):
    with pytest.raises(ValidationError, match=next(iter(invalid))):
        Metric(**invalid)


def test_a_goal_is_optional_and_a_program_may_say_it():
    declared = {"loss": {"scale": "log"}, "a/*": {}, "x/zero_shot": {"digits": 2}}
    metrics = of(declared, "train")
    assert metrics.of("loss") == Metric("min", scale="log")
    assert metrics.of("x/zero_shot") == Metric("max", "percent", digits=2)
    assert metrics.of("a/b") == metrics.of("other") == Metric()
    assert of(declared).of("loss") == Metric(scale="log")
    assert of({"loss": {"goal": "max"}}, "train").of("loss") == Metric("max")


def test_writes_values_by_unit_and_digits():
    for metric, value, text, difference in (
        (Metric("min", digits=2), 23.456, "23.46", "+23.46"),
        (Metric("min"), 0.14539, "0.1454", "+0.1454"),
        (Metric("max", "percent"), 0.4321, "43.2", "+43.2"),
        (Metric("max", "percent", digits=2), -0.4321, "−43.21", "−43.21"),
        (Metric("min", "ms", digits=0), 12.5, "12", "+12"),
        (Metric(), 1234567.0, "1.235e+06", "+1.235e+06"),
        (Metric("max", "percent"), 1e300, "1e+302", "+1e+302"),
        (Metric("min", digits=2), -1.7e308, "−1.7e+308", "−1.7e+308"),
    ):
        assert (metric.text(value), metric.text(value, "+")) == (text, difference)


def test_ranks_values_by_their_shown_digits():
    assert Metric("max", "percent").rank(0.12341) == Metric("max", "percent").rank(0.1234)
    assert Metric("min", digits=1).rank(2.04) == Metric("min", digits=1).rank(1.96) == -2.0
    assert Metric("min").rank(3.0) < Metric("min").rank(2.0)
    assert math.isnan(Metric().rank(3.0))


def test_a_spec_overrides_a_program_a_name_a_pattern_and_a_union_its_studies():
    metrics = Metrics.of_spec({"metrics": {"*/zero_shot": PPL, "a/zero_shot": {"goal": "max"}}}, ["train"])
    assert metrics.of("a/zero_shot") == Metric("max")
    assert metrics.of("b/zero_shot").name == "PPL"
    assert metrics.of("b/i2t_r5") == Metric("max", "percent")
    assert metrics.of("loss") == Metric("min")
    assert metrics.of("b/own") == Metrics.of_spec({}, ["command"]).of("b/zero_shot") == Metric()
    parts = {"one": {"metrics": {"a/b": {"goal": "min"}}}, "two": {"metrics": {"c/d": {"goal": "max"}}}}
    metrics = Metrics.of_spec({"studies": parts, "metrics": {"c/d": {"goal": "min"}}}, [])
    assert (metrics.of("a/b").goal, metrics.of("c/d").goal) == ("min", "min")


def test_only_metrics_of_one_goal_and_unit_have_a_mean():
    declared = {"a/x": {"goal": "max", "digits": 2}, "b/x": {"goal": "max", "digits": 2, "name": "B"}}
    metrics = Metrics.of_spec(
        {"metrics": declared | {"a/ppl": PPL, "a/acc": {"goal": "max", "unit": "percent"}}}, []
    )
    assert metrics.mean(["a/x", "b/x"]) == Metric("max", digits=2)
    assert metrics.mean(["b/x"]).name == "B"
    for names in (["a/x", "a/ppl"], ["a/x", "a/acc"], ["a/x", "unknown/x"]):
        with pytest.raises(ValueError, match="have no mean, since their goals or units differ: name one"):
            metrics.mean(names)


def test_percent_from_0_to_100_is_shown_as_it_is(read_runs, stored_runs):
    spec = {"metrics": {"x/*": {"goal": "max", "unit": "percent"}}}
    for scores, text in (([70.0, 71.0], "71.0"), ([0.70, 0.71], "71.0"), ([0.9, 1.5], "150.0")):
        read = read_runs(*stored_runs("a", scores, metrics=["x/y"]), spec=spec)
        metric = read.declared.of("x/y")
        assert metric.text(scores[-1]) == text
        assert (metric.suffix, metric.of_differences, metric.goal) == ("%", "points", "max")
    runs = [*stored_runs("a", [1.0, 71.0], metrics=["x/y"]), *stored_runs("c", [0.5], metrics=["x/low"])]
    read = read_runs(*runs, spec=spec | {"score": ["x/y", "x/low"]})
    assert read.no_score.endswith(
        "declare unit: '%' for those recorded from 0 to 100, percent for shares of 1"
    )
    declared = {"metrics": {"x/*": {"goal": "max", "unit": "%"}}}
    assert read_runs(*runs, spec=declared | {"score": ["x/y", "x/low"]}).score.unit == "%"


def test_percent_from_0_to_100_stays_so_where_only_low_scores_are_shown(read_runs, stored_runs):
    spec = {"metrics": {"x/*": {"goal": "max", "unit": "percent"}}}
    runs = [*stored_runs("low", [1.2], metrics=["x/y"]), *stored_runs("high", [45.0], metrics=["x/y"])]
    results = read_runs(*runs, spec=spec)
    assert {each.declared.of("x/y").text(1.2) for each in (results, results.only(["low"]))} == {"1.2"}


def test_no_evaluation_counts_twice_in_a_score(read_runs, stored_runs):
    spec = {"metrics": {"a/*": {"goal": "max"}}, "score": ["a/b", "c/d", "a/b"]}
    runs = stored_runs("run", [0.5], metrics=["a/b", "c/d"])
    assert "a/b would count more than once" in read_runs(*runs, spec=spec).no_score
