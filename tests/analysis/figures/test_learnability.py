"""The learnability figure: from known numbers in a store to the drawing."""

import math

import numpy as np
import pytest

from jestlab.analysis.figures import learnability

CONFIG = {
    "criterion": "learnability",
    "batch_size": 128,
    "filtering_ratio": 0.8,
    "joint_chunks": 4,
    "draws": 3,
    "columns": ["missing", "noise"],
}
MATRIX = [[4.0, -0.5, 0.1], [0.0, -3.0, 0.2], [0.1, 0.3, 2.0]]  # image, text


def series(offset=0.0):
    """Return what one seed logs: metric → step → value."""
    found = {
        "learnability/joint": {step: 3 + step / 4 + offset for step in range(1, 5)},
        "learnability/gibbs": {step: 4 * np.log(step) / np.log(2048) + offset for step in (1, 8, 2048)},
        "learnability/uniform": {1: offset},
        "learnability/independent": {1: 2.9 + offset},
        "learnability/greedy": {128: 4.05 + offset},
        "learnability_matrix/size": {0: 3},
        "learnability_matrix": {3 * i + j: MATRIX[i][j] + offset for i in range(3) for j in range(3)},
    }
    for f, gain in (("0.5", 0.0), ("0.8", 1.0), ("0.9", 1.5)):
        found[f"learnability/filtering_ratio/{f}/independent"] = {1: 2 + gain / 2}
        found[f"learnability/filtering_ratio/{f}/joint"] = {n: 2 + gain * n / 4 for n in (2, 4)}
    return found


@pytest.fixture
def diagnosed(new_store, stored_run):
    """A function that stores runs of `diagnose`, each a (label, seed, metrics, state)."""

    def make(*runs, config=CONFIG):
        return new_store().add(*(
            stored_run(label, [], seed=seed, logged=logged, state=state, program="diagnose", config=config)
            for label, seed, logged, state in runs
        ))  # fmt: skip

    return make


def rows_of(plot, panel, line):
    data = plot.data
    return data[(data["panel"] == panel) & (data["line"] == line)]


def test_data_equal_the_store_and_are_drawn(diagnosed):
    store = diagnosed(("look", 0, series(), "COMPLETED"), ("look", 1, series(0.2), "COMPLETED"))
    plot = learnability(store.url, "study")
    for panel, line, x, values in (
        ("iterations", "joint", [1, 2, 3, 4], [3.35, 3.6, 3.85, 4.1]),
        ("iterations", "greedy", [math.nan], [4.15]),  # a level
        ("ratios", "joint, N = 4", [0.5, 0.8, 0.9], [2, 3, 3.5]),
        ("ratios", "independent", [0.5, 0.8, 0.9], [2, 2.5, 2.75]),
    ):
        shown = rows_of(plot, panel, line)
        assert list(shown["x"]) == pytest.approx(x, nan_ok=True) and list(shown["value"]) == pytest.approx(
            values
        )
    joint = rows_of(plot, "iterations", "joint")
    assert list(joint["high"] - joint["value"]) == pytest.approx([12.7062 * 0.1] * 4, rel=1e-4)
    matrix = plot.data[plot.data["panel"] == "matrix"]
    assert np.array_equal(matrix.pivot(index="y", columns="x", values="value"), MATRIX)  # the first seed's
    assert "sub-batches of 128 from 640 (f = 0.8)" in plot.texts.caption
    assert "3 super-batches and 2 seeds" in plot.texts.caption
    drawn, iterations, _, _ = plot.figure().axes  # the last is the matrix's color bar
    assert np.array_equal(np.asarray(drawn.images[0].get_array()), MATRIX)
    assert drawn.get_aspect() == 1  # a square
    low, high = drawn.images[0].get_clim()
    assert low == -high  # white means nothing to learn
    assert iterations.get_xscale() == "log"
    lines = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in iterations.get_lines()}
    assert set(lines) == {"uniform", "joint", "Gibbs", "independent", "greedy"}
    assert lines["joint"] == list(joint["value"])


@pytest.mark.parametrize(("criterion", "y"), [("hard_learner", "learner's loss"), ("own.py:g", "score")])
def test_panels_that_were_not_measured_are_left_out(diagnosed, criterion, y):
    logged = {k: v for k, v in series().items() if not any(s in k for s in ("ratio", "matrix"))}
    store = diagnosed(("look", 0, logged, "COMPLETED"), config={**CONFIG, "criterion": criterion})
    plot = learnability(store.url, "study")
    assert not {"Pairs:", "Filtering"} & set(plot.texts.caption.split())
    (axes,) = plot.figure().axes
    assert axes.get_title(loc="left") == f"{y} of the sub-batch"


def test_choosing_the_run(diagnosed, study):
    store = diagnosed(
        ("early", 0, series(), "COMPLETED"),
        ("late", 0, series(1.0), "COMPLETED"),
        ("late", 1, series(9.0), "FAILED"),
        ("never", 0, {}, "RUNNING"),
    )
    first, late = learnability(store.url, "study"), learnability(store.url, "study", "late")
    assert rows_of(first, "iterations", "uniform")["value"].item() == 0
    assert rows_of(late, "iterations", "uniform")["value"].item() == 1
    with pytest.raises(ValueError, match="no seed of 'never' of 'study' has completed: 2 COMPLETED"):
        learnability(store.url, "study", "never")
    with pytest.raises(ValueError, match="has no run 'lat': did you mean 'late'"):
        learnability(store.url, "study", "lat")
    with pytest.raises(ValueError, match="experiment 'study' has no run of the program diagnose"):
        learnability(study.url, "study")
