"""Explanations of cells: every number against the rows of the store."""

import json

import pytest

from jestlab.analysis import frames, published, tables
from jestlab.analysis.provenance.explain import Origins


@pytest.fixture
def traced(study):
    """The study with configs and attempts: joint's seed 0 was preempted once, with changed code."""
    config = {"selection": {"rule": "uniform"}, "schedule": {"steps": 4}}
    study.execute("UPDATE v_runs SET config = ?", [json.dumps(config)])
    config["selection"] = {"rule": "joint", "reference": "reference"}
    study.execute("UPDATE v_runs SET config = ? WHERE run = 'joint'", [json.dumps(config)])
    for number, state, patch, host in ((1, "PREEMPTED", "diff", "pod-a"), (2, "COMPLETED", "", "pod-b")):
        study.execute(
            "INSERT INTO v_attempts (experiment, label, seed, fingerprint, number, state, reason, "
            "executor, host, device, started_at, ended_at, git_commit, git_patch, log) "
            "VALUES ('study', 'joint', 0, 'joint-0', ?, ?, 'lost its node', 'kubernetes', ?, "
            "'TPU v5e', '2026-11-22 10:00:00.5', '2026-11-22 10:05:00', 'abcdef0123456789', ?, 'log')",
            [number, state, host, patch],
        )
    return study


def origins(store):
    return Origins.read(store.url, ["study"])


def summary(store):
    return tables.summary(tables.finals(frames.read(store.url, "study"), "uniform"))


def test_a_mean_its_runs_attempts_and_config_difference_to_the_baseline(traced):
    table = summary(traced)
    told = origins(traced).explain(table, "joint", "score")
    assert told.text == "65.0 ± 7.1"
    assert [(run.seed, run.value) for run in told.runs] == [(0, pytest.approx(0.6)), (1, pytest.approx(0.7))]
    assert told.runs[0].inputs == pytest.approx({"shapes/zero_shot": 0.6, "shapes_retrieval/i2t_r1": 0.6})
    mean = sum(run.value or 0 for run in told.runs) / len(told.runs)
    assert mean == pytest.approx(table.frame.set_index("row").loc["joint", "score_mean"])
    assert told.formula == "mean over seeds of the mean of shapes/zero_shot, shapes_retrieval/i2t_r1"
    assert [(a.number, a.state, a.host, a.patched) for a in told.runs[0].attempts] == [
        (1, "PREEMPTED", "pod-a", True), (2, "COMPLETED", "pod-b", False)
    ]  # fmt: skip
    attempt = "attempt 1 PREEMPTED (lost its node); pod-a, TPU v5e; jestlab abcdef0123456789 with uncommitted"
    assert attempt in str(told)
    assert "run study/joint/0, joint-0, COMPLETED at step 4, in runs/joint" in str(told)
    assert told.differences["selection.reference"] == (None, '"reference"')
    assert told.differences["selection.rule"] == ('"uniform"', '"joint"')
    assert '  selection.rule: "uniform" → "joint"' in str(told)
    assert origins(traced).explain(summary(traced), "uniform", "score").differences is None


@pytest.mark.parametrize("name", ["summary", "speedups", "specialists"])
def test_explains_every_cell(traced, name):
    if name == "specialists":
        own = tables.finals(frames.read(traced.url, "study"))
        table = tables.paper_table(name, published.frame(published.paper()), [own])
    else:
        table = tables.table(traced.url, name, ["study"], baseline="uniform")
    found = origins(traced)
    for line in table.lines:
        for column, cell in zip(table.columns, line.cells, strict=True):
            told = found.explain(table, line.key, column.key)
            assert told.text == cell.text + cell.mark
            assert told.runs or told.published or cell.text in ("—", "") or not column.formula
            json.dumps(told.to_dict(), allow_nan=False)
            assert str(told)


def test_a_published_cell_and_its_source():
    table = tables.paper_table("comparison", published.frame(published.paper()))
    found = Origins.read("sqlite:///nowhere.db", [])
    told = found.explain(table, "JEST++ L", "Mean Δ")
    assert told.published is not None
    assert told.published["printed"] == "+1.8"
    assert told.published["source"] == "Evans et al. 2024"
    assert "cannot be right" in told.published["check"]
    text = str(found.explain(table, "CLIP B", "Total"))
    assert "printed '32' in Evans et al. 2024, table comparison, row 1" in text
    assert "citation: Radford et al. 2021" in text
    assert "32 is confirmed" in text


def test_a_crossing_is_explained_by_the_points_around_it(traced):
    table = tables.speedup_table(tables.finals(frames.read(traced.url, "study"), "uniform"))
    run = origins(traced).explain(table, "joint", "examples_to_match").runs[0]
    at = run.inputs
    assert at == pytest.approx(
        {"target": 0.4, "score_before": 0.3, "score_after": 0.5, "examples_before": 64, "examples_after": 128}
    )
    assert None not in at.values()
    way = (at["target"] - at["score_before"]) / (at["score_after"] - at["score_before"])
    assert run.value == at["examples_before"] + way * (at["examples_after"] - at["examples_before"])
    factor = origins(traced).explain(table, "joint", "fewer_examples").runs[0]
    assert factor.value == pytest.approx(
        factor.against["examples_to_match"] / factor.inputs["examples_to_match"]
    )
