"""The summary and the speed-ups: every number calculated by hand, and notes about missing runs."""

import math
import re

import numpy as np
import pytest

from jestlab.analysis import figures, tables
from jestlab.analysis.metrics import Metric
from jestlab.analysis.provenance.warnings import Origins
from jestlab.analysis.tables.show import interval


def summary(results, *options, **more):
    return tables.summary(tables.finals(results, *options, **more))


def speedups(results, *options):
    return shown(tables.speedup_table(tables.finals(results, *options)))


def shown(table):
    """Return the Markdown table as label → heading → text."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("*"): dict(zip(cells[0], row, strict=True)) for row in cells[2:]}


def test_summary(results):
    table = summary(results, "uniform")
    rows = shown(table)
    assert list(rows) == ["reference", "uniform", "independent", "joint"]
    half = 100 * 12.7062 * np.std([0.6, 0.7], ddof=1) / math.sqrt(2)
    score = f"**65.0 [{65 - half:.1f}, {65 + half:.1f}]**"
    assert rows["joint"] == {
        "run": "joint",
        "seeds": "2",
        "zero-shot": score,
        "I2T R@1": score,
        "score": score,
        "Δ uniform": "+20.0 [+20.0, +20.0]",  # .6 − .4 and .7 − .5: paired by seed
        "examples": "256",
        "GFLOP": "32.0",
        "fewer examples": "2.3×",  # 4/1.5 and 4/2, whose interval includes 1
        "fewer FLOPs without reference": "0.9×",
    }
    # .1 and −.1: 12.706 standard errors of 10 points to either side
    assert rows["independent"]["Δ uniform"] == "+0.0 [−127.1, +127.1]"
    assert rows["independent"]["fewer examples"] == "not reached (1/2)"
    assert shown(summary(results, "joint"))["uniform"]["Δ joint"] == "−20.0 [−20.0, −20.0]"
    assert (rows["uniform"]["Δ uniform"], rows["uniform"]["fewer FLOPs without reference"]) == ("—", "1.0×")
    assert (rows["uniform"]["GFLOP"], rows["reference"]["GFLOP"]) == ("12.0", "6.00")
    # A reference is not ranked, although its score is the highest.
    assert list(table.frame["apart"]) == [True, False, False, False]
    assert rows["reference"]["score"].startswith("75.0")
    factors = ("fewer examples", "fewer FLOPs without reference")
    assert {rows["reference"][key] for key in ("Δ uniform", *factors)} == {"—"}
    assert "fewer FLOPs" in shown(summary(results, "uniform", scope="reference_training"))["joint"]


def test_caption_and_notes(results):
    lines = summary(results, "uniform").markdown().splitlines()
    told = re.sub(" +", " ", " ".join(lines[7:]))
    assert told.startswith(
        "study: Is it faster? Scores in %, mean over seeds [95% confidence interval]; bold: the best, if "
        "its paired interval against the runner-up excludes 0; score is the mean of the metrics. - Δ: score "
        "minus that of uniform with the same seed, mean [95% confidence interval]"
    )
    for note in (
        "- FLOPs: training, plus the learner's scoring and selection",
        "- reference: a reference that other",
    ):
        assert note in told
    whole = summary(results, "uniform", "reference_training")
    assert shown(whole)["joint"]["GFLOP"] == "60.0"
    assert sum(note.startswith("FLOPs: ") for note in whole.notes) == 1


def test_one_run_has_no_columns_of_comparisons(read_runs, stored_run):
    # Headings name the dataset of ambiguous metrics.
    metrics = ["a/zero_shot", "b/zero_shot", "b/9_shot"]
    table = summary(read_runs(stored_run("uniform", [0.25], metrics=metrics)))
    headings = ["run", "seeds", "a zero-shot", "9_shot", "b zero-shot", "score", "examples", "GFLOP"]
    texts = ["uniform", "1", *["25.0†"] * 4, "64", "3.00"]
    assert shown(table) == {"uniform": dict(zip(headings, texts, strict=True))}


def test_unfinished_runs(read_runs, stored_run, stored_runs):
    results = read_runs(
        *stored_runs("uniform", [0.1, 0.2], [0.1, 0.4]),
        stored_run("joint", [0.3, 0.5]),
        stored_run("joint", [0.9], seed=1, state="FAILED"),
        stored_run("easy", [], state="PENDING"),
    )
    table = summary(results)
    rows = shown(table)
    assert (rows["joint"]["seeds"], rows["joint"]["score"]) == ("1 of 2", "50.0†")
    assert rows["joint"]["Δ uniform"] == "+30.0†"  # of seed 0 alone
    assert (rows["easy"]["seeds"], rows["easy"]["score"]) == ("0 of 1", "—")
    assert [note for note in table.notes if note.startswith("joint")] == ["joint: failed in 1 of 2 seeds"]
    assert "easy: seed 0 PENDING" in table.notes
    states = {"uniform": "RUNNING", "joint": "FAILED"}
    results = read_runs(*(stored_run(name, [0.1], state=state) for name, state in states.items()))
    with pytest.raises(ValueError, match=r"no run of .* 'study' has completed yet: 1 RUNNING, 1 FAILED"):
        summary(results)


def test_runs_of_unknown_or_no_flops(read_runs, stored_run):
    def read(uniform, own):
        runs = (("uniform", uniform), ("own", own))
        return read_runs(*(stored_run(name, [0.1, 0.2], flops_per_step=flops) for name, flops in runs))

    row = shown(summary(read(None, None)))["own"]
    assert row["fewer examples"] == "1.0×†"
    assert not [header for header in row if "FLOP" in header or "time" in header]
    results = read((3e9, 0.0, 0.0), (0.0, 0.0, 0.0))
    row = shown(summary(results))["own"]
    assert (row["GFLOP"], row["fewer FLOPs"]) == ("0", "∞†")
    row = speedups(results)["own"]
    assert (row["GFLOP to match"], row["fewer FLOPs"]) == ("0†", "∞†")


def test_the_baseline_is_the_one_that_the_study_names(read_runs, stored_run):
    runs = (stored_run("uniform", [0.2]), stored_run("joint", [0.3]))
    for reports, heading in (([{"kind": "pareto"}, {"kind": "table", "baseline": "joint"}], "Δ joint"),
                             ([{"kind": "table", "baseline": "missing"}], "Δ uniform")):  # fmt: skip
        results = read_runs(*runs, spec={"reports": reports})
        assert heading in shown(summary(results))["uniform"]
        assert f"Dotted: final value of {heading[2:]}." in figures.learning_curves(results).texts.caption


@pytest.mark.parametrize(
    ("mean", "half", "metric", "text"),
    [
        (0.56, 0.0707107, Metric(), "0.5600 [0.4893, 0.6307]"),
        (1.5, 0.707107, Metric(), "1.500 [0.793, 2.207]"),
        (0.5, 0.0001, Metric(), "0.5000 [0.4999, 0.5001]"),
        (1e-9, 12.3456, Metric(), "0.00 [−12.35, 12.35]"),
        (1234567.0, 2.5, Metric(), "1.235e+06 [1.235e+06, 1.235e+06]"),
        (0.0, 0.0, Metric(), "0 [0, 0]"),
        (0.56, 0.07, Metric(digits=1), "0.6 [0.5, 0.6]"),
        (0.56, 0.07, Metric(unit="percent"), "56.0 [49.0, 63.0]"),
        (0.56, math.nan, Metric(), "0.56"),
    ],
)
def test_a_mean_and_its_interval_have_the_same_decimals(mean, half, metric, text):
    assert interval(mean, mean - half, mean + half, metric) == text


def test_cells_by_name(results):
    table = summary(results, "uniform")
    assert table.row_named("JOINT") == table.row_named("jo") == "joint"
    assert table.column_named("Δ uniform").key == table.column_named("delta").key == "delta"
    with pytest.raises(ValueError, match="several columns named 'fewer': choose one of"):
        table.column_named("fewer")


def test_speedups(results):
    rows = speedups(results, "uniform")
    assert list(rows) == ["uniform", "independent", "joint"]
    assert rows["joint"] == {
        "run": "joint",
        "reached": "2 of 2",
        "examples to match": "112",  # the median of 64 · 1.5 and 64 · 2
        "fewer examples": "2.3×",
        "GFLOP to match": "14.0",
        "fewer FLOPs without reference": "0.9×",
        "break-even": "∞",  # it saves nothing
    }
    # Seed 1 never gets there: (128 + more than 256) / 2.
    assert rows["independent"]["examples to match"] == "> 192"
    assert rows["uniform"]["examples to match"] == "256"


def test_a_score_never_reached_is_censored_and_one_at_the_first_evaluation_a_bound(read_runs, stored_run):
    row = speedups(read_runs(stored_run("uniform", [0.1, 0.5]), stored_run("hard", [0.1, 0.4])))["hard"]
    assert row["examples to match"] == "> 128, not reached†"
    assert row["GFLOP to match"] == "> 6.00, not reached†"
    assert row["fewer examples"] == "not reached†"
    results = read_runs(
        stored_run("uniform", [0.1, 0.2, 0.3, 0.4]), stored_run("joint", [0.5, 0.3, 0.5, 0.5])
    )
    row = speedups(results)["joint"]
    assert (row["examples to match"], row["fewer examples"]) == ("≤ 64†", "≥ 4.0×†")


def test_a_copy_of_the_baseline_has_no_speedup(read_runs, stored_runs):
    scores = [[0.1, 0.5, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]]
    rows = speedups(read_runs(*stored_runs("uniform", *scores), *stored_runs("copy", *scores)))
    assert rows["copy"]["fewer examples"] == rows["uniform"]["fewer examples"] == "1.0×"
    assert rows["copy"]["examples to match"] == rows["uniform"]["examples to match"] == "184"


def test_marks_and_fewer_seeds_are_explained(read_runs, stored_run, stored_runs):
    results = read_runs(
        stored_run("uniform", [0.1, 0.4]),
        *stored_runs("joint", [0.3, 0.5], [0.3, 0.5]),
        stored_run("joint", [0.3, 0.5], seed=2, metrics=["shapes/zero_shot"]),
        stored_run("partly", [0.3], metrics=["shapes/zero_shot"]),
    )
    table = summary(results)
    row = shown(table)["joint"]
    assert shown(table)["partly"]["score"] == "—"
    assert "partly: no score where shapes_retrieval/i2t_r1 is missing" in table.notes
    assert row["Δ uniform"] == "+10.0†"  # two seeds have nothing to be compared with
    assert row["I2T R@1"] == "50.0 [50.0, 50.0] (n = 2)"
    assert row["zero-shot"] == "50.0 [50.0, 50.0]"
    assert "† one seed only: its spread is unknown" in table.marked(Origins()).notes
