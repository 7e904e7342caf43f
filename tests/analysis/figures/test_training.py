"""Learners against their references, and spikes in training: numbers calculated by hand."""

from typing import Any

import numpy as np
import pytest

from jestlab.analysis import figures

UNIFORM = {"selection.rule": "uniform", "schedule.examples_seen": 128, "data.filter": None}
LONG = {"data.filter": "similarity > 0.3", "schedule.examples_seen": 512}


def pairs(stored_runs, name, reference, learner, **config):
    selecting = {"selection.rule": "joint", "selection.reference": f"reference-{name}"}
    references, learners = ([[0.1, score] for score in scores] for scores in (reference, learner))
    return [
        *stored_runs(f"reference-{name}", *references, needed=1, config=UNIFORM | config),
        *stored_runs(f"joint-{name}", *learners, config=UNIFORM | selecting),
    ]


@pytest.fixture
def curation(new_store, stored_runs):
    """Three filters and a longer run of the strong one; uniform ends at .4 and .5."""
    return new_store().add(
        *stored_runs("uniform", [0.1, 0.4], [0.1, 0.5], config=UNIFORM),
        *pairs(stored_runs, "weak", (0.3, 0.4), (0.4, 0.5), **{"data.filter": "similarity > 0.1"}),
        *pairs(stored_runs, "strong", (0.2, 0.3), (0.6, 0.8), **{"data.filter": "similarity > 0.3"}),
        *pairs(stored_runs, "all", (0.4, 0.2), (0.4,)),
        *pairs(stored_runs, "long", (0.5, 0.6), (0.7, 0.9), **LONG),
    )


def test_learners_against_their_references(curation):
    plot = figures.against_reference(curation.read())
    means: Any = plot.data[plot.data["kind"] == "mean"].set_index("text")
    strong = means.loc["joint-strong", ["x", "y", "x_low", "x_high", "low", "high"]].tolist()
    half = 12.7062 * 5  # of the confidence interval of two seeds that are 10 points apart
    assert strong == pytest.approx([-20, 25, -20, -20, 25 - half, 25 + half], rel=1e-4)
    assert means.loc["joint-all", ["x", "y", "seeds"]].tolist() == pytest.approx([0, 0, 1])
    path = plot.data[(plot.data["kind"] == "path") & plot.data["line"].duplicated(keep=False)]
    same = path[path["text"].isin(["joint-strong", "joint-long"])]  # the same filter
    assert list(same["x"]) == pytest.approx([-20, 10])
    figure = plot.figure()
    assert len(figure.axes) == 1
    names = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert names == {*means.index, "uniform"}
    assert "both minus uniform with the same seed" in plot.texts.caption


def test_needs_references_and_a_completed_baseline(results, new_store, stored_run, stored_runs):
    with pytest.raises(ValueError, match="'study' has 0 references that completed with their learners"):
        figures.against_reference(results)
    store = new_store().add(
        stored_run("uniform", [0.1], state="RUNNING", config=UNIFORM, total_steps=2),
        *pairs(stored_runs, "a", (0.3, 0.4), (0.4, 0.5)),
    )
    with pytest.raises(ValueError, match="baseline 'uniform' of 'study' has not completed"):
        figures.against_reference(store.read())


def run(stored_run, rule, value, losses, seed=0, key="optimizer.beta2"):
    config = UNIFORM | {"selection.rule": rule, key: value}
    return stored_run(
        rule, [0.1], label=f"{rule} {value}", seed=seed, config=config, point={key: value},
        logged={"loss": losses},
    )  # fmt: skip


def noisy(steps, *spikes):
    values = 2.0 + 0.01 * np.random.default_rng(steps).normal(size=steps)
    for at in spikes:
        values[at : at + 3] += (5.0, 3.0, 1.0)
    return values.tolist()


def test_spikes_are_counted(new_store, stored_run):
    store = new_store().add(
        run(stored_run, "uniform", 0.95, noisy(200)),
        run(stored_run, "uniform", 0.999, noisy(200)),
        run(stored_run, "greedy", 0.95, noisy(200)),  # has no panel, since it doesn't vary β₂
        run(stored_run, "joint", 0.95, noisy(200, 50)),
        run(stored_run, "joint", 0.999, noisy(200, 50, 120), seed=0),
        run(stored_run, "joint", 0.999, [None, *noisy(199, 20)], seed=1),
    )
    plot = figures.optimizer_spikes(store.url, "study")
    ends = plot.data[plot.data["kind"] == "end"].set_index(["panel", "line"])["spikes"]
    counts = {("uniform", "0.95"): 0, ("uniform", "0.999"): 0, ("joint", "0.95"): 1, ("joint", "0.999"): 3}
    assert ends.to_dict() == {(rule, f"β₂ = {beta2}"): count for (rule, beta2), count in counts.items()}
    smooth = plot.data[(plot.data["kind"] == "smooth") & (plot.data["panel"] == "joint")]
    assert smooth["value"].between(1.9, 2.1).all()  # no spike moves the median
    figure = plot.figure()
    titles = [axes.get_title(loc="left").replace("\n", " ") for axes in figure.axes]
    assert titles == [
        f"{rule}; spikes: {low} at 0.95, {high} at 0.999"
        for rule, low, high in (("uniform", 0, 0), ("joint", 1, 3))
    ]


def test_no_spike_of_a_long_run_is_lost_by_any_key(new_store, stored_run):
    key = "selection.filtering_ratio"
    losses = {0.5: noisy(7000, 3333), 0.9: noisy(7000)}
    store = new_store().add(*(run(stored_run, "joint", f, loss, key=key) for f, loss in losses.items()))
    raw = figures.optimizer_spikes(store.url, "study", x=key).data.query("kind == 'raw'")
    lines = {("joint", f"filtering_ratio = {f}") for f in losses}
    assert set(zip(raw["panel"], raw["line"], strict=True)) == lines
    assert len(raw) < 2 * 2 * 1000 + 2
    assert raw["value"].max() > 6.9
    assert raw.groupby("label")["step"].is_monotonic_increasing.all()


def test_spikes_need_two_values_of_the_key_and_more_points(study, new_store, stored_run):
    with pytest.raises(ValueError, match=r"no run of experiment 'study' varies optimizer\.beta2"):
        figures.optimizer_spikes(study.url, "study")
    store = new_store().add(*(run(stored_run, "joint", beta2, noisy(20, 10)) for beta2 in (0.95, 0.999)))
    with pytest.raises(ValueError, match="has logged 'grad_norm'"):
        figures.optimizer_spikes(store.url, "study", metric=("grad_norm",))
    figure = figures.draw("optimizer_spikes", store.url, "study", metric=()).figure()
    assert figure.axes[0].get_title(loc="left") == "joint"  # without counts
