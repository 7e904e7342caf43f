"""Curves of evaluations and training metrics, over steps and all efforts."""

import numpy as np
import pytest

from jestlab.analysis.figures import draw

MEANS = "label == 'joint' and kind == 'mean'"


@pytest.fixture(scope="module")
def plotted(module_store, stored_run):
    """A function that plots the curves of two runs with a loss of eight steps."""

    def run(name, fast, seed):
        loss = [4.0 / (1 + fast * step) + 0.1 * seed for step in range(1, 9)]
        logged = {"loss": loss, "lr": [0.1, 0.05, *[0.01] * 6]}
        return stored_run(name, [0.1, 0.2, 0.25 * fast], seed=seed, seconds_per_step=2.0, logged=logged)

    runs = [run(name, fast, seed) for seed in (0, 1) for name, fast in (("uniform", 1.0), ("joint", 2.0))]
    metrics = {
        "loss": {"goal": "min", "unit": "nats"},
        "lr": {"scale": "log"},
        "*/zero_shot": {"goal": "max", "unit": "percent"},
    }
    url = module_store.add(*runs, spec={"metrics": metrics}).url
    return lambda **options: draw("curves", url, "study", **options)


def test_the_loss_over_steps(plotted):
    plot = plotted(metric=("loss",), over="steps")
    assert (plot.name, plot.texts.x) == ("curves_loss", "steps")
    assert plot.texts.y == "training loss (nats), less is better"
    joint = plot.data.query(MEANS)
    seeds = plot.data.query("label == 'joint' and kind == 'seed'").groupby("seed")["mean"]
    assert seeds.size().tolist() == [8, 8]
    assert seeds.agg(list).sum() == pytest.approx(
        [4.0 / (1 + 2 * s) + d for d in (0, 0.1) for s in range(1, 9)]
    )
    assert list(joint["effort"]) == list(range(1, 9))
    assert list(joint["mean"]) == pytest.approx([4.0 / (1 + 2 * step) + 0.05 for step in range(1, 9)])
    assert list(joint["high"] - joint["low"]) == pytest.approx([12.7062 * 0.1] * 8, rel=1e-4)  # t · s · √2
    assert plot.texts.caption.startswith("Lines: mean over seeds")
    assert "Dotted: final value of uniform" in plot.texts.caption
    assert not plot.data["log"].any()
    assert plotted(metric=("lr",)).figure().axes[0].get_yscale() == "log"  # as declared


def test_the_cost_of_a_step_is_interpolated_between_evaluations(plotted):
    """From 0 on. After the last of three evaluations the cost is unknown."""
    for effort, last in (("examples_seen", 192), ("flops", 9e9), ("seconds", 6.0)):
        data = plotted(metric=("loss",), over=effort).data
        joint = data.query(MEANS)
        assert list(joint["effort"]) == pytest.approx([last * step / 3 for step in (1, 2, 3)])


def test_several_metrics_have_a_panel_each_in_their_declared_unit(plotted):
    joint = plotted(metric=("shapes/zero_shot",)).data.query("label == 'joint'")
    assert joint["mean"].iloc[-1] == pytest.approx(50)
    figure = plotted(metric=("loss", "lr", "shapes/zero_shot"), over="steps").figure()
    labels = [axes.get_ylabel().replace("\n", " ") for axes in figure.axes]
    assert labels == ["training loss (nats), less is better", "lr", "shapes/zero_shot (%)"]


def test_an_unknown_metric_names_the_nearest_recorded(plotted):
    for unknown, nearest in (("los", "loss"), ("shapes/zeroshot", "shapes/zero_shot")):
        with pytest.raises(ValueError, match=f"has recorded '{unknown}': did you mean '{nearest}'"):
            plotted(metric=(unknown,))


def test_smoothing_is_a_running_mean_of_each_seed(plotted):
    raw = plotted(metric=("loss",), over="steps").data
    smooth = plotted(metric=("loss",), over="steps", smooth=3)
    before, after = (data.query(MEANS)["mean"].to_numpy() for data in (raw, smooth.data))
    assert after[1:-1] == pytest.approx(np.convolve(before, np.ones(3) / 3, "valid"))
    assert after[[0, -1]] == pytest.approx(before[[0, -1]])  # no one-sided window
    assert "running mean over 3 points of each seed" in smooth.texts.caption


def test_long_curves_over_logged_examples_are_thinned_and_keep_their_ends(new_store, stored_run):
    values = [1.0 / step for step in range(1, 3002)]
    seen = [32.0 * step for step in range(1, 3002)]
    run = stored_run("uniform", [0.1, 0.2], logged={"loss": values, "examples_seen": seen})
    url = new_store().add(run).url
    data = draw("curves", url, "study", metric=("loss",), over="examples_seen").data
    assert len(data) <= 502
    assert set(data["effort"]) <= set(seen)
    assert data["effort"].iloc[-1] == seen[-1]
    assert data["mean"].iloc[-1] == pytest.approx(values[-1])
