"""Scores, crossings, and speed-ups, against numbers calculated by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis import curves
from jestlab.analysis.costs import SCOPES


def test_score_is_the_mean_over_all_metrics(read_runs, stored_run):
    results = read_runs(
        stored_run("uniform", [0.2, 0.4]), stored_run("joint", [0.5], metrics=["shapes/zero_shot"])
    )
    table: Any = curves.score_curves(results).set_index(["label", "step"])
    assert table.loc[("uniform", 2), "score"] == pytest.approx(0.4)
    assert math.isnan(table.loc[("joint", 1), "score"])  # it lacks a metric that another run has
    assert list(table.loc["uniform", "examples_seen"]) == [64, 128]
    assert list(table["final"]) == [False, True, True]


def test_flops_follow_the_scope(results):
    """The reference's training is paid before the first step."""
    for scope, flops in zip(SCOPES, (12e9, 32e9, 52e9, 52e9), strict=True):
        fixed = 8e9 if scope == "reference_training" else 0
        table = curves.score_curves(results, scope)
        joint = table[(table["label"] == "joint") & (table["seed"] == 0)]
        assert list(joint["flops"]) == pytest.approx([fixed + flops * step / 4 for step in (1, 2, 3, 4)])


def test_a_program_without_a_price_has_the_flops_that_it_reports_in_every_scope(read_runs, stored_run):
    own = {"priced": False, "reference_training_share": 8e9}
    read = read_runs(
        stored_run("own", [0.1, 0.2], **own),
        stored_run("of unknown need", [0.1], priced=False, reference_training_share=None),
        stored_run("free", [0.1], flops_per_step=(0, 0, 0)),
        stored_run("unknown", [0.2], flops_per_step=None),
    )
    for scope in SCOPES:
        share = 8e9 if scope == "reference_training" else 0
        expected = [3e9 + share, 6e9 + share, 3e9, 0, math.nan]
        assert list(curves.score_curves(read, scope)["flops"]) == pytest.approx(expected, nan_ok=True)
    with pytest.raises(ValueError, match="unknown cost scope 'all'"):
        curves.score_curves(read, "all")  # type: ignore[arg-type]


def along(x, place):
    before, after, fraction = place
    return x[before] + (x[after] - x[before]) * fraction


def test_crossing():
    for y, target, x in (
        ([0.1, 0.3, 0.5], 0.4, 25.0),  # between two points
        ([0.1, 0.3, 0.5], 0.3, 20.0),  # at a point
        ([0.1, 0.5, 0.2], 0.3, 15.0),  # the first crossing, though it falls back
        ([0.4, 0.5, 0.6], 0.3, 10.0),  # there already at the first point
        ([0.1, 0.3, 0.5], 0.6, None),  # never: not extrapolated
        ([0.1, math.nan, 0.5], 0.3, 20.0),  # across a hole
        ([math.nan, math.nan, 0.5], 0.3, 30.0),
        ([0.1, 0.2, 0.3], math.nan, None),
    ):
        found = curves.crossing(y, target)
        assert (found and along([10, 20, 30], found)) == (x and pytest.approx(x))


@given(st.lists(st.tuples(st.floats(1, 10), st.floats(-1, 1)), min_size=1, max_size=20), st.floats(-1, 1))
def test_a_crossing_is_on_the_curve_and_nothing_before_it_reaches_the_target(steps, target):
    x, y = np.cumsum([dx for dx, _ in steps]), np.array([value for _, value in steps])
    place = curves.crossing(y.tolist(), target)
    if place is None:
        assert (y < target).all()
    else:
        found = along(x, place)
        assert (y[x < found] < target + 1e-9).all()
        assert np.interp(found, x, y) == pytest.approx(max(target, y[0]), abs=1e-6)


def test_speedups_are_paired_by_seed(results):
    of_study = curves.speedups(curves.score_curves(results), "uniform")
    table: Any = of_study.set_index(["label", "seed"])
    columns = ["reached", "bounded", "examples_to_match", "fewer_examples", "flops_to_match", "fewer_flops"]
    # seed 0: .4 between steps 1 (.3) and 2 (.5): 4 / 1.5; seed 1: .5 at step 2: 4 / 2. A step costs 8/3.
    for row, expected in {
        ("joint", 0): (True, False, 1.5 * 64, 4 / 1.5, 1.5 * 8e9, 4 / 1.5 * 3 / 8),
        ("joint", 1): (True, False, 2 * 64, 2, 2 * 8e9, 2 * 3 / 8),
        ("independent", 1): (False, False, *[math.nan] * 4),
        ("uniform", 1): (True, False, 4 * 64, 1, 12e9, 1),
    }.items():
        assert table.loc[row, columns].tolist() == pytest.approx(expected, nan_ok=True)
        assert table.loc[row, "examples_spent"] == 4 * 64


def test_the_speedup_of_a_run_that_takes_no_time(read_runs, stored_run):
    """It is 1 if the baseline takes none either, and otherwise infinite."""
    for seconds, factor in ((1.0, math.inf), (0.0, 1.0)):
        results = read_runs(
            stored_run("uniform", [0.1], seconds_per_step=seconds),
            stored_run("joint", [0.1], seconds_per_step=0.0),
        )
        table = curves.speedups(curves.score_curves(results), "uniform").set_index("label")
        assert table.loc["joint", "fewer_seconds"] == factor


