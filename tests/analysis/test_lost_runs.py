"""Runs that diverged, failed, or were never evaluated, in tables, figures, and the answer."""

import math

import pytest

from jestlab.analysis import curves, figures
from jestlab.analysis.figures.pareto import pareto
from jestlab.analysis.figures.style import SURVIVORS
from jestlab.analysis.report.answer import answer
from jestlab.analysis.tables import finals, speedup_table, summary

INF = math.inf
GOALS = {"max": {}, "min": {"metrics": {"*/*": {"goal": "min"}}}}


def cell(table, row, column):
    return table.cell(row, table.column_named(column))


def speedups(found):
    return speedup_table(finals(found)).frame.set_index("label")


@pytest.fixture(params=[(goal, lost) for goal in GOALS for lost in (INF, -INF, None)])
def diverged(request, read_runs, stored_runs):
    """Results in which the better run diverged in two of five seeds."""
    goal, lost = request.param
    better, worse = (0.7, 0.5) if goal == "max" else (0.3, 0.5)
    best = [[0.4, better], [0.4, better], [0.4, better], [0.4, lost], [0.4, lost]]
    return read_runs(
        *stored_runs("uniform", *([0.4, worse + seed / 100] for seed in range(5))),
        *stored_runs("better", *best),
        *stored_runs("plain", *([0.4, worse + 0.001] for _ in range(5))),
        spec=GOALS[goal],
    )


def test_a_run_that_diverged_is_not_the_best(diverged):
    table = summary(finals(diverged))
    assert not cell(table, "better", "score").bold
    assert "[" not in cell(table, "better", "delta").text  # of seeds that were selected
    assert "better: diverged in 2 of 5 seeds; not ranked" in table.notes
    said = answer(table, finals(diverged))
    assert said.sentence.startswith("plain is ")
    assert "Not judged: better (diverged in 2 of 5 seeds)" in said.caveat
    # The median of five seeds is the latest of the three that reached the score of the baseline.
    found = speedups(diverged).loc["better"]
    steps = 1 + (0.5 + 0.02 - 0.4) / (0.7 - 0.4) if diverged.score.goal == "max" else 1
    assert found["examples_to_match"] == pytest.approx(64 * steps)
    assert (found["seeds_compared"], found["examples_spent"]) == (5, 128)
    # Nor is it on the front, which stays.
    plot = pareto(diverged)
    means = plot.data[plot.data["kind"] == "mean"].set_index("label")
    assert not means.loc["better", "on_front"] and means["on_front"].any()
    assert means.loc["better", "seeds"] == 3
    assert "better diverged in 2 of 5 seeds." in plot.texts.caption
    assert plot._drawn([".svg"])


def test_a_seed_that_diverged_without_its_baseline_is_not_compared(read_runs, stored_runs):
    found = read_runs(*stored_runs("uniform", [0.5], [0.5]), *stored_runs("a", [0.9], [0.9], [INF]))
    assert speedups(found).loc["a", "seeds_compared"] == 2


def test_an_infinite_score_and_the_largest_numbers_are_shown(read_runs, stored_runs):
    uniform, spec = stored_runs("uniform", [0.5], [0.5]), {"metrics": {"*/*": {"goal": "max"}}}
    for scores, shown in (
        ([0.9, INF], ("inf", False)),
        ([1.7e308] * 2, ("1.7e+308 [1.7e+308, 1.7e+308]", True)),
    ):
        found = read_runs(*uniform, *stored_runs("a", *([score] for score in scores)), spec=spec)
        score = cell(summary(finals(found)), "a", "score")
        assert (score.text, score.bold) == shown
        for plot in (figures.pareto(found), figures.learning_curves(found), figures.speedup(found)):
            assert plot._drawn([".svg"]), plot.name


def test_the_front_may_be_empty(read_runs, stored_runs):
    plot = pareto(read_runs(*stored_runs("a", [0.4], [INF]), *stored_runs("b", [0.5], [INF])))
    assert not plot.data["on_front"].eq(True).any()
    assert plot._drawn([".svg"])


@pytest.mark.parametrize("lost", [INF, None, "failed"])
def test_figures_tell_a_mean_of_survivors_from_one_of_all_seeds(lost, read_runs, stored_run, stored_runs):
    state, last = ("FAILED", 0.4) if lost == "failed" else ("COMPLETED", lost)
    found = read_runs(
        *stored_runs("uniform", *([0.4, 0.5] for _ in range(5)), config={"width": 1}),
        *stored_runs("better", *([0.4, 0.7] for _ in range(3)), config={"width": 2}),
        *(stored_run("better", [0.4, last], seed=s, state=state, config={"width": 2}) for s in (3, 4)),
    )
    verb = "failed" if lost == "failed" else "diverged"
    against = figures.against(found, figures.Axis("width", ("rule",)))
    plots = figures.learning_curves(found), figures.speedup(found), figures.pareto(found), against
    for plot in plots:
        assert f"better {verb} in 2 of 5 seeds. Means are over the seeds" in plot.texts.caption, plot.name
        assert "uniform diverged" not in plot.texts.caption
        assert plot._drawn([".svg"])
    for plot in plots[:3]:
        names = dict(zip(plot.data["label"], plot.data["text"], strict=True))
        assert names == {"uniform": "uniform", "better": "better (3 of 5 seeds)"}
        lines = dict(zip(plot.data["label"], plot.data["line"], strict=True))
        assert (lines["uniform"], lines["better"]) == ("-", SURVIVORS)
    ends = against.data[against.data["kind"] == "mean"].set_index("label")
    assert [ends["y"]["better"], ends["seeds"]["better"]] == pytest.approx([70.0, 3])
    assert list(plots[0].data["mean"])[-1] == pytest.approx(70.0)


