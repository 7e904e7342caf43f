"""Names that a spec gives to runs: in tables, figures, claims, explanations, and the answer."""

import csv
import io
import json
from functools import partial

import pytest

from jestlab.analysis import figures, tables
from jestlab.analysis.names import Names
from jestlab.analysis.provenance.history import load
from jestlab.analysis.report import gather
from jestlab.analysis.tables.explain import explain, page_data

F = "selection.filtering_ratio"
LABELS = {"name": "f", "0.5": "50%"}
SPEC = {
    "runs": {
        "reference": {"label": "Teacher"},
        "uniform": {"label": "IID"},
        "joint": {"label": "JEST (ours)", "selection": {"rule": "joint"}},
        "independent": {},
    },
    "axes": [{"runs": ["joint", "independent"], "grid": {F: [0.5, 0.9]}, "labels": {F: LABELS}}],
    "claims": [
        {"statement": "More.", "of": "JEST (ours) f=50%", "above": "uniform"},
        {"statement": "Also.", "of": "joint", "above": "uniform", "measure": "shapes/zero_shot"},
    ],
    "metrics": {
        "shapes/zero_shot": {"goal": "max", "unit": "percent", "name": "ZS"},
        "shapes_retrieval/i2t_r1": {"goal": "max", "unit": "percent", "name": "I→T R@1"},
    },
}
NAMES = ["Teacher", "IID", "JEST (ours) f=50%", "JEST (ours) f=0.9", "independent f=50%", "independent f=0.9"]


@pytest.fixture(scope="module")
def renamed(module_store, stored_runs):
    """Runs with names; tests copy the store before they change it."""

    def runs(run, scores, label="", config=None, **more):
        config = {"selection.rule": run if config else "uniform"} | (config or {})
        curves = [[score - 0.2, score] for score in scores]
        return stored_runs(run, *curves, label=label, config=config, **more)

    def point(run, value, *scores):
        return runs(
            run, scores, f"{run} filtering_ratio={value}", {F: value, "selection.reference": "reference"},
            point={F: value}, flops_per_step=(3e9, 5e9, 5e9), reference_training_share=8e9,
        )  # fmt: skip

    return module_store.add(
        *runs("reference", (0.8, 0.9), needed=1),
        *runs("uniform", (0.40, 0.42)),
        *point("joint", 0.5, 0.6, 0.65),
        *point("joint", 0.9, 0.7, 0.72),
        *point("independent", 0.5, 0.5, 0.55),
        *point("independent", 0.9, 0.52, 0.51),
        spec=SPEC,
    )


def plain_labels(text):
    """Find names that would be shown without labels."""
    return [word for word in ("filtering_ratio=", "uniform", "joint ") if word in text]


def shows_metrics(table):
    return {"ZS", "I→T R@1"} <= {column.header for column in table.columns}


def test_tables_show_the_names(renamed):
    read = renamed.read()
    for name in ("summary", "speedups"):
        table = tables.table(renamed.url, name, ["study"], baseline="IID")
        text = table.markdown()
        assert plain_labels(text) == []
        assert name == "speedups" or shows_metrics(table)
        assert [line.cells[0].text for line in table.lines if line.key in read.competitors] == NAMES[1:]
        assert "IID" in (table.columns[5].header if name == "summary" else table.caption)
    paper = tables.table(renamed.url, "comparison", ["study"], baseline="IID", with_published=False)
    assert [line.cells[0].text for line in paper.lines] == NAMES
    assert "against IID in study" in paper.markdown() and shows_metrics(paper)
    claims = tables.table(renamed.url, "claims", ["study"])
    assert [line.cells[3].text.endswith(" ZS") for line in claims.lines] == [False, True]


def test_data_has_labels_and_names(renamed, study):
    table = tables.table(renamed.url, "summary", ["study"])
    for rows in (list(csv.DictReader(io.StringIO(table.csv()))), json.loads(table.json())["rows"]):
        assert [row["shown"] for row in rows] == NAMES
        assert rows[2]["label"] == "joint filtering_ratio=0.5"
    assert "shown" not in tables.table(study.url, "summary", ["study"]).csv()  # without names


def test_a_row_is_explained_by_either_name(renamed):
    table = tables.table(renamed.url, "summary", ["study"])
    for row in ("joint filtering_ratio=0.5", "JEST (ours) f=50%", "jest (ours) f=5"):
        told = explain(renamed.url, table, row, "delta")
        assert str(told).startswith("JEST (ours) f=50% · Δ IID: ")
        assert told.baseline == "IID"
        assert {run["label"] for run in told.runs} == {"joint filtering_ratio=0.5"}
    history = load(renamed.url, "study")
    assert history is not None
    linked = page_data([history], {"x": table})["tables"]["x"]["rows"]["joint filtering_ratio=0.5"]
    assert (linked["baseline"], linked["against"]) == ("uniform", "IID")


def test_resolves_either_name_of_a_run(renamed):
    read = renamed.read()
    assert read.label_of("IID") == read.label_of("uniform") == "uniform"
    assert read.label_of("JEST (ours) f=0.9") == "joint filtering_ratio=0.9"
    assert read.only(["JEST (ours)"]).labels == read.only(["joint"]).labels
    assert len(read.only(["JEST (ours)"]).labels) == 2
    with pytest.raises(ValueError, match=r"has no run 'JEST': did you mean 'JEST \(ours\)'"):
        read.label_of("JEST")


def test_figures_show_the_names(renamed):
    draw = partial(figures.draw, store=renamed.url, experiment="study")
    for kind in ("curves", "pareto", "speedup", "step_costs", "filtering_ratio"):
        plot = draw(kind, baseline="IID")
        texts = list(plot.data["text"].dropna().unique())
        if kind == "filtering_ratio":  # its lines are by rule, of which only joint's run has a name
            assert texts == ["JEST (ours)", "independent", "IID"]
        else:
            assert set(NAMES[1:]) <= set(texts)
        assert plain_labels(" ".join([plot.texts.caption, plot.texts.x, plot.texts.y])) == []
        assert kind != "curves" or "Score: mean of ZS, I→T R@1." in plot.texts.caption
    plot = draw("against", x=F)
    assert plot.texts.x == "f"
    lines = draw("against", x="selection.rule", by=(F,))
    assert set(lines.data["text"]) == {"IID", "f=50%", "f=0.9"}


def test_the_page_uses_the_names(renamed, tmp_path):
    store = renamed.copy(tmp_path / "retracted.db")
    store.retract("joint filtering_ratio=0.9", "wrong data", "joint")
    found = gather(store.url, "study")
    assert "Some results are retracted: JEST (ours) f=0.9 (" in found.answer.caveat
    assert plain_labels(found.answer.sentence + found.answer.caveat) == []
    parts = {part.name: part for part in found.tables}
    assert [line.cells[0].text for line in parts["costs"].table.lines] == [*NAMES, "all runs"]
    judged = parts["claims"].judged[0]
    assert judged.claim.text(judged.contrast.names.shown) == "JEST (ours) f=50% above IID, by score"


def test_a_name_never_hides_a_run():
    names = Names({"runs": {"a": {"label": "b"}, "b": {"label": "a"}}}, [("a", "a", {}), ("b", "b", {})])
    assert (names.meant("a"), names.meant("b")) == (["a"], ["b"])
