"""Runs under the names that a spec gives them: in tables, figures, claims, explanations and the answer."""

from __future__ import annotations

import csv
import io
import json
import sqlite3

import pytest

from jestlab.analysis import figures, frames, tables
from jestlab.analysis.claims import verdicts
from jestlab.analysis.names import Names
from jestlab.analysis.provenance import Origins, of_table
from jestlab.analysis.report.contents import gather

F = "selection.filtering_ratio"
SPEC = {
    "runs": {
        "reference": {"label": "Teacher"},
        "uniform": {"label": "IID"},
        "joint": {"label": "JEST (ours)", "selection": {"rule": "joint"}},
        "independent": {},
    },
    "axes": [
        {
            "runs": ["joint", "independent"],
            "grid": {F: [0.5, 0.9]},
            "labels": {F: {"name": "f", "0.5": "50%"}},
        }
    ],
    "claims": [{"statement": "More.", "of": "JEST (ours) f=50%", "above": "uniform"}],
    "metrics": {"shapes/zero_shot": {"goal": "max", "unit": "percent", "name": "ZS"}},
    "score": ["shapes/zero_shot"],
}
NAMES = ["Teacher", "IID", "JEST (ours) f=50%", "JEST (ours) f=0.9", "independent f=50%", "independent f=0.9"]


@pytest.fixture
def renamed(new_store, stored_run):
    def point(run, value, *scores):
        rule = {"selection.rule": run, F: value, "selection.reference": "reference"}
        return [
            stored_run(
                run, [score - 0.2, score], f"{run} filtering_ratio={value}", seed, config=rule,
                point={F: value}, flops_per_step=(3e9, 5e9, 5e9), reference_training_share=8e9,
            )
            for seed, score in enumerate(scores)
        ]  # fmt: skip

    uniform = {"selection.rule": "uniform"}
    return new_store().add(
        *(
            stored_run("reference", [0.5, s], seed=i, needed=1, config=uniform)
            for i, s in enumerate((0.8, 0.9))
        ),
        *(stored_run("uniform", [0.2, s], seed=i, config=uniform) for i, s in enumerate((0.40, 0.42))),
        *point("joint", 0.5, 0.6, 0.65),
        *point("joint", 0.9, 0.7, 0.72),
        *point("independent", 0.5, 0.5, 0.55),
        *point("independent", 0.9, 0.52, 0.51),
        spec=SPEC,
    )


def plain_labels(text):
    """What would be shown without names."""
    return [word for word in ("filtering_ratio=", "uniform", "joint ") if word in text]


def test_tables_show_the_names(renamed):
    read = frames.read(renamed.url, "study")
    for name in ("summary", "speedups"):
        table = tables.table(renamed.url, name, ["study"], baseline="IID")
        text = table.markdown()
        assert plain_labels(text) == []
        assert [line.cells[0].text for line in table.lines if line.key in read.competitors] == NAMES[1:]
        assert "IID" in (table.columns[4].header if name == "summary" else table.caption)
    paper = tables.table(renamed.url, "comparison", ["study"], baseline="IID", with_published=False)
    assert [line.cells[0].text for line in paper.lines] == NAMES
    assert "against IID in study" in paper.markdown()


def test_data_keeps_the_labels_beside_the_names(renamed):
    table = tables.table(renamed.url, "summary", ["study"])
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert [row["shown"] for row in rows] == NAMES
    assert rows[2]["label"] == "joint filtering_ratio=0.5"
    assert [row["shown"] for row in json.loads(table.json())["rows"]] == NAMES


def test_data_is_as_ever_without_names(study):
    assert "shown" not in tables.table(study.url, "summary", ["study"]).csv()


@pytest.mark.parametrize("row", ["joint filtering_ratio=0.5", "JEST (ours) f=50%", "jest (ours) f=5"])
def test_a_row_is_explained_by_either_name(renamed, row):
    table = tables.table(renamed.url, "summary", ["study"])
    told = Origins.read(renamed.url, ["study"]).explain(table, row, "delta")
    assert str(told).startswith("JEST (ours) f=50% · Δ IID: ")
    assert told.baseline == "IID"
    assert {run.label for run in told.runs} == {"joint filtering_ratio=0.5"}  # by which the store knows it
    assert "config differences from IID" in str(told)


def test_a_page_knows_what_the_baseline_is_called(renamed):
    table = tables.table(renamed.url, "summary", ["study"])
    row = of_table(table, Origins.read(renamed.url, ["study"]))["rows"]["joint filtering_ratio=0.5"]
    assert (row["baseline"], row["against"]) == ("uniform", "IID")


