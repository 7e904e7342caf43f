"""The paper's tables: their exact text from published rows, and a user's runs next to them."""

import csv
import functools
import io
import json
from pathlib import Path
from typing import Any

import pytest

from jestlab.analysis import published, tables
from jestlab.analysis.results import read

SNAPSHOTS = Path(__file__).parent / "snapshots"
"""The exact text of each table. To change one on purpose, write its new text there."""


@functools.cache
def paper():
    return published.frame(published.paper())


def rows_of(table):
    """Row name → heading → text."""
    found: dict[str, Any] = {}
    for line in table.lines:
        texts = [cell.text + cell.mark for cell in line.cells]
        found[line.key] = dict(zip([column.key for column in table.columns], texts, strict=True))
    return found


def own(store, experiment="study", *options):
    return tables.finals(store.read(experiment), *(options or ["uniform"]))


@pytest.fixture
def paper_like(new_store, stored_runs):
    """An experiment on the paper's benchmarks, with the names that CLIP_benchmark gives them."""
    metrics = ["imagenet1k/zero_shot", "mscoco_captions/i2t_r1", "mscoco_captions/t2i_r1"]
    config = {"selection.rule": "joint", "selection.filtering_ratio": 1 - 1 / 3.6}
    selecting = {"flops_per_step": (3e9, 4e9, 0.0), "config": config}
    return new_store().add(
        *stored_runs("reference", [0.2, 0.3], needed=1, metrics=metrics),
        *stored_runs("uniform", [0.2, 0.5], [0.2, 0.6], metrics=metrics),
        *stored_runs("joint", [0.4, 0.6], [0.4, 0.7], metrics=metrics, **selecting),
    )


@pytest.mark.parametrize("name", tables.LAYOUTS)
def test_exact_text(name):
    table = tables.paper_table(name, paper())
    texts = {"md": table.markdown(), "tex": table.latex(), "html": table.html()}
    for suffix in texts if name == "comparison" else ["md"]:
        assert texts[suffix] == (SNAPSHOTS / f"{name}.{suffix}").read_text()


def test_rows_with_equal_names_have_different_keys():
    for name, keys in {
        "longer_training": {"JEST++ B 4B", "Flexi-JEST++ B 4B", "JEST++ B 10B", "Flexi-JEST++ B 10B"},
        "raw_vs_filtered": {"IID B filtered", "IID B raw", "JEST++ B filtered", "JEST++ B raw"},
        "laion": {"DBP B/32 5.3B", "DBP B/32 3.6B"},
    }.items():
        assert keys <= {line.key for line in tables.paper_table(name, paper()).lines}


def test_own_runs_are_in_the_same_columns_as_published_ones(paper_like):
    table = tables.paper_table("comparison", paper(), [own(paper_like)])
    assert [title for title, _ in table.sections] == [
        "Evans et al. 2024: B", "Evans et al. 2024: L", "study"
    ]  # fmt: skip
    rows = rows_of(table)
    # By the paper's formula 3F + 3.6F − F; as executed 3F + 3.6F + .4F for choosing.
    assert rows["joint"] == {
        "method": "joint", "variant": "—", "examples_seen": "128",
        "flops_per_iteration": "187", "flops_total": "187",
        "flops_per_iteration_counted": "233", "flops_total_counted": "233",
        "mean_delta": "+10.0 [+10.0, +10.0]", "imagenet/10_shot": "—",
        **dict.fromkeys(("imagenet/zero_shot", "coco/i2t_r1", "coco/t2i_r1"), "65.0 [1.5, 128.5]"),
    }  # fmt: skip
    assert rows["uniform"]["flops_total"] == rows["uniform"]["flops_total_counted"] == "100"
    assert rows["JEST++ L"]["flops_per_iteration"] == "233"
    assert rows["JEST++ L"]["flops_per_iteration_counted"] == "—"
    assert any("A = 0.28" in note for note in table.notes)
    assert rows["uniform"]["mean_delta"] == "—"
    assert rows["reference"]["imagenet/zero_shot"] == "30.0†"
    assert rows["SigLIP B"]["coco/i2t_r1"] == "65.2"
    assert table.baselines["joint"] == "uniform"
    assert table.baselines["JEST++ L"] == "SigLIP L"


def test_own_runs_alone(paper_like):
    results = own(paper_like)
    for name in tables.LAYOUTS:
        table = tables.paper_table(name, paper()[:0], [results])
        rows = rows_of(table)
        assert list(rows) == ["reference", "uniform", "joint"]
        assert [title for title, _ in table.sections] == [""]
        assert rows["joint"]["imagenet/zero_shot"] == "65.0 [1.5, 128.5]"
        assert rows["joint"].get("flops_total", "233") == "233"
        if name in ("laion", "raw_vs_filtered"):
            assert rows["joint"]["coco/mean_r1"] == "65.0 [1.5, 128.5]"
            assert "coco/i2t_r1" not in rows["joint"]


