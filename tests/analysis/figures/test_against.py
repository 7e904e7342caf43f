"""Figures of final scores against a config key: numbers calculated by hand, names of lines, captions."""

import itertools
from typing import Any

import pytest
from tests.analysis.conftest import UNIFORM, StoredRun

from jestlab.analysis import figures


@pytest.fixture
def read(read_runs):
    """A function that reads groups of runs, as `runs` makes them."""
    return lambda *groups: read_runs(*itertools.chain.from_iterable(groups))


def runs(rule, *scores, label=None, point=None, states=None, flops=3e9, **changes):
    """Return the runs of a rule, one for each final score; "__" in the name of a key means a dot."""
    config = {key.replace("__", "."): value for key, value in changes.items()}
    return [
        StoredRun(
            rule, [0.1, score], label=label or " ".join([rule, *map(str, config.values())]), seed=seed,
            state=states[seed] if states else "COMPLETED", flops_per_step=(flops, 0.0, 0.0),
            config=UNIFORM | {"selection.rule": rule} | config, point=config if point is None else point,
        )
        for seed, score in enumerate(scores)
    ]  # fmt: skip


def ratio(rule, f, *scores, criterion="learnability", **more):
    return runs(rule, *scores, selection__filtering_ratio=f, selection__criterion=criterion, **more)


BASELINE = runs("uniform", 0.3)


def means(plot, **where):
    data = plot.data[plot.data["kind"] == "mean"]
    for column, value in where.items():
        data = data[data[column] == value]
    return [tuple(row) for row in data[["x", "y"]].itertuples(index=False)]


