"""The paper's tables: their exact text from published rows, and own runs beside them."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from jestlab.analysis import frames, published, tables

SNAPSHOTS = Path(__file__).parent / "snapshots"
"""What the tables look like, character by character. To change one on purpose: write its new text there."""

PAPER = published.frame(published.paper())
NOTHING = PAPER[:0]


def rows_of(table):
    """Row name → heading → text."""
    found: dict[str, Any] = {}
    for section in table.sections:
        for line in section.lines:
            texts = [cell.text + cell.mark for cell in line.cells]
            found[line.key] = dict(zip([column.key for column in table.columns], texts, strict=True))
    return found


@pytest.fixture
def paper_like(new_store, stored_run):
    """An experiment on the paper's own benchmarks: CLIP_benchmark's names for them, two seeds."""
    metrics = ["imagenet1k/zero_shot", "mscoco_captions/i2t_r1", "mscoco_captions/t2i_r1"]
    scoring = (3e9, 4e9, 0.0)
    filtering = {"selection.rule": "joint", "selection.filtering_ratio": 1 - 1 / 3.6}
    return new_store().add(
        stored_run("reference", [0.2, 0.3], needed=1, metrics=metrics),
        stored_run("uniform", [0.2, 0.5], seed=0, metrics=metrics),
        stored_run("uniform", [0.2, 0.6], seed=1, metrics=metrics),
        stored_run("joint", [0.4, 0.6], seed=0, metrics=metrics, flops_per_step=scoring, config=filtering),
        stored_run("joint", [0.4, 0.7], seed=1, metrics=metrics, flops_per_step=scoring, config=filtering),
    )


@pytest.mark.parametrize("name", tables.LAYOUTS)
@pytest.mark.parametrize(("form", "suffix"), [("md", ".md"), ("latex", ".tex"), ("html", ".html")])
def test_exact_text(name, form, suffix):
    assert tables.paper_table(name, PAPER).render(form) == (SNAPSHOTS / f"{name}{suffix}").read_text()


@pytest.mark.parametrize("name", tables.LAYOUTS)
def test_every_published_cell_is_shown_as_it_was_printed(name):
    table = tables.paper_table(name, PAPER)
    assert table.published is not None
    shown = rows_of(table)
    cells = PAPER[PAPER["table"] == name]
    assert len(table.published) == len(cells) > 0
    columns = {column.key for column in table.columns}
    cells = cells[cells["quantity"].isin(columns)]  # others stand in the paper's caption
    for _, cell in table.published[table.published["column"].isin(columns)].iterrows():
        assert shown[cell["row"]][cell["column"]].rstrip("‡") == cell["printed"]
    printed = sum(text not in ("—", "") for row in shown.values() for text in list(row.values()))
    named = len(columns & {"method", "variant"})  # they are the row's, and no cells
    assert printed == len(cells) + named * len(shown)


def test_what_cannot_be_right_is_marked_and_said_and_left_as_it_was():
    table = tables.paper_table("comparison", PAPER)
    rows = rows_of(table)
    assert rows["JEST++ L"]["mean_delta"] == "+1.8‡"
    assert [row for row, cells in rows.items() if any("‡" in text for text in cells.values())] == ["JEST++ L"]
    notes = [note for note in table.notes if note.startswith("‡")]
    assert len(notes) == 2
    assert "+1.8 cannot be right" in notes[0]
    assert "+0.9" in notes[0]
    assert not any("‡" in note for note in tables.paper_table("laion", PAPER).notes)


def test_rows_of_equal_names_are_told_apart():
    assert list(rows_of(tables.paper_table("longer_training", PAPER)))[3:7] == [
        "JEST++ B 4B", "Flexi-JEST++ B 4B", "JEST++ B 10B", "Flexi-JEST++ B 10B",
    ]  # fmt: skip
    assert list(rows_of(tables.paper_table("raw_vs_filtered", PAPER))) == [
        "IID B filtered", "IID B raw", "JEST++ B filtered", "JEST++ B raw",
    ]  # fmt: skip
    assert {"DBP B/32 5.3B", "DBP B/32 3.6B"} <= set(rows_of(tables.paper_table("laion", PAPER)))


def test_the_best_of_each_section_is_bold():
    table = tables.paper_table("comparison", PAPER)
    bold = {
        line.key: [c.key for c, cell in zip(table.columns, line.cells, strict=True) if cell.bold]
        for section in table.sections
        for line in section.lines
    }
    assert bold["JEST++ B"] == [
        "mean_delta", "imagenet/10_shot", "imagenet/zero_shot", "coco/i2t_r1", "coco/t2i_r1"
    ]  # fmt: skip
    assert bold["SigLIP B"] == ["imagenet/10_shot"]  # a tie
    assert bold["Flexi-JEST++ B"] == ["flops_total"]  # the least, among B
    assert bold["EVA-CLIP L"] == ["flops_total"]


def test_colours_are_the_papers():
    """Its macro: .8 · ((x − min) / (max − min) · 2 − 1), clipped; min and max five points about SigLIP's."""
    table = tables.paper_table("specialists", PAPER)
    shades = {
        line.key: {c.key: cell.shade for c, cell in zip(table.columns, line.cells, strict=True)}
        for section in table.sections
        for line in section.lines
    }
    assert set(shades["SigLIP B"].values()) == {0.0}
    jest = next(row for name, row in shades.items() if name.startswith("JEST++"))
    assert jest["coco/i2t_r1"] == pytest.approx(0.8 * ((70.3 - 60.2) / 10 * 2 - 1))
    assert jest["caltech/10_shot"] == pytest.approx(0.8 * ((91.6 - 87.8) / 10 * 2 - 1))
    reference = next(row for name, row in shades.items() if name.startswith("WebLI"))
    assert (reference["cars/10_shot"], reference["coco/t2i_r1"]) == (-1.0, 1.0)
    raw = tables.paper_table("raw_vs_filtered", PAPER).sections[0].lines[1]
    assert raw.cells[2].shade == pytest.approx(0.8 * ((69.4 - 63.6) / 20 * 2 - 1))


