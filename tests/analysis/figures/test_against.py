"""Figures of final scores against a choice: numbers calculated by hand, names of lines, captions."""

from __future__ import annotations

from typing import Any

import pytest

from jestlab.analysis import figures, frames

UNIFORM = {
    "selection.rule": "uniform",
    "selection.filtering_ratio": 0.8,
    "selection.criterion": "learnability",
    "schedule.batch_size": 64,
    "loss": "sigmoid",
    "approximation.share": 0.0,
    "approximation.score": False,
    "approximation.method": "flexi",
}


@pytest.fixture
def read(new_store, stored_run):
    """Frames of runs: (run, label, final scores by seed, changes of the config, more of the run)."""

    def make(*runs):
        store = new_store().add(
            *(
                stored_run(
                    run, [0.1, score], label=label, seed=seed, point=more.pop("point", changes),
                    state=states[seed], config=UNIFORM | changes, **more,
                )
                for run, label, scores, changes, extra in runs
                for seed, score in enumerate(scores)
                for more in [dict(extra)]
                for states in [more.pop("states", ["COMPLETED"] * len(scores))]
            )
        )  # fmt: skip
        return frames.read(store.url, "study")

    return make


def ratio(rule, f, *scores, criterion="learnability", **more):
    changes = {"selection.filtering_ratio": f, "selection.criterion": criterion}
    return (rule, f"{rule} {criterion} {f}", scores, {"selection.rule": rule} | changes, more)


def means(plot, **where):
    data = plot.data[plot.data["kind"] == "mean"]
    for column, value in where.items():
        data = data[data[column] == value]
    return [tuple(row) for row in data[["x", "y"]].itertuples(index=False)]


def test_filtering_ratio(read):
    results = read(
        ("uniform", "uniform", (0.3, 0.5), {}, {}),
        ratio("joint", 0.9, 0.6, 0.8),
        ratio("joint", 0.5, 0.4, 0.6),
        ratio("independent", 0.5, 0.4),
        ratio("joint", 0.5, 0.2, criterion="hard_learner"),
        ratio("joint", 0.8, 0.3, 0.3, criterion="hard_learner"),
    )
    plot = figures.filtering_ratio(results)
    assert means(plot, panel="learnability", line="joint") == [
        (0.5, pytest.approx(50)),
        (0.9, pytest.approx(70)),
    ]
    assert means(plot, panel="learnability", line="independent") == [(0.5, pytest.approx(40))]
    assert means(plot, panel="hard_learner", line="joint") == [
        (0.5, pytest.approx(20)),
        (0.8, pytest.approx(30)),
    ]
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
    results = read(
        ("uniform", "uniform", (0.3,), {}, {}),
        ratio("joint", 0.5, 0.4),
        ratio("joint", 0.9, 0.6),
    )
    assert "One seed each." in figures.filtering_ratio(results).texts.caption
    results = read(
        ("uniform", "uniform", (0.3,), {}, {}),
        ratio("joint", 0.5, 0.4, 0.4),
        ratio("joint", 0.9, 0.6, 0.7, states=("COMPLETED", "FAILED")),
    )
    plot = figures.filtering_ratio(results)
    assert "Open: not all seeds have completed." in plot.texts.caption
    planned: Any = plot.data[plot.data["kind"] == "mean"].set_index("x")
    assert (planned.loc[0.9, "seeds"], planned.loc[0.9, "planned"]) == (1, 2)


def test_unfinished_runs_are_named(read):
    plot = figures.filtering_ratio(
        read(
            ("uniform", "uniform", (0.3,), {}, {}),
            ratio("joint", 0.5, 0.4),
            ratio("joint", 0.9, 0.6, states=["RUNNING"]),
        )
    )
    assert "Not shown (no seed has completed): joint learnability 0.9." in plot.texts.caption


def test_coinciding_points_get_separate_lines(read):
    def joint(f, chunks, score):
        changes = {"selection.filtering_ratio": f, "selection.chunks": chunks}
        return (
            "joint",
            f"joint {f} {chunks}",
            (score,),
            {"selection.rule": "joint"} | changes,
            {"point": changes},
        )

    results = read(("uniform", "uniform", (0.3,), {}, {}), joint(0.5, 1, 0.4), joint(0.9, 1, 0.5),
                   joint(0.5, 16, 0.5), joint(0.9, 16, 0.7))  # fmt: skip
    plot = figures.filtering_ratio(results)
    assert means(plot, line="joint, chunks=1") == [(0.5, pytest.approx(40)), (0.9, pytest.approx(50))]
    assert means(plot, line="joint, chunks=16") == [(0.5, pytest.approx(50)), (0.9, pytest.approx(70))]


def test_coinciding_runs_without_axes_are_named(read):
    other = {"selection.rule": "joint", "selection.filtering_ratio": 0.5}
    results = read(
        ("uniform", "uniform", (0.3,), {}, {}),
        ("plain", "plain", (0.4,), other, {"point": {}}),
        ("wide", "wide", (0.5,), other | {"model.embedding_dim": 128}, {"point": {}}),
        ratio("joint", 0.9, 0.6),
    )
    lines = set(figures.filtering_ratio(results).data["line"])
    assert {"joint, plain", "joint, wide"} <= lines


