"""The paper's cells, and published cells of a store as a frame."""

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from jestlab.analysis import published
from jestlab.analysis.published.cell import order


@pytest.fixture
def url(tmp_path):
    """A store with the columns of the view, and the paper's cells in reverse order."""
    path = tmp_path / "results.db"
    names = {"table": "table_name", "group": "group_name"}
    columns = [names.get(column, column) for column in published.COLUMNS]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE v_published ({', '.join(columns)})")
        rows = [[getattr(cell, column) for column in published.COLUMNS] for cell in published.paper()]
        connection.executemany(
            f"INSERT INTO v_published VALUES ({', '.join('?' * len(columns))})", rows[::-1]
        )
    return f"sqlite:///{path}"


def test_reads_one_row_per_cell_in_the_order_of_tables(url):
    frame = published.read(url)
    assert tuple(frame.columns) == published.COLUMNS and len(frame) == 233
    assert sorted(published.cells_of(frame), key=repr) == sorted(published.paper(), key=repr)
    assert list(dict.fromkeys(frame["table"])) == sorted(set(frame["table"]))
    silc = frame[(frame["table"] == "comparison") & (frame["method"] == "SILC-S")]
    assert list(silc["quantity"]) == [
        "examples_seen", "flops_per_iteration", "flops_total", "mean_delta",
        "imagenet/10_shot", "imagenet/zero_shot", "coco/i2t_r1", "coco/t2i_r1",
    ]  # fmt: skip
    assert frame["baseline"].dtype == bool and frame["value"].dtype == float
    ours = frame.loc[frame["ours"], ["table", "position"]].drop_duplicates()
    assert len(ours) == 3 + 7 + 1  # rows that the paper shades: comparison, longer_training, laion
    assert set(published.read(url, table="laion")["table"]) == {"laion"}
    assert published.read(url, source="Doe").empty
    assert list(published.read(url, source="Doe").columns) == list(published.COLUMNS)


def test_an_older_store_has_to_be_upgraded(tmp_path):
    path = tmp_path / "results.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE v_runs (experiment)")
    with pytest.raises(ValueError, match="cannot hold published results yet: run jestlab db upgrade"):
        published.read(f"sqlite:///{path}")
    with pytest.raises(FileNotFoundError, match="no store at"):
        published.read(f"sqlite:///{tmp_path / 'none.db'}")


def test_orders_unknown_scores_before_the_mean():
    known = ["mean", "vqa/accuracy", "imagenet/10_shot", "examples_seen", "aircraft/10_shot", "pets/10_shot"]
    assert sorted(known, key=order) == [
        "examples_seen", "imagenet/10_shot", "pets/10_shot", "aircraft/10_shot", "vqa/accuracy", "mean",
    ]  # fmt: skip


def test_the_paper_s_cells():
    cells = published.paper()
    assert Counter(cell.table for cell in cells) == {
        "comparison": 97, "longer_training": 72, "specialists": 30, "laion": 18, "raw_vs_filtered": 16,
    }  # fmt: skip
    assert {cell.source for cell in cells} == {published.PAPER}
    value = {(c.table, c.position, c.quantity): (c.printed, c.value) for c in cells}
    assert value["comparison", 1, "mean_delta"] == ("−11.8", -0.118)
    assert value["comparison", 5, "flops_per_iteration"] == ("380", 3.8)
    assert value["comparison", 7, "examples_seen"] == ("4B", 4e9)
    assert value["comparison", 7, "coco/t2i_r1"] == ("53.3", 0.533)
    assert value["comparison", 8, "flops_total"] == ("11", 0.11)
    assert value["laion", 1, "examples_seen"] == ("12.8B", 12.8e9)
    assert value["raw_vs_filtered", 4, "filtered"] == ("✗", 0.0)
    assert value["specialists", 2, "mean"] == ("70.2", 0.702)


def test_each_group_of_the_paper_has_its_baseline_and_each_row_its_note():
    cells = published.paper()
    baselines = {(c.table, c.group, c.method) for c in cells if c.baseline}
    assert baselines == {
        *((table, group, "SigLIP") for table in ("comparison", "longer_training") for group in "BL"),
        ("specialists", "B", "SigLIP"), ("laion", "B", "SigLIP"), ("raw_vs_filtered", "B", "IID"),
    }  # fmt: skip
    assert all(cell.note for cell in cells)
    assert all("ViT-B/32 at 224 px" in cell.note for cell in cells if cell.table == "laion")
    readable = {cell.citation_key: cell.citation for cell in cells if cell.citation_key}
    assert len(readable) == 9 and readable["radford2021learning"] == "Radford et al. 2021"
    assert all(re.fullmatch(r"\w+ et al\. 20\d\d", citation) for citation in readable.values())
    assert all(citation[-4:] in key for key, citation in readable.items())


def test_the_paper_s_file_is_formatted():
    file = Path(published.__file__).with_name("evans2024.csv")
    assert published.render(published.paper()) == file.read_text(encoding="utf-8")
