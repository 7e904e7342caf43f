"""The paper's cells, and published cells of a store as a frame."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jestlab.analysis import published
from jestlab.analysis.connection import SCHEMA
from jestlab.analysis.published.cell import order


@pytest.fixture
def url(tmp_path):
    """A store with the columns of the view, and the paper's cells in reverse order."""
    path = tmp_path / "results.db"
    names = {"table": "table_name", "group": "group_name"}
    columns = [names.get(column, column) for column in published.COLUMNS]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE v_published ({', '.join(columns)})")
        connection.execute(f"CREATE TABLE alembic_version AS SELECT '{SCHEMA}' AS version_num")
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


def test_a_missing_store_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no store at"):
        published.read(f"sqlite:///{tmp_path / 'none.db'}")


def test_orders_unknown_scores_before_the_mean():
    known = ["mean", "vqa/accuracy", "imagenet/10_shot", "examples_seen", "aircraft/10_shot", "pets/10_shot"]
    assert sorted(known, key=order) == [
        "examples_seen", "imagenet/10_shot", "pets/10_shot", "aircraft/10_shot", "vqa/accuracy", "mean",
    ]  # fmt: skip


def test_each_group_of_the_paper_has_its_baseline_and_each_row_its_note():
    cells = published.paper()
    assert len({(cell.table, cell.group) for cell in cells if cell.baseline}) == 2 + 2 + 1 + 1 + 1
    assert all(cell.note for cell in cells)
    assert all("ViT-B/32 at 224 px" in cell.note for cell in cells if cell.table == "laion")
    readable = {cell.citation_key: cell.citation for cell in cells if cell.citation_key}
    assert len(readable) == 9 and readable["radford2021learning"] == "Radford et al. 2021"
    assert all(re.fullmatch(r"\w+ et al\. 20\d\d", citation) for citation in readable.values())


def test_the_paper_s_file_is_formatted():
    file = Path(published.__file__).with_name("evans2024.csv")
    assert published.render(published.paper()) == file.read_text(encoding="utf-8")