def test_filtering_ratio(read):
    results = read(
        runs("uniform", 0.3, 0.5),
        ratio("joint", 0.9, 0.6, 0.8),
        ratio("joint", 0.5, 0.4, 0.6),
        ratio("independent", 0.5, 0.4),
        ratio("joint", 0.5, 0.2, criterion="hard_learner"),
        ratio("joint", 0.8, 0.3, 0.3, criterion="hard_learner"),
    )
    plot = figures.filtering_ratio(results)
    for panel, line, points in (
        ("learnability", "joint", {0.5: 50, 0.9: 70}),
        ("learnability", "independent", {0.5: 40}),
        ("hard_learner", "joint", {0.5: 20, 0.8: 30}),
    ):
        assert dict(means(plot, panel=panel, line=line)) == pytest.approx(points)
    levels = plot.data[plot.data["kind"] == "level"]
    assert list(levels["panel"]) == ["learnability", "hard_learner"]
    assert levels[["y", "low", "high"]].iloc[0].tolist() == pytest.approx([40, 30, 50])
    joint = plot.data[(plot.data["kind"] == "mean") & (plot.data["x"] == 0.9)].iloc[0]
    assert (joint["low"], joint["high"], joint["seeds"]) == (pytest.approx(60), pytest.approx(80), 2)
    assert (plot.data["kind"] == "seed").sum() == 6  # of points with several seeds
    figure = plot.figure()
    assert [axes.get_title() for axes in figure.axes] == ["learnability", "hard learner"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert {"joint", "independent", "uniform"} <= {text.get_text() for text in figure.axes[0].texts}
    assert "Dotted: uniform." in plot.texts.caption
    assert "Each point is a separate run, at its end." in plot.texts.caption


def test_missing_seeds_are_marked(read):
    results = read(BASELINE, ratio("joint", 0.5, 0.4), ratio("joint", 0.9, 0.6))
    assert "One seed each." in figures.filtering_ratio(results).texts.caption
    results = read(
        BASELINE,
        ratio("joint", 0.5, 0.4, 0.4),
        ratio("joint", 0.9, 0.6, 0.7, states=("COMPLETED", "FAILED")),
        ratio("joint", 0.8, 0.6, states=["RUNNING"]),
    )
    plot = figures.filtering_ratio(results)
    assert "Open: not all seeds have completed." in plot.texts.caption
    planned: Any = plot.data[plot.data["kind"] == "mean"].set_index("x")
    assert (planned.loc[0.9, "seeds"], planned.loc[0.9, "planned"]) == (1, 2)
    assert "Not shown (no seed has completed): joint 0.8 learnability." in plot.texts.caption


def test_coinciding_points_get_separate_lines(read):
    def joint(f, chunks, score):
        return runs("joint", score, selection__filtering_ratio=f, selection__chunks=chunks)

    results = read(BASELINE, joint(0.5, 1, 0.4), joint(0.9, 1, 0.5), joint(0.5, 16, 0.5), joint(0.9, 16, 0.7))
    plot = figures.filtering_ratio(results)
    assert means(plot, line="joint, chunks=1") == [(0.5, pytest.approx(40)), (0.9, pytest.approx(50))]
    assert means(plot, line="joint, chunks=16") == [(0.5, pytest.approx(50)), (0.9, pytest.approx(70))]


def test_approximation_share(read):
    def run(rule, method, share, score, flops=3e9):
        return runs(
            rule, score, label=f"{rule} {method} {share}", point={"approximation.share": share},
            approximation__method=method, approximation__share=share, approximation__score=rule == "joint",
            flops=flops,
        )  # fmt: skip

    groups = [
        run("uniform", "flexi", 0.0, 0.4),
        run("uniform", "flexi", 0.5, 0.5),
        run("uniform", "patch_drop", 0.5, 0.45),
        run("joint", "flexi", 0.0, 0.3),
        run("joint", "flexi", 0.5, 0.6),
    ]
    plot = figures.approximation_share(read(*groups))
    # Uniform without any approximation has no method: it begins both lines.
    for panel, line, first, last in (
        ("flexi", "uniform", 40, 50), ("patch_drop", "uniform", 40, 45), ("flexi", "joint", 30, 60)
    ):  # fmt: skip
        points = means(plot, panel=panel, line=line)
        assert points == [(0, pytest.approx(first)), (0.5, pytest.approx(last))]
    assert (plot.data["kind"] != "level").all()
    assert "equal FLOPs, to 0.1%" in plot.texts.caption
    plot.figure()
    unequal = figures.approximation_share(read(*groups, run("joint", "flexi", 0.75, 0.6, flops=4.5e9)))
    assert "differ by up to 1.50×: this is not a comparison at equal cost" in unequal.texts.caption


def test_batch_size_and_the_gain_at_each(read):
    def run(rule, b, *scores, **changes):
        return runs(rule, *scores, schedule__batch_size=b, **changes)

    plot = figures.batch_size(
        read(
            run("uniform", 32, 0.3, 0.4),
            run("uniform", 64, 0.5, 0.5),
            run("joint", 32, 0.5, 0.5, selection__filtering_ratio=0.9),
            run("joint", 64, 0.6, 0.7),
            run("joint", 128, 0.9),
        )
    )
    assert means(plot, panel="score", line="uniform") == [(32, pytest.approx(35)), (64, pytest.approx(50))]
    assert means(plot, panel="gain", line="joint") == [(32, pytest.approx(15)), (64, pytest.approx(15))]
    gains = plot.data[(plot.data["panel"] == "gain") & (plot.data["kind"] == "mean")]
    assert gains[["low", "high"]].to_numpy().tolist() == [pytest.approx([10, 20]), pytest.approx([10, 20])]
    assert "Also different along a line: selection.filtering_ratio." in plot.texts.caption


def test_loss_comparison_is_relative(read):
    scores = {("uniform", "softmax"): 0.4, ("uniform", "sigmoid"): 0.5}
    scores |= {("joint", "softmax"): 0.5, ("joint", "sigmoid"): 0.6}
    plot = figures.loss_comparison(read(*(runs(rule, s, loss=loss) for (rule, loss), s in scores.items())))
    gains = plot.data[(plot.data["panel"] == "gain") & (plot.data["kind"] == "mean")]
    assert dict(zip(gains["tick"], gains["y"], strict=True)) == pytest.approx({"softmax": 25, "sigmoid": 20})
    ticks = [tick.get_text() for tick in plot.figure().axes[0].get_xticklabels()]
    assert ticks == ["softmax", "sigmoid"]
    assert "in percent of its score" in plot.texts.caption


def test_against_a_config_key_of_a_user_s_program(read_runs, stored_run):
    results = read_runs(
        stored_run("narrow", [0.2], config={"width": 8}),
        stored_run("wide", [0.4], label="wide width=32", config={"width": 32}, point={"width": 32}),
        stored_run("wide", [0.5], label="wide width=128", config={"width": 128}, point={"width": 128}),
    )
    plot = figures.against(results, figures.Axis("width", ("rule",)), name="width", x_label="width")
    assert means(plot, line="wide") == [(32, pytest.approx(40)), (128, pytest.approx(50))]
    assert means(plot, line="narrow") == [(8, pytest.approx(20))]
    assert plot.figure().axes[0].get_xscale() == "log"


def test_a_key_that_does_not_vary_is_an_error(results):
    for figure, varied in {
        figures.filtering_ratio: "selection.filtering_ratio",
        figures.approximation_share: "approximation.share",
        figures.batch_size: "the batch size",
        figures.loss_comparison: "loss",
    }.items():
        with pytest.raises(ValueError, match=f"no run of experiment 'study' varies {varied}"):
            figure(results)


def test_no_completed_run_is_an_error(read):
    running = [ratio("joint", f, 0.4, states=["RUNNING"]) for f in (0.5, 0.9)]
    results = read(BASELINE, *running)
    with pytest.raises(ValueError, match=r"varies selection\.filtering_ratio has completed with a score"):
        figures.filtering_ratio(results)