def test_approximation_share(read):
    def run(rule, method, share, score, flops=3e9):
        changes = {
            "approximation.method": method,
            "approximation.share": share,
            "approximation.score": rule == "joint",
        }
        label = f"{rule} {method} {share}"
        return (rule, label, (score,), {"selection.rule": rule} | changes,
                {"point": {"approximation.share": share}, "flops_per_step": (flops, 0.0, 0.0)})  # fmt: skip

    runs = [
        run("uniform", "flexi", 0.0, 0.4),
        run("uniform", "flexi", 0.5, 0.5),
        run("uniform", "patch_drop", 0.5, 0.45),
        run("joint", "flexi", 0.0, 0.3),
        run("joint", "flexi", 0.5, 0.6),
    ]
    plot = figures.approximation_share(read(*runs))
    # Uniform without any approximation has no method: it begins both lines.
    assert means(plot, panel="flexi", line="uniform") == [(0, pytest.approx(40)), (0.5, pytest.approx(50))]
    assert means(plot, panel="patch_drop", line="uniform") == [
        (0, pytest.approx(40)),
        (0.5, pytest.approx(45)),
    ]
    assert means(plot, panel="flexi", line="joint") == [(0, pytest.approx(30)), (0.5, pytest.approx(60))]
    assert (plot.data["kind"] != "level").all()
    assert "equal FLOPs, to 0.1%" in plot.texts.caption
    plot.figure()
    dearer = figures.approximation_share(read(*runs, run("joint", "flexi", 0.75, 0.6, flops=4.5e9)))
    assert "differ by up to 1.50×: this is not a comparison at equal cost" in dearer.texts.caption


def test_batch_size_and_the_gain_at_each(read):
    def run(rule, b, *scores, **changes):
        return (rule, f"{rule} {b}", scores, {"selection.rule": rule, "schedule.batch_size": b} | changes,
                {"point": {"schedule.batch_size": b, **changes}})  # fmt: skip

    plot = figures.batch_size(
        read(
            run("uniform", 32, 0.3, 0.4),
            run("uniform", 64, 0.5, 0.5),
            run("joint", 32, 0.5, 0.5, **{"selection.filtering_ratio": 0.9}),
            run("joint", 64, 0.6, 0.7),
            run("joint", 128, 0.9),
        )
    )
    assert means(plot, panel="score", line="uniform") == [(32, pytest.approx(35)), (64, pytest.approx(50))]
    assert means(plot, panel="gain", line="joint") == [(32, pytest.approx(15)), (64, pytest.approx(15))]
    gains = plot.data[(plot.data["panel"] == "gain") & (plot.data["kind"] == "mean")]
    assert gains[["low", "high"]].to_numpy().tolist() == [pytest.approx([10, 20]), pytest.approx([10, 20])]
    assert "Also different along a line: selection.filtering_ratio." in plot.texts.caption
    figure = plot.figure()
    assert [axes.get_ylabel() for axes in figure.axes] == ["mean score (%)", "score − uniform (points)"]


def test_loss_comparison_is_relative(read):
    def run(rule, loss, score):
        return (
            rule,
            f"{rule} {loss}",
            (score,),
            {"selection.rule": rule, "loss": loss},
            {"point": {"loss": loss}},
        )

    plot = figures.loss_comparison(
        read(
            run("uniform", "softmax", 0.4),
            run("uniform", "sigmoid", 0.5),
            run("joint", "softmax", 0.5),
            run("joint", "sigmoid", 0.6),
        )
    )
    gains = plot.data[(plot.data["panel"] == "gain") & (plot.data["kind"] == "mean")]
    assert dict(zip(gains["tick"], gains["y"], strict=True)) == pytest.approx({"softmax": 25, "sigmoid": 20})
    ticks = [tick.get_text() for tick in plot.figure().axes[0].get_xticklabels()]
    assert ticks == ["softmax", "sigmoid"]
    assert "in percent of its score" in plot.texts.caption


def test_against_a_config_key_of_a_user_s_program(new_store, stored_run):
    store = new_store().add(
        stored_run("narrow", [0.2], config={"width": 8}),
        stored_run("wide", [0.4], label="wide width=32", config={"width": 32}, point={"width": 32}),
        stored_run("wide", [0.5], label="wide width=128", config={"width": 128}, point={"width": 128}),
    )
    results = frames.read(store.url, "study")
    plot = figures.against(results, figures.Axis("width", ("rule",)), name="width", x_label="width")
    assert means(plot, line="wide") == [(32, pytest.approx(40)), (128, pytest.approx(50))]
    assert means(plot, line="narrow") == [(8, pytest.approx(20))]
    assert plot.figure().axes[0].get_xscale() == "log"


@pytest.mark.parametrize(
    ("figure", "says"),
    [
        (figures.filtering_ratio, "no run of experiment 'study' varies selection.filtering_ratio"),
        (figures.approximation_share, "varies approximation.share"),
        (figures.batch_size, "varies the batch size"),
        (figures.loss_comparison, "varies loss"),
    ],
)
def test_a_key_that_does_not_vary_is_an_error(study, figure, says):
    with pytest.raises(ValueError, match=says):
        figure(frames.read(study.url, "study"))


def test_no_completed_run_is_an_error(read):
    results = read(
        ("uniform", "uniform", (0.3,), {}, {}),
        ratio("joint", 0.5, 0.4, states=["RUNNING"]),
        ratio("joint", 0.9, 0.4, states=["RUNNING"]),
    )
    with pytest.raises(ValueError, match=r"varies selection\.filtering_ratio has completed with a score"):
        figures.filtering_ratio(results)
