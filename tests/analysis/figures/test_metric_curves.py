"""Curves of evaluations and training metrics, over steps and all efforts."""

from __future__ import annotations

import numpy as np
import pytest

from jestlab.analysis.figures import Request, draw


@pytest.fixture
def lab(new_store, stored_run):
    runs = []
    for seed in (0, 1):
        for name, fast in (("uniform", 1.0), ("joint", 2.0)):
            loss = [4.0 / (1 + fast * step) + 0.1 * seed for step in range(1, 9)]
            runs.append(
                stored_run(
                    name, [0.1, 0.2, 0.25 * fast], seed=seed, seconds_per_step=2.0,
                    logged={"loss": loss, "lr": [0.1] * 8},
                )
            )  # fmt: skip
    metrics = {"loss": {"goal": "min", "unit": "nats"}, "*/zero_shot": {"goal": "max", "unit": "percent"}}
    return new_store().add(*runs, spec={"metrics": metrics})


def plotted(lab, **options):
    return draw("curves", Request(lab.url, "study", **options))


def test_the_loss_over_steps(lab):
    plot = plotted(lab, metric="loss", effort="steps")
    assert (plot.name, plot.texts.x) == ("curves_loss", "steps")
    assert plot.texts.y == "training loss (nats), less is better"
    joint = plot.data[plot.data["label"] == "joint"]
    assert list(joint["effort"]) == list(range(1, 9))
    assert list(joint["mean"]) == pytest.approx([4.0 / (1 + 2 * step) + 0.05 for step in range(1, 9)])
    assert list(joint["high"] - joint["low"]) == pytest.approx([0.1] * 8)
    assert plot.texts.caption.startswith("Shown: loss, less is better. Lines: mean over seeds")
    assert "Dotted: final value of uniform" in plot.texts.caption


def test_the_cost_of_a_step_is_interpolated_between_evaluations(lab):
    """From 0 on. After the last of three evaluations the cost is unknown."""
    for effort, last in (("examples_seen", 192), ("flops", 9e9), ("seconds", 6.0)):
        data = plotted(lab, metric="loss", effort=effort).data
        joint = data[data["label"] == "joint"]
        assert list(joint["effort"]) == pytest.approx([last * step / 3 for step in (1, 2, 3)])


def test_uses_logged_numbers_of_examples(new_store, stored_run):
    seen = [32.0 * step for step in range(1, 7)]
    run = stored_run(
        "uniform", [0.1, 0.2], logged={"loss": [3.0, 2.0, 1.5, 1.2, 1.1, 1.0], "examples_seen": seen}
    )
    plot = plotted(new_store().add(run), metric="loss", effort="examples_seen")
    assert list(plot.data["effort"]) == seen


def test_an_evaluation_in_its_declared_unit(lab):
    plot = plotted(lab, metric="shapes/zero_shot")
    assert plot.texts.y == "shapes/zero_shot (%)"
    assert plot.data.loc[plot.data["label"] == "joint", "mean"].iloc[-1] == pytest.approx(50)


def test_several_metrics_have_a_panel_each(lab):
    plot = plotted(lab, metrics=("loss", "lr", "shapes/zero_shot"), effort="steps")
    figure = plot.figure()
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "training loss (nats), less is better", "lr", "shapes/zero_shot (%)",
    ]  # fmt: skip
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["uniform", "joint"]


def test_an_unknown_metric_names_the_nearest_recorded(lab):
    with pytest.raises(ValueError, match="no run of 'study' has recorded 'los': did you mean 'loss'"):
        plotted(lab, metric="los")
    with pytest.raises(ValueError, match="did you mean 'shapes/zero_shot'"):
        plotted(lab, metric="shapes/zeroshot")


def test_smoothing_is_a_running_mean_of_each_seed(lab):
    raw = plotted(lab, metric="loss", effort="steps").data
    smooth = plotted(lab, metric="loss", effort="steps", smooth=3)
    of = {name: data[data["label"] == "joint"]["mean"].to_numpy() for name, data in
          (("raw", raw), ("smooth", smooth.data))}  # fmt: skip
    assert of["smooth"][1:-1] == pytest.approx(np.convolve(of["raw"], np.ones(3) / 3, "valid"))
    assert of["smooth"][0] == pytest.approx(of["raw"][:2].mean())  # the window is shorter at the ends
    assert "running mean over 3 points of each seed" in smooth.texts.caption
    share = plotted(lab, metric="loss", effort="steps", smooth="25%")
    assert "running mean over 25% of the points" in share.texts.caption
    for wrong in (1, "50.5%", "wide", True):
        with pytest.raises(ValueError, match="must be a number of recorded points from 2"):
            plotted(lab, metric="loss", smooth=wrong)


def test_the_scale_of_the_axis(lab):
    assert plotted(lab, metric="loss", scale="log").figure().axes[0].get_yscale() == "log"
    assert not plotted(lab, metric="loss").data["log"].any()


def test_long_curves_are_thinned_and_keep_their_ends(new_store, stored_run):
    values = [1.0 / step for step in range(1, 3002)]
    run = stored_run("uniform", [0.1, 0.2], logged={"loss": values})
    data = plotted(new_store().add(run), metric="loss", effort="steps").data
    assert len(data) <= 502
    assert data["effort"].iloc[-1] == 3001
    assert data["mean"].iloc[-1] == pytest.approx(values[-1])