def test_mean_curves(results):
    table = curves.score_curves(results)
    uniform = curves.mean_curves(table, "examples_seen").query("label == 'uniform'")
    assert list(uniform["examples_seen"]) == [64, 128, 192, 256]
    assert list(uniform["mean"]) == pytest.approx([0.1, 0.2, 0.3, 0.45])
    half = 12.7062 * np.std([0.4, 0.5], ddof=1) / np.sqrt(2)  # Student's t with one degree of freedom
    ends = uniform["low"].iloc[-1], uniform["high"].iloc[-1]
    assert ends == pytest.approx((0.45 - half, 0.45 + half), rel=1e-5)
    assert list(uniform["final"]) == [False, False, False, True]
    single = curves.mean_curves(table[table["seed"] == 0], "examples_seen")
    assert single["low"].equals(single["mean"]) and single["high"].equals(single["mean"])


def test_mean_curves_exclude_runs_that_died_early_and_unfinished_runs_have_no_speedup(
    read_runs, stored_run, stored_runs
):
    results = read_runs(
        stored_run("uniform", [0.1, 0.2, 0.3]),
        *stored_runs("joint", [0.2, 0.4], [0.4], state="RUNNING", total_steps=3),
        stored_run("uniform", [0.9], seed=1, state="FAILED", total_steps=3),
        stored_run("late", [0.3, 0.4], state="FAILED"),
        stored_run("late", [0.5], seed=1),
    )
    table = curves.score_curves(results)
    means = curves.mean_curves(table, "examples_seen")
    assert list(means["label"]) == ["uniform"] * 3 + ["joint", "late"]
    assert list(means["mean"]) == pytest.approx([0.1, 0.2, 0.3, 0.3, 0.5])  # of joint where both are known
    assert list(means["seeds"]) == [1, 1, 1, 2, 1]
    assert list(means["final"]) == [False, False, True, False, True]
    # The seed of late that completed has nothing to compare with.
    assert list(curves.speedups(table, "uniform")["label"]) == ["uniform"]


def test_mean_curves_interpolate_seeds_evaluated_at_different_points(read_runs, stored_run):
    results = read_runs(
        stored_run("uniform", [0.0, 0.2, 0.4], seed=0),
        stored_run("uniform", [0.0, 0.2, 0.4], seed=1, flops_per_step=(2e9, 0.0, 0.0)),
    )
    table = curves.mean_curves(curves.score_curves(results), "flops")
    assert list(table["flops"]) == [3e9, 4e9, 6e9]  # of 3, 6, 9 and 2, 4, 6, within what both cover
    assert list(table["mean"]) == pytest.approx([(0 + 0.1) / 2, (0.2 / 3 + 0.2) / 2, (0.2 + 0.4) / 2])


def test_the_mean_over_seconds_is_taken_at_shared_steps(read_runs, stored_run):
    results = read_runs(
        stored_run("a", [0.1, 0.2, 0.4], seconds_per_step=1.0), stored_run("a", [0.2, 0.4, 0.6], seed=1)
    )
    table = curves.score_curves(results)
    table.loc[table["seed"] == 1, "seconds"] = [3.0, 6.0, 9.0]
    table = table.drop(table.index[(table["seed"] == 1) & (table["step"] == 2)])
    mean = curves.mean_curves(table, "seconds")
    assert mean["seconds"].tolist() == [2.0, 6.0]
    assert mean["mean"].tolist() == pytest.approx([0.15, 0.5])


def test_a_running_mean_is_over_points_of_each_run(results):
    raw = curves.score_curves(results)
    smooth = curves.smoothed(raw, 3).query("label == 'uniform' and seed == 0")["score"]
    assert list(smooth) == pytest.approx([0.1, 0.2, 0.3, 0.4])  # a straight line stays straight at its ends
    joint = curves.smoothed(raw, 3).query("label == 'joint' and seed == 0")["score"]
    assert list(joint) == pytest.approx([0.3, 1.4 / 3, 1.7 / 3, 0.6])  # of .3, .5, .6, .6
    assert curves.smoothed(raw, 2).equals(curves.smoothed(raw, 3))  # an even window would lag


long_curves = st.lists(
    st.tuples(st.integers(0, 50), st.floats(-1e9, 1e9) | st.sampled_from([np.nan, np.inf, -np.inf])),
    min_size=30,
    max_size=400,
)


@given(long_curves, st.integers(1, 8))
def test_each_column_of_pixels_keeps_its_first_last_lowest_and_highest(curve, width):
    gaps, values = zip(*curve, strict=True)
    x, y = np.cumsum(gaps), np.array(values)
    kept = curves.thinned(x, y, width)
    assert np.array_equal(kept, np.unique(kept))
    if len(x) <= 4 * width:
        assert len(kept) == len(x)
        return
    assert len(kept) <= 5 * width
    span = max(x[-1] - x[0], 1)
    columns = np.minimum((x - x[0]) * width // span, width - 1)
    for column in set(columns):
        inside = np.flatnonzero(columns == column)
        here = kept[np.isin(kept, inside)]
        assert {inside[0], inside[-1]} <= set(here)
        finite, left = y[inside][np.isfinite(y[inside])], y[here][np.isfinite(y[here])]
        if len(finite):
            assert (left.min(), left.max()) == (finite.min(), finite.max())
        assert np.isfinite(y[inside]).all() == np.isfinite(y[here]).all()