def test_runs_are_named_by_either_name(renamed):
    read = frames.read(renamed.url, "study")
    assert read.label_of("IID") == read.label_of("uniform") == "uniform"
    assert read.label_of("JEST (ours) f=0.9") == "joint filtering_ratio=0.9"
    assert read.only(["JEST (ours)"]).labels == read.only(["joint"]).labels
    assert len(read.only(["JEST (ours)"]).labels) == 2
    with pytest.raises(ValueError, match=r"run 'JEST \(ours\)' of 'study' has several points: name one of"):
        read.label_of("JEST (ours)")
    with pytest.raises(ValueError, match=r"has no run 'JEST': did you mean 'JEST \(ours\)'"):
        read.label_of("JEST")


@pytest.mark.parametrize("kind", ["curves", "pareto", "speedup", "step_costs", "filtering_ratio"])
def test_figures_show_the_names(renamed, kind):
    plot = figures.draw(kind, figures.Request(renamed.url, "study", baseline="IID"))
    texts = list(plot.data["text"].dropna().unique())
    if kind == "filtering_ratio":  # its lines are by rule, of which only joint's run has a name
        assert texts == ["JEST (ours)", "independent", "IID"]
    else:
        assert set(NAMES[1:]) <= set(texts)
    words = " ".join([plot.texts.caption, plot.texts.x, plot.texts.y])
    assert plain_labels(words) == []
    plot.figure()


def test_against_a_key_that_has_a_name(renamed):
    plot = figures.draw("against", figures.Request(renamed.url, "study", x=F))
    assert plot.texts.x == "f"
    lines = figures.draw("against", figures.Request(renamed.url, "study", x="selection.rule", by=(F,)))
    assert set(lines.data["text"]) == {"IID", "f = 50%", "f = 0.9"}


def test_claims_show_and_take_the_names(renamed):
    judged = verdicts.read(renamed.url, ["study"])[0]
    assert judged.seeds == 2
    assert judged.claim.told(judged.shown) == "JEST (ours) f=50% above IID, by score"
    with sqlite3.connect(renamed.path) as connection:
        connection.execute("UPDATE v_runs SET state = 'RUNNING' WHERE label = 'uniform' AND seed = 1")
    connection.close()
    assert verdicts.read(renamed.url, ["study"])[0].gap == "not completed: IID (seed 1)"


def test_the_page_speaks_of_the_names(renamed):
    found = gather(renamed.url, "study")
    assert "JEST (ours) f=0.9, the best of 4, scores" in found.answer.sentence
    assert plain_labels(found.answer.sentence + found.answer.caveat) == []
    assert found.costs is not None
    assert [line.cells[0].text for line in found.costs.table.lines] == [*NAMES, "all runs"]
    assert found.claims is not None
    assert found.claims.claims[0]["claim"] == "JEST (ours) f=50% above IID, by score"


def test_a_retracted_run_is_told_by_its_name(renamed):
    with sqlite3.connect(renamed.path) as connection:
        connection.execute(
            "INSERT INTO v_retractions VALUES ('study', 'joint', 'joint filtering_ratio=0.9', 0, "
            "'joint filtering_ratio=0.9-0', 'wrong data', 'me', '2026-11-24', NULL)"
        )
    connection.close()
    assert "Some results are retracted: JEST (ours) f=0.9 (" in gather(renamed.url, "study").answer.sentence


def test_metrics_have_their_names_everywhere(renamed):
    declared = {"goal": "max", "unit": "percent"}
    spec = SPEC | {
        "metrics": {
            "shapes/zero_shot": declared | {"name": "ZS"},
            "shapes_retrieval/i2t_r1": declared | {"name": "I→T R@1"},
        },
        "score": [],
        "claims": [{"statement": "More.", "of": "joint", "above": "uniform", "measure": "shapes/zero_shot"}],
    }
    with sqlite3.connect(renamed.path) as connection:
        connection.execute("UPDATE v_experiments SET spec = ?", [json.dumps(spec)])
    connection.close()
    summary = tables.table(renamed.url, "summary", ["study"])
    assert [column.header for column in summary.columns[2:4]] == ["ZS", "I→T R@1"]
    paper = tables.table(renamed.url, "comparison", ["study"], with_published=False)
    assert {"ZS", "I→T R@1"} <= {column.header for column in paper.columns}
    claims = tables.table(renamed.url, "claims", ["study"])
    assert claims.lines[0].cells[3].text.endswith(" ZS")
    curves = figures.draw("curves", figures.Request(renamed.url, "study"))
    assert "Score: mean of ZS, I→T R@1." in curves.texts.caption
    one = figures.draw("curves", figures.Request(renamed.url, "study", score=("shapes_retrieval/i2t_r1",)))
    assert one.texts.y == "I→T R@1 (%)"


def test_what_is_shown_never_hides_an_identity():
    names = Names({"runs": {"a": {"label": "b"}, "b": {"label": "a"}}}, [("a", "a", {}), ("b", "b", {})])
    assert (names.meant("a"), names.meant("b")) == (["a"], ["b"])