def test_a_figure_of_a_metric_tells_which_seeds_lost_that_one(new_store, stored_runs):
    store = new_store().add(*stored_runs("uniform", [0.4, 0.5], [0.4, 0.5], [0.4, 0.5]))
    store.execute("UPDATE v_evaluations SET value = NULL WHERE step = 2 AND seed = 1 AND metric = 'i2t_r1'")
    found = store.read().scored_by(["shapes/zero_shot"])
    [retrieval, zero_shot] = (
        figures.learning_curves(found, store=store.url, metric=[name]).texts.caption
        for name in ("shapes_retrieval/i2t_r1", "shapes/zero_shot")
    )
    assert "uniform diverged in 1 of 3 seeds" in retrieval and "diverged" not in zero_shot


def test_a_baseline_that_diverged_is_compared_with_nothing(read_runs, stored_runs):
    found = finals(read_runs(*stored_runs("uniform", [0.5], [None]), *stored_runs("a", [0.9], [0.8])))
    said = answer(summary(found), found)
    assert (
        said.sentence
        == "a scores 85.0% (95% CI 21.5 to 148.5, n = 2); it is not compared with uniform, the baseline."
    )
    assert said.caveat == "Not judged: uniform (diverged in 1 of 2 seeds)."


def test_a_run_without_an_evaluation_has_a_row_and_a_reason(read_runs, stored_run, stored_runs):
    results = read_runs(
        *stored_runs("uniform", [0.5], [0.5]),
        *stored_runs("silent", [], []),
        stored_run("cache", [], needed=1),
        stored_run("a", [0.9]),
        stored_run("a", [0.9], seed=1, state="FAILED"),
    )
    found = finals(results)
    table = summary(found)
    assert [line.key for line in table.lines] == ["uniform", "silent", "a"]
    assert "silent: completed without an evaluation in 2 of 2 seeds" in table.notes
    assert "a: failed in 1 of 2 seeds" in table.notes
    caveat = answer(table, found).caveat
    assert caveat.startswith("Not judged: silent (completed without an evaluation in 2 of 2 seeds).")
    assert "a (1 of 2, failed in 1 of 2 seeds)" in caveat


def test_a_label_has_one_note(read_runs, stored_runs):
    found = read_runs(
        *stored_runs("uniform", [0.5], [0.5]),
        *stored_runs("huge", [INF], [None]),
        *stored_runs("crash", [0.1], [0.1], state="FAILED"),
        *stored_runs("slow", [0.1], state="RUNNING"),
    )
    assert finals(found).gaps == [
        "huge: diverged in 2 of 2 seeds; not ranked",
        "crash: failed in 2 of 2 seeds",
        "slow: seed 0 RUNNING",
    ]


def test_a_run_of_no_flops_is_not_one_of_unknown_flops(read_runs, stored_run, stored_runs):
    found = read_runs(
        stored_run("zero", [0.3], flops_per_step=(0, 0, 0)),
        *stored_runs("a", [0.1, 0.4]),
        stored_run("unknown", [0.4], counts=False),
    )
    ends = curves.score_curves(found).groupby("label")["flops"].last()
    assert ends["zero"] == 0 and ends["a"] > 0 and math.isnan(ends["unknown"])
    plot = pareto(found)
    means = plot.data[plot.data["kind"] == "mean"].set_index("label")
    assert means["cost"].to_dict() == {"zero": 0.0, "a": 6e9}
    assert "Not shown (FLOPs unknown): unknown." in plot.texts.caption
    assert plot._drawn([".svg"])
    table = summary(finals(found))
    assert cell(table, "zero", "flops").text == "0"
    assert answer(table, finals(found)).tiles[-1].value == "∞× more FLOPs"
    sooner = read_runs(*stored_runs("a", [0.1, 0.4]), stored_run("free", [0.5], flops_per_step=(0, 0, 0)))
    for results, is_sooner in ((found, False), (sooner, True)):
        drawn = figures.speedup(results, "a").figure()
        texts = {text.get_text() for axes in drawn.axes for text in axes.texts}
        assert not any("nan" in text or "inf" in text for text in texts) and ("∞" in texts) == is_sooner


def test_runs_with_and_without_examples_are_read_together(new_store, stored_run):
    store = new_store().add(
        stored_run("a", [0.1, 0.2]), stored_run("b", [0.1, 0.3, 0.4], counts=False, metrics=("x/y", "x/z"))
    )
    store.execute("DELETE FROM v_evaluations WHERE label = 'b' AND metric = 'y' AND step = 1")
    read = store.read().scores.set_index(["label", "step"])
    assert read.loc[("a", 2), "examples_seen"] == 128
    assert read.xs("b")["examples_seen"].isna().all()
