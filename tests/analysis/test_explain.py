"""Explanations of cells: every number against the rows of the store."""

import json
from dataclasses import asdict

import pytest

from jestlab.analysis import published, tables
from jestlab.analysis.tables.explain import explain


@pytest.fixture
def traced(study):
    """The study with configs and attempts: joint's seed 0 was preempted once, with changed code."""
    config = {"selection": {"rule": "uniform"}, "schedule": {"steps": 4}}
    study.execute("UPDATE v_runs SET config = ?", [json.dumps(config)])
    config["selection"] = {"rule": "joint", "reference": "reference"}
    study.execute("UPDATE v_runs SET config = ? WHERE run = 'joint'", [json.dumps(config)])
    for number, state, patch, host in ((1, "PREEMPTED", "diff", "pod-a"), (2, "COMPLETED", "", "pod-b")):
        study.attempt(
            "joint", 0, number, state=state, reason="lost its node", host=host, device="TPU v5e",
            started_at="2026-11-22 10:00:00.5", git_patch=patch, git_commit="abcdef0123456789",
        )  # fmt: skip
    return study


def summary(store):
    return tables.summary(tables.finals(store.read(), "uniform"))


def test_a_mean_its_runs_attempts_and_config_difference_to_the_baseline(traced):
    table = summary(traced)
    explained = explain(traced.url, table, "joint", "score")
    assert (explained.text, explained.baseline) == ("65.0 [1.5, 128.5]", "uniform")
    formula = "mean over seeds of the mean of shapes/zero_shot, shapes_retrieval/i2t_r1 [95% confidence"
    assert explained.formula.startswith(formula)
    assert [run["value"] for run in explained.runs] == pytest.approx([0.6, 0.7])
    first = explained.runs[0]
    assert first["inputs"] == pytest.approx({"shapes/zero_shot": 0.6, "shapes_retrieval/i2t_r1": 0.6})
    assert [(a["number"], a["state"], a["host"], a["changes"] > 0) for a in first["attempts"]] == [
        (1, "PREEMPTED", "pod-a", True), (2, "COMPLETED", "pod-b", False)
    ]  # fmt: skip
    assert explained.differences is not None
    assert explained.differences["selection.reference"] == (None, '"reference"')
    text = str(explained)
    for part in (
        "attempt 1 PREEMPTED: lost its node; pod-a, TPU v5e; jestlab commit abcdef012345 with uncommitted",
        "run study/joint/0, joint-0, COMPLETED at step 4, in runs/joint",
        '  selection.rule: "uniform" → "joint"',
    ):
        assert part in text
    assert explain(traced.url, table, "uniform", "score").differences is None


@pytest.mark.parametrize("name", ["summary", "speedups", "specialists"])
def test_explains_every_cell(traced, name):
    if name == "specialists":
        own = tables.finals(traced.read())
        table = tables.paper_table(name, published.frame(published.paper()), [own])
    else:
        table = tables.table(traced.url, name, ["study"], baseline="uniform")
    for line in table.lines:
        for column, cell in zip(table.columns, line.cells, strict=True):
            told = explain(traced.url, table, line.key, column.key)
            assert told.text == cell.text + cell.mark
            assert told.runs or told.published or cell.text in ("—", "") or not column.formula
            json.dumps(asdict(told), allow_nan=False)
            assert str(told)


def test_a_published_cell_and_its_source():
    table = tables.paper_table("comparison", published.frame(published.paper()))
    cell = explain("", table, "JEST++ L", "Mean Δ").published
    assert cell is not None
    assert (cell["printed"], cell["source"]) == ("+1.8", "Evans et al. 2024")
    assert cell["note"] == "‡ +0.9 by the scores of this table"
    lines = str(explain("", table, "CLIP B", "Total"))
    assert (
        "printed '32' in Evans et al. 2024, table comparison, row 1\ncitation: Radford et al. 2021" in lines
    )


def test_a_crossing_is_explained_by_the_points_around_it(traced):
    table = tables.speedup_table(tables.finals(traced.read(), "uniform"))
    run = explain(traced.url, table, "joint", "examples_to_match").runs[0]
    at = run["inputs"]
    assert at == pytest.approx(
        {"target": 0.4, "score_before": 0.3, "score_after": 0.5, "examples_before": 64, "examples_after": 128}
    )
    way = (at["target"] - at["score_before"]) / (at["score_after"] - at["score_before"])
    assert run["value"] == at["examples_before"] + way * (at["examples_after"] - at["examples_before"])
    run = explain(traced.url, table, "joint", "fewer_examples").runs[0]
    ratio = run["against"]["examples_to_match"] / run["inputs"]["examples_to_match"]
    assert run["value"] == pytest.approx(ratio)