def test_the_config_tells_whether_data_are_filtered_and_the_variant(paper_like):
    config = {"data": {"filter": "x > 1"}, "model": {"variant": "L/16"}}
    paper_like.execute("UPDATE v_runs SET config = ? WHERE run = 'joint'", [json.dumps(config)])
    rows = rows_of(tables.paper_table("raw_vs_filtered", paper()[:0], [own(paper_like)]))
    assert (rows["uniform"]["filtered"], rows["joint"]["filtered"]) == ("✗", "✓")
    rows = rows_of(tables.paper_table("comparison", paper()[:0], [own(paper_like)]))
    assert (rows["uniform"]["variant"], rows["joint"]["variant"]) == ("—", "L/16")


def test_two_experiments_with_runs_of_the_same_name_and_one_that_is_named_twice(paper_like, stored_run):
    paper_like.add(stored_run("uniform", [0.1, 0.2]), stored_run("joint", [0.1, 0.3]), experiment="other")
    table = tables.paper_table("comparison", paper()[:0], [own(paper_like), own(paper_like, "other")])
    rows = rows_of(table)
    assert list(rows) == [
        "reference", "uniform (study)", "joint (study)", "uniform (other)", "joint (other)"
    ]  # fmt: skip
    assert table.baselines["joint (other)"] == "uniform (other)"
    assert table.parts is not None
    assert set(table.parts.loc[table.parts["row"] == "joint (other)", "experiment"]) == {"other"}
    table = tables.table(paper_like.url, "comparison", ["study", "study"])
    assert list(rows_of(table)) == ["reference", "uniform", "joint"]
    with pytest.raises(ValueError, match="baseline 'uniform' is a run of an experiment: name the experiment"):
        tables.table(paper_like.url, "comparison", baseline="uniform")


def test_notes_that_start_with_a_mark_are_shown_below_the_table(paper_like):
    mine = """source,table,method,quantity,printed,unit,note
Doe et al. 2025,comparison,SigLIP,imagenet/zero_shot,76.7,percent,‡ corrected by the authors
Doe et al. 2025,comparison,SigLIP,coco/i2t_r1,65.2,percent,at 256 px
Doe et al. 2025,comparison,SigLIP,mean,70.9,percent,‡ of a column that is not shown
"""
    cells = published.frame([*published.paper(), *published.parse(mine.encode(), "mine.csv")])
    for own_runs in ([], [own(paper_like)]):
        table = tables.paper_table("comparison", cells, own_runs)
        row = rows_of(table)["SigLIP"]
        assert (row["imagenet/zero_shot"], row["coco/i2t_r1"]) == ("76.7‡", "65.2")
        assert rows_of(table)["JEST++ L"]["mean_delta"] == "+1.8‡"
        assert [note for note in table.notes if "‡" in note] == [
            "‡ JEST++ L, mean Δ: +0.9 by the scores of this table",
            "‡ JEST++ L, ImageNet-1K zero-shot: 80.4 in table longer_training, for the same training",
            "‡ SigLIP, ImageNet-1K zero-shot: corrected by the authors",
        ]


def test_csv_and_json_have_numbers_and_the_printed_text():
    table = tables.paper_table("comparison", paper())
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    jest = next(row for row in rows if (row["method"], row["variant"]) == ("JEST++", "L"))
    assert float(jest["mean_delta"]) == pytest.approx(0.018)
    assert jest["mean_delta_printed"] == "+1.8"
    content = json.loads(table.json())
    assert content["rows"][0]["imagenet/10_shot"] is None
    assert content["rows"][0]["examples_seen"] == 13e9


def test_raw_scores_are_shown_unchanged(new_store, stored_run):
    raw = {"metrics": {"*": {"goal": "max"}}}
    store = new_store().add(stored_run("uniform", [0.5]), stored_run("joint", [54.4]), spec=raw)
    table = tables.paper_table("comparison", paper(), [own(store)])
    rows = rows_of(table)
    assert (rows["uniform"]["shapes/zero_shot"], rows["joint"]["shapes/zero_shot"]) == ("0.5†", "54.4†")
    assert "Scores in %, except those of study." in table.caption


def test_a_score_of_own_runs_is_bold_if_it_is_clearly_the_best(new_store, stored_run):
    store = new_store().add(
        *(stored_run("uniform", [score], seed=seed) for seed, score in enumerate((0.30, 0.31, 0.32))),
        *(stored_run("joint", [score], seed=seed) for seed, score in enumerate((0.40, 0.42, 0.42))),
        *(stored_run("noisy", [score], seed=seed) for seed, score in enumerate((0.50, 0.31, 0.20))),
    )
    for rows, bold in ((["uniform", "joint"], True), (["joint", "noisy"], False)):
        results = tables.finals(read(store.url, "study").only(rows), rows[0])
        table = tables.paper_table("comparison", paper()[:0], [results])
        place = [column.key for column in table.columns].index("shapes/zero_shot")
        found = {line.key: line.cells[place].bold for line in table.lines}
        assert found == {rows[0]: False, rows[1]: False} | {"joint": bold}
