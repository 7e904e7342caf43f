"""The summary: every figure against one worked out by hand, and what it says of runs that are missing."""

from __future__ import annotations

import math
import re
import sqlite3
from typing import Any

import numpy as np
import pytest

from jestlab.analysis import frames, tables


def summary(store, *options, **more):
    return tables.summary(tables.finals(frames.read(store.url, "study"), *options, **more))


def shown(table):
    """Label → heading → text, of the table as people read it."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("*"): dict(zip(cells[0], row, strict=True)) for row in cells[2:]}


def test_rows_and_figures(study):
    table = summary(study, "uniform")
    rows = shown(table)
    assert list(rows) == ["reference", "uniform", "independent", "joint"]
    std = 100 * np.std([0.6, 0.7], ddof=1)
    assert rows["joint"] == {
        "run": "joint",
        "seeds": "2",
        "zero-shot": f"**65.0 ± {std:.1f}**",
        "I2T R@1": f"**65.0 ± {std:.1f}**",
        "score": f"**65.0 ± {std:.1f}**",
        "Δ uniform": "+20.0 [+20.0, +20.0]",  # .6 − .4 and .7 − .5: paired by seed
        "examples": "256",
        "GFLOP": "32.0",
        "fewer examples": "**2.3×**",  # 4/1.5 and 4/2
        "fewer FLOPs": "0.9×",
    }
    # .1 and −.1: 12.706 standard errors of 10 points to either side
    assert rows["independent"]["Δ uniform"] == "+0.0 [−127.1, +127.1]"
    assert rows["independent"]["fewer examples"] == "not reached (1/2)"
    assert (rows["uniform"]["Δ uniform"], rows["uniform"]["fewer FLOPs"]) == ("—", "**1.0×**")
    assert (rows["uniform"]["GFLOP"], rows["reference"]["GFLOP"]) == ("12.0", "6.00")


def test_a_reference_is_apart_and_never_the_best(study):
    table = summary(study, "uniform")
    assert list(table.frame["apart"]) == [True, False, False, False]
    reference = shown(table)["reference"]
    assert reference["score"].startswith("75.0")  # higher than all, and not bold
    assert {reference[key] for key in ("Δ uniform", "fewer examples", "fewer FLOPs")} == {"—"}
    assert "reference: a reference that other runs depend on; not ranked" in table.notes


def test_frame_holds_raw_numbers(study):
    frame: Any = summary(study, "uniform").frame.set_index("label")
    joint = frame.loc["joint"]
    assert joint["score_mean"] == pytest.approx(0.65)
    assert joint["score_std"] == pytest.approx(np.std([0.6, 0.7], ddof=1))
    assert (joint["delta_mean"], joint["delta_seeds"]) == (pytest.approx(0.2), 2)
    assert joint["fewer_examples"] == pytest.approx((4 / 1.5 + 4 / 2) / 2)
    assert joint["fewer_flops"] == pytest.approx((4 / 1.5 + 4 / 2) / 2 * 3 / 8)
    independent = frame.loc["independent"]
    assert (independent["seeds_reached"], independent["seeds_compared"]) == (1, 2)
    assert math.isnan(independent["fewer_examples"])


@pytest.mark.parametrize(
    ("scope", "gflop"),
    [("learner", "12.0"), ("scoring", "32.0"), ("reference_scoring", "52.0"), ("reference_training", "60.0")],
)
def test_scope(study, scope, gflop):
    table = summary(study, "uniform", scope)
    assert shown(table)["joint"]["GFLOP"] == gflop
    assert sum(note.startswith("FLOPs: ") for note in table.notes) == 1


def test_the_baseline_defaults_to_the_first_competitor(study):
    assert "Δ uniform" in shown(summary(study))["joint"]
    assert "Δ joint" in shown(summary(study, "joint"))["uniform"]
    with pytest.raises(ValueError, match="has no run 'unform': did you mean 'uniform'"):
        summary(study, "unform")


def test_nothing_to_compare_no_such_columns(new_store, stored_run):
    store = new_store().add(stored_run("uniform", [0.25]))
    table = summary(store)
    assert shown(table) == {
        "uniform": {"run": "uniform", "seeds": "1", "zero-shot": "25.0†", "I2T R@1": "25.0†",
                    "score": "25.0†", "examples": "64", "GFLOP": "3.00"}
    }  # fmt: skip
    assert "one seed each" in table.caption


def test_half_finished(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.2], seed=0),
        stored_run("uniform", [0.1, 0.4], seed=1),
        stored_run("joint", [0.3, 0.5], seed=0),
        stored_run("joint", [0.9], seed=1, state="FAILED", reason="exit code 1: boom\nmore", total_steps=2),
        stored_run("easy", [], seed=0, state="PENDING", total_steps=2),
    )
    table = summary(store)
    rows = shown(table)
    assert (rows["joint"]["seeds"], rows["joint"]["score"]) == ("1 of 2", "**50.0**†")
    assert rows["joint"]["Δ uniform"] == "+30.0†"  # of seed 0 alone
    assert (rows["easy"]["seeds"], rows["easy"]["score"]) == ("0 of 1", "—")
    assert "joint: seed 1 FAILED at step 1 of 2 (exit code 1: boom)" in table.notes
    assert "easy: seed 0 PENDING" in table.notes


def test_steps_to_go_may_be_unknown(new_store, stored_run):
    store = new_store().add(stored_run("uniform", [0.2]), stored_run("own", [0.1], state="RUNNING"))
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE v_runs SET total_steps = NULL")
    connection.close()
    assert "own: seed 0 RUNNING at step 1" in summary(store).notes


def test_none_finished(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1], state="RUNNING"), stored_run("joint", [0.1], state="FAILED")
    )
    with pytest.raises(
        ValueError, match="no run of experiment 'study' has completed yet: 1 RUNNING, 1 FAILED"
    ):
        summary(store)


def test_a_missing_metric_is_said(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.2]), stored_run("joint", [0.3], metrics=["shapes/zero_shot"])
    )
    table = summary(store)
    assert shown(table)["joint"]["score"] == "—"
    assert "joint: no score where shapes_retrieval/i2t_r1 is missing" in table.notes


def test_headings_name_the_dataset_where_it_tells_metrics_apart(new_store, stored_run):
    metrics = ["a/zero_shot", "b/zero_shot", "b/9_shot"]
    store = new_store().add(stored_run("uniform", [0.2], metrics=metrics))
    assert list(shown(summary(store))["uniform"])[2:5] == [
        "a zero-shot",
        "9_shot",
        "b zero-shot",
    ]


def test_raw_scores_are_no_percentages(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [31.4159]),
        stored_run("joint", [30.0]),
        spec={"metrics": {"*": {"goal": "max"}}},
    )
    table = summary(store)
    assert shown(table)["uniform"]["score"] == "**31.42**†"
    assert shown(table)["joint"]["Δ uniform"] == "−1.416†"
    assert "%" not in table.caption


def test_a_run_without_a_price(new_store, stored_run):
    unpriced = (0.0, 0.0, 0.0)
    store = new_store().add(
        stored_run("uniform", [0.1, 0.2], flops_per_step=unpriced),
        stored_run("own", [0.2], flops_per_step=unpriced),
    )
    row = shown(summary(store))["own"]
    assert row["fewer examples"] == "**≥ 2.0×**†"
    assert not [header for header in row if "FLOP" in header or "time" in header]  # nobody knows them


def test_snapshot(study):
    lines = summary(study, "uniform").markdown().splitlines()
    assert [re.sub(" +", " ", re.sub("-+", "-", line)) for line in lines[:6]] == [
        "| run | seeds | zero-shot | I2T R@1 | score | Δ uniform | examples | GFLOP | "
        "fewer examples | fewer FLOPs |",
        "|:-|-:|-:|-:|-:|-:|-:|-:|-:|-:|",
        "| *reference* | 2 | 75.0 ± 7.1 | 75.0 ± 7.1 | 75.0 ± 7.1 | — | 128 | 6.00 | — | — |",
        "| uniform | 2 | 45.0 ± 7.1 | 45.0 ± 7.1 | 45.0 ± 7.1 | — | 256 | 12.0 | 1.0× | **1.0×** |",
        "| independent | 2 | 45.0 ± 7.1 | 45.0 ± 7.1 | 45.0 ± 7.1 | +0.0 [−127.1, +127.1] | 256 | 32.0 | "
        "not reached (1/2) | not reached (1/2) |",
        "| joint | 2 | **65.0 ± 7.1** | **65.0 ± 7.1** | **65.0 ± 7.1** | +20.0 [+20.0, +20.0] | "
        "256 | 32.0 | **2.3×** | 0.9× |",
    ]
    assert re.sub(" +", " ", " ".join(lines[7:])) == (
        "study: Is it faster? Scores in %, mean ± standard deviation over seeds; score is the mean of the "
        "metrics. - FLOPs: training, plus the learner's scoring and selection; without the reference's "
        "scoring - Δ: score minus that of uniform with the same seed, mean [95% confidence interval] - fewer "
        "examples, FLOPs: factor by which a run reaches the final score of uniform sooner than uniform "
        "itself; same seed, where the interpolated curve first crosses it, median over seeds (seeds that "
        "reach it); fewer FLOPs leaves out making the reference: with its scoring and each run's share in "
        "its training, the factors are joint 0.4× - reference: a reference "
        "that other runs depend on; not ranked"
    )


def test_recall_at_further_ranks_changes_neither_score_nor_columns(new_store, stored_run):
    headline = ["coco/i2t_r1", "shapes/zero_shot"]
    further = ["coco/i2t_r5", "coco/i2t_r10"]
    tables_of = {}
    for metrics in (headline, headline + further):
        store = new_store().add(stored_run("uniform", [0.2], metrics=metrics))
        if further[0] in metrics:
            with sqlite3.connect(store.path) as connection:
                connection.execute("UPDATE v_evaluations SET value = 0.9 WHERE metric LIKE '%_r5'")
                connection.execute("DELETE FROM v_evaluations WHERE metric LIKE '%_r10'")
            connection.close()
        tables_of[len(metrics)] = summary(store)
    assert tables_of[2].markdown() == tables_of[4].markdown()
    assert shown(tables_of[4])["uniform"]["score"] == "20.0†"
    assert list(tables_of[2].frame) == list(tables_of[4].frame)


def test_a_score_over_shared_metrics(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.2]), stored_run("joint", [0.3], metrics=["shapes/zero_shot"])
    )
    table = summary(store, mean="shared")
    assert shown(table)["joint"]["Δ uniform"] == "+10.0†"
    assert "score: without shapes_retrieval/i2t_r1, which some runs lack" in table.notes
    apart = new_store().add(
        stored_run("uniform", [0.2], metrics=["a/zero_shot"]),
        stored_run("joint", [0.3], metrics=["b/zero_shot"]),
    )
    with pytest.raises(ValueError, match="runs of experiment 'study' share no metric"):
        summary(apart, mean="shared")


def test_the_lasting_crossing_is_later(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.2, 0.3, 0.4]), stored_run("joint", [0.5, 0.3, 0.5, 0.5])
    )
    read = frames.read(store.url, "study")
    first, lasting = (tables.summary(tables.finals(read, crossing=which)) for which in ("first", "lasting"))
    assert shown(first)["joint"]["fewer examples"] == "**≥ 4.0×**†"
    assert shown(lasting)["joint"]["fewer examples"] == "**1.6×**†"  # at step 2.5 of 4


def test_parts_are_what_the_means_were_made_from(study):
    table = summary(study, "uniform")
    assert table.parts is not None
    joint = table.parts[table.parts["row"] == "joint"]
    assert list(joint["seed"]) == [0, 1]
    for column in table.columns[2:]:  # after the run's name and the number of seeds
        assert column.key in joint, column.key
    assert joint["score"].mean() == pytest.approx(0.65)
    assert list(joint["delta"]) == pytest.approx([0.2, 0.2])


def test_cells_by_name(study):
    table = summary(study, "uniform")
    assert table.row_named("JOINT") == table.row_named("jo") == "joint"
    assert table.column_named("Δ uniform").key == table.column_named("delta").key == "delta"
    assert table.cell("joint", table.column_named("score")).text.startswith("65.0")
    with pytest.raises(ValueError, match="no row 'jiont': did you mean 'joint'"):
        table.row_named("jiont")
    with pytest.raises(ValueError, match="several columns named 'fewer': choose one of"):
        table.column_named("fewer")


def test_speedups(study):
    table = tables.speedup_table(tables.finals(frames.read(study.url, "study"), "uniform"))
    rows = shown(table)
    assert list(rows) == ["uniform", "independent", "joint"]
    assert rows["joint"] == {
        "run": "joint",
        "reached": "2 of 2",
        "examples to match": "112 [96, 128]",  # 64 · 1.5 and 64 · 2
        "fewer examples": "**2.3×**",
        "GFLOP to match": "14.0 [12.0, 16.0]",
        "fewer FLOPs": "0.9×",
        "break-even": "∞",  # it saves nothing
    }
    assert (
        rows["independent"]["examples to match"] == "> 192 [128, > 256]"
    )  # seed 1 never gets there: (128 + more than 256) / 2
    assert rows["uniform"]["examples to match"] == "256"


def test_a_score_never_reached_is_censored_and_not_extrapolated(new_store, stored_run):
    store = new_store().add(stored_run("uniform", [0.1, 0.5]), stored_run("hard", [0.1, 0.4]))
    row = shown(tables.speedup_table(tables.finals(frames.read(store.url, "study"))))["hard"]
    assert row["examples to match"] == "> 128, not reached†"
    assert row["GFLOP to match"] == "> 6.00, not reached†"
    assert row["fewer examples"] == "not reached†"


def test_a_copy_of_the_baseline_is_no_sooner_than_it(new_store, stored_run):
    scores = [[0.1, 0.5, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]]
    copies = [stored_run(name, s, seed=i) for name in ("uniform", "copy") for i, s in enumerate(scores)]
    rows = shown(tables.speedup_table(tables.finals(frames.read(new_store().add(*copies).url, "study"))))
    assert rows["copy"]["fewer examples"] == rows["uniform"]["fewer examples"] == "**1.0×**"
    assert rows["copy"]["examples to match"] == rows["uniform"]["examples to match"] == "184 [112, 256]"


def test_what_is_there_at_the_first_evaluation_may_be_sooner(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.2, 0.3, 0.4]), stored_run("joint", [0.6, 0.6, 0.6, 0.6])
    )
    row = shown(tables.speedup_table(tables.finals(frames.read(store.url, "study"))))["joint"]
    assert (row["examples to match"], row["fewer examples"]) == ("≤ 64†", "**≥ 4.0×**†")


def test_marks_and_fewer_seeds_are_explained(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.4], seed=0),
        *(stored_run("joint", [0.3, 0.5], seed=seed) for seed in (0, 1)),
        stored_run("joint", [0.3, 0.5], seed=2, metrics=["shapes/zero_shot"]),
    )
    table = summary(store)
    row = shown(table)["joint"]
    assert row["Δ uniform"] == "+10.0†"  # two seeds have nothing to be compared with
    assert row["I2T R@1"] == "**50.0 ± 0.0 (n = 2)**"
    assert row["zero-shot"] == "**50.0 ± 0.0**"
    assert "† one seed only: its spread is unknown" in table.notes
    assert not any("†" in note for note in summary(store, "joint").notes[:3])