def test_own_runs_stand_beside_published_ones_in_the_same_columns(paper_like):
    own = tables.finals(frames.read(paper_like.url, "study"), "uniform")
    table = tables.paper_table("comparison", PAPER, [own])
    assert [section.title for section in table.sections] == [
        "Evans et al. 2024: B", "Evans et al. 2024: L", "study"
    ]  # fmt: skip
    rows = rows_of(table)
    assert rows["joint"] == {
        "method": "joint",
        "variant": "—",
        "examples_seen": "128",
        "flops_per_iteration": "187",  # 3F + 3.6F − F, by the paper's formula
        "flops_total": "187",
        "flops_per_iteration_counted": "233",  # 3F + 3.6F + .4F for choosing
        "flops_total_counted": "233",
        "mean_delta": "+10.0 [+10.0, +10.0]",
        "imagenet/10_shot": "—",
        "imagenet/zero_shot": "65.0 ± 7.1",
        "coco/i2t_r1": "65.0 ± 7.1",
        "coco/t2i_r1": "65.0 ± 7.1",
    }
    assert rows["uniform"]["flops_total"] == rows["uniform"]["flops_total_counted"] == "100"
    assert rows["JEST++ L"]["flops_per_iteration"] == "233"
    assert rows["JEST++ L"]["flops_per_iteration_counted"] == "—"
    assert any("A = 0.28" in note for note in table.notes)
    assert rows["uniform"]["mean_delta"] == "—"
    assert rows["reference"]["imagenet/zero_shot"] == "30.0†"
    assert rows["SigLIP B"]["coco/i2t_r1"] == "65.2"
    assert table.baselines["joint"] == "uniform"
    assert table.baselines["JEST++ L"] == "SigLIP L"


@pytest.mark.parametrize("name", tables.LAYOUTS)
def test_own_runs_alone(paper_like, name):
    own = tables.finals(frames.read(paper_like.url, "study"), "uniform")
    table = tables.paper_table(name, NOTHING, [own])
    rows = rows_of(table)
    assert list(rows) == ["reference", "uniform", "joint"]
    assert [section.title for section in table.sections] == [""]
    assert rows["joint"]["imagenet/zero_shot"] == "65.0 ± 7.1"
    if name in ("laion", "raw_vs_filtered"):
        assert rows["joint"]["coco/mean_r1"] == "65.0 ± 7.1"
        assert "coco/i2t_r1" not in rows["joint"]
    for form in ("md", "latex", "html", "csv", "json"):
        assert table.render(form)


def test_filtered_data_are_told_from_the_config(paper_like):
    with sqlite3.connect(paper_like.path) as connection:
        connection.execute(
            "UPDATE v_runs SET config = ? WHERE run = 'joint'", [json.dumps({"data": {"filter": "x > 1"}})]
        )
    connection.close()
    own = tables.finals(frames.read(paper_like.url, "study"), "uniform")
    rows = rows_of(tables.paper_table("raw_vs_filtered", NOTHING, [own]))
    assert (rows["uniform"]["filtered"], rows["joint"]["filtered"]) == ("✗", "✓")


def test_variants_are_told_from_the_config(paper_like):
    with sqlite3.connect(paper_like.path) as connection:
        connection.execute("UPDATE v_runs SET config = ?", [json.dumps({"model": {"variant": "L/16"}})])
    connection.close()
    own = tables.finals(frames.read(paper_like.url, "study"), "uniform")
    assert rows_of(tables.paper_table("comparison", NOTHING, [own]))["joint"]["variant"] == "L/16"


