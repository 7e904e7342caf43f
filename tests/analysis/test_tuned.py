"""Rows and curves of the best run of each seed."""

from collections import Counter
from typing import Any

import pytest

from jestlab.analysis.errors import NotYet, RequestError
from jestlab.analysis.figures import draw
from jestlab.analysis.results import opened
from jestlab.analysis.tables import Shape, table
from jestlab.analysis.tuned import with_best

DEV, TEST = "dev/loss", "test/accuracy"
SPEC: dict[str, Any] = {
    "metrics": {DEV: {"goal": "min"}, TEST: {"goal": "max"}},
    "score": [TEST],
    "axes": [{"runs": ["deep"], "labels": {"rate": {"name": "lr"}}}],
}
BEST = {"tuned": {"of": ["deep"], "by": DEV}}
CHOSEN = "deep lr=0.1 in 2 of 3, deep lr=1.0 in 1 of 3 seeds"


@pytest.fixture
def tuned(new_store, stored_run):
    """A function that stores a study: a baseline, and a run with three learning rates; three seeds each."""

    def made(dev, *, states=None, spec=SPEC):
        store = new_store()
        runs = []
        for rate, losses in dev.items():
            for seed, loss in enumerate(losses):
                label = f"deep rate={rate}" if rate else "flat"
                runs.append(
                    stored_run(
                        "deep" if rate else "flat", [0.1, 0.2 + rate + seed / 10], label=label, seed=seed,
                        metrics=[TEST], point={"rate": rate} if rate else {}, config={"rate": rate},
                        state=(states or {}).get((rate, seed), "COMPLETED"),
                        flops_per_step=(1e9 * (1 + rate), 0.0, 0.0), logged={DEV: [9.0, loss]},
                    )
                )  # fmt: skip
        return store.add(*runs, spec=spec)

    return made


LOSSES = {0: (5.0, 5.0, 5.0), 0.01: (3.0, 3.0, 3.0), 0.1: (1.0, 1.0, 2.0), 1.0: (2.0, 2.0, 1.0)}


def frames_of(store, best=BEST, kept=()):
    with opened(store.url) as snapshot:
        return with_best(snapshot, snapshot.frames("study"), best, kept)


def test_a_seed_of_the_row_is_its_best_run_by_the_metric(tuned):
    frames = frames_of(tuned(LOSSES))
    assert frames.labels == ["flat", "tuned"]
    assert dict(frames.chosen) == {
        ("tuned", 0): "deep rate=0.1", ("tuned", 1): "deep rate=0.1", ("tuned", 2): "deep rate=1.0",
    }  # fmt: skip
    ends = frames.scores[frames.scores["final"] & (frames.scores["label"] == "tuned")]
    assert ends[TEST].tolist() == pytest.approx([0.3, 0.4, 1.4])
    assert frames.costs.set_index(["label", "seed"]).loc[("tuned", 2), "learner_flops"] == 4e9
    assert CHOSEN in frames.about["tuned"]


def test_the_number_of_spikes_of_the_loss_chooses_too(new_store, stored_run):
    calm = [1.0 + 0.01 * (step % 5) for step in range(60)]
    runs = [
        stored_run(
            "deep", [0.1, 0.2], label=f"deep rate={rate}", metrics=[TEST], point={"rate": rate},
            logged={"loss": [*calm[:30], peak, *calm[31:]]},
        )
        for rate, peak in ((0.1, 90.0), (1.0, 1.0))
    ]  # fmt: skip
    best = {"calm": {"of": ["deep"], "by": "loss_spikes"}}
    frames = frames_of(new_store().add(*runs, spec=SPEC), best)
    assert dict(frames.chosen) == {("calm", 0): "deep rate=1.0"}


def test_replaced_runs_are_shown_if_they_are_named(tuned):
    frames = frames_of(tuned(LOSSES), kept=["deep rate=0.01", None])
    assert frames.labels == ["flat", "tuned", "deep rate=0.01"]
    assert len({frames.colors[label] for label in frames.labels}) == 3