def test_half_finished_experiments_are_marked(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.2, 0.5]),
        stored_run("uniform", [0.2], seed=1, state="RUNNING", total_steps=2),
        stored_run("joint", [0.4], state="FAILED", reason="boom", total_steps=2),
    )  # fmt: skip
    table = tables.paper_table("comparison", PAPER, [tables.finals(frames.read(store.url, "study"))])
    assert rows_of(table)["joint"]["shapes/zero_shot"] == "—"
    assert rows_of(table)["uniform"]["shapes/zero_shot"] == "50.0†"
    assert "uniform: seed 1 RUNNING at step 1 of 2" in table.notes
    assert "joint: seed 0 FAILED at step 1 of 2 (boom)" in table.notes


def test_two_experiments_with_runs_of_the_same_name(paper_like, stored_run):
    paper_like.add(
        stored_run("uniform", [0.1, 0.2]), stored_run("joint", [0.1, 0.3]), experiment="other"
    )  # fmt: skip
    both = [tables.finals(frames.read(paper_like.url, name), "uniform") for name in ("study", "other")]
    table = tables.paper_table("comparison", NOTHING, both)
    rows = rows_of(table)
    assert list(rows) == [
        "reference", "uniform (study)", "joint (study)", "uniform (other)", "joint (other)"
    ]  # fmt: skip
    assert table.baselines["joint (other)"] == "uniform (other)"
    assert table.parts is not None
    assert set(table.parts.loc[table.parts["row"] == "joint (other)", "experiment"]) == {"other"}


def test_a_published_table_of_another_name(paper_like):
    cells = published.frame(
        published.parse(
            b"source,table,position,method,quantity,printed,unit\n"
            b"Doe 2025,ours,1,CLIP,imagenet/zero_shot,60.1,percent\n"
            b"Doe 2025,ours,2,CLIP+,imagenet/zero_shot,63.1,percent\n",
            "doe.csv",
        )
    )
    rows = rows_of(tables.paper_table("ours", cells))
    assert [row["imagenet/zero_shot"] for row in rows.values()] == ["60.1", "63.1"]


def test_nothing_to_show():
    with pytest.raises(ValueError, match="no published results: run jestlab published import, or name an"):
        tables.paper_table("comparison", NOTHING)
    with pytest.raises(ValueError, match="no published table 'theirs': expected one of comparison, "):
        tables.paper_table("theirs", PAPER)


def test_csv_and_json_hold_numbers_and_what_was_printed():
    table = tables.paper_table("comparison", PAPER)
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    jest = next(row for row in rows if (row["method"], row["variant"]) == ("JEST++", "L"))
    assert float(jest["mean_delta"]) == pytest.approx(0.018)
    assert jest["mean_delta_printed"] == "+1.8"
    content = json.loads(table.json())
    assert content["rows"][0]["imagenet/10_shot"] is None
    assert content["rows"][0]["examples_seen"] == 13e9


def test_markdown_columns_line_up():
    lines = [
        line for line in tables.paper_table("comparison", PAPER).markdown().splitlines() if line[:1] == "|"
    ]
    assert len({len(line) for line in lines}) == 1
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {11}


def test_scores_that_are_no_shares_are_shown_as_they_are_and_said_to_be(new_store, stored_run):
    raw = {"metrics": {"*": {"goal": "max"}}}
    store = new_store().add(stored_run("uniform", [0.5]), stored_run("joint", [54.4]), spec=raw)
    own = tables.finals(frames.read(store.url, "study"))
    table = tables.paper_table("comparison", PAPER, [own])
    rows = rows_of(table)
    assert (rows["uniform"]["shapes/zero_shot"], rows["joint"]["shapes/zero_shot"]) == ("0.5†", "54.4†")
    assert rows["SigLIP B"]["coco/i2t_r1"] == "65.2"
    assert "study: raw scores, not in %" in table.notes
    assert "Scores in % unless a note says otherwise." in table.caption


def test_what_flops_count_is_told_by_the_scope(paper_like):
    read = frames.read(paper_like.url, "study")
    alone = tables.paper_table("comparison", NOTHING, [tables.finals(read, "uniform", "learner")])
    assert "training alone" in alone.column_named("Total").formula
    whole = tables.paper_table("comparison", NOTHING, [tables.finals(read, "uniform", "reference_training")])
    assert "a share in the reference" in whole.column_named("Total").formula


def test_an_experiment_named_twice_stands_there_once(paper_like):
    table = tables.table(paper_like.url, "comparison", ["study", "study"])
    assert list(rows_of(table)) == ["reference", "uniform", "joint"]
    with pytest.raises(ValueError, match="baseline 'uniform' is a run of an experiment: name the experiment"):
        tables.table(paper_like.url, "comparison", baseline="uniform")


def test_two_names_of_one_benchmark_keep_apart(new_store, stored_run):
    names = ["imagenet/zero_shot", "imagenet1k/zero_shot"]
    store = new_store().add(stored_run("uniform", [0.5], metrics=names))
    rows = rows_of(tables.paper_table("laion", NOTHING, [tables.finals(frames.read(store.url, "study"))]))
    assert {key for key in rows["uniform"] if key.endswith("zero_shot")} == set(names)