@pytest.mark.parametrize("name", ["summary", "speedups"])
def test_a_table_has_the_row_and_says_how_it_was_chosen(name, tuned):
    store = tuned(LOSSES)
    shown = table(store.url, name, ["study"], best=BEST, baseline="flat")
    assert set(shown.rows) == {"flat", "tuned"}
    (note,) = (note for note in shown.notes if note.startswith("tuned: "))
    assert note == (
        f"tuned: in each seed, the best of 3 runs by {DEV} ({CHOSEN}); costs are those of the chosen "
        "runs, without the search"
    )
    assert shown.parts is not None
    own = shown.parts[shown.parts["row"] == "tuned"]
    assert Counter(own["label"]) == {"deep rate=0.1": 2, "deep rate=1.0": 1}
    assert own["fingerprint"].tolist() == ["deep rate=0.1-0", "deep rate=0.1-1", "deep rate=1.0-2"]


def test_rows_and_the_baseline_may_name_the_row_and_its_runs(tuned):
    store = tuned(LOSSES)
    shape = Shape(rows=["tuned,deep rate=0.1"])
    shown = table(store.url, "summary", ["study"], best=BEST, baseline="tuned", shape=shape)
    assert shown.rows == ["tuned", "deep rate=0.1"]
    assert set(shown.baselines.values()) == {"tuned"}


@pytest.mark.parametrize("kind", ["curves", "pareto", "speedup"])
def test_a_figure_has_a_curve_or_a_point_of_the_row(kind, tuned):
    plot = draw(kind, tuned(LOSSES).url, "study", best=BEST, baseline="flat")
    assert set(plot.data["label"]) == {"flat", "tuned"}
    assert f"tuned: in each seed, the best of 3 runs by {DEV} ({CHOSEN})" in plot.texts.caption


def test_curves_of_a_training_metric_are_those_of_the_best_runs(tuned):
    plot = draw("curves", tuned(LOSSES).url, "study", best=BEST, metric=[DEV], over="steps")
    means = plot.data[(plot.data["label"] == "tuned") & (plot.data["kind"] == "mean")]
    assert means["mean"].tolist() == [9.0, 1.0]


def test_lost_runs_are_not_chosen_and_a_seed_without_any_is_lost(tuned):
    failed = {(0.1, 0): "FAILED"} | {(rate, 2): "FAILED" for rate in (0.01, 0.1, 1.0)}
    frames = frames_of(tuned(LOSSES, states=failed))
    assert frames.chosen["tuned", 0] == "deep rate=1.0"
    assert frames.lost["tuned"] == "failed in 1 of 3 seeds"
    assert "deep lr=1.0 in 1 of 3, deep lr=0.1 in 1 of 3 seeds" in frames.about["tuned"]


def test_a_seed_has_no_result_before_all_its_runs_have_ended(tuned):
    frames = frames_of(tuned(LOSSES, states={(0.01, 1): "RUNNING"}))
    of_row = frames.runs[frames.runs["label"] == "tuned"]
    assert of_row["state"].tolist() == ["COMPLETED", "RUNNING", "COMPLETED"]
    assert set(frames.scores.loc[frames.scores["label"] == "tuned", "seed"]) == {0, 2}


@pytest.mark.parametrize(
    ("best", "error", "message"),
    [
        ({"flat": {"of": ["deep"], "by": DEV}}, RequestError, "'flat' is a run of 'study'"),
        ({"tuned": {"of": ["dep"], "by": DEV}}, RequestError, "no run 'dep'"),
        ({"tuned": {"of": ["deep"], "by": TEST}}, RequestError, "part of the score.* too good by chance"),
        ({"tuned": {"of": ["deep"], "by": "loss"}}, RequestError, ""),
        ({"tuned": {"of": ["deep"], "by": "dev/los"}}, RequestError, "dev/los has no goal"),
        (
            {"tuned": {"of": ["deep"], "by": "dev/top"}},
            NotYet,
            "in no seed, all of .* a value of dev/top",
        ),
    ],
)
def test_what_can_not_be_chosen_is_an_error(best, error, message, tuned):
    spec = SPEC | {"metrics": SPEC["metrics"] | {"dev/top": {"goal": "max"}, "loss": {}}}
    if not message:
        assert frames_of(tuned(LOSSES, spec=spec), best)  # the program declares the goal of the loss
        return
    with pytest.raises(error, match=message):
        frames_of(tuned(LOSSES, spec=spec), best)
