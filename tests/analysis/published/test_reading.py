"""Published cells of a store as a frame. That the platform's own stores are read so, its tests hold."""

from __future__ import annotations

import sqlite3

import pytest

from jestlab.analysis import published


@pytest.fixture
def url(tmp_path):
    """A store with the view's columns, and the paper's cells in another order than theirs."""
    path = tmp_path / "results.db"
    names = {"table": "table_name", "group": "group_name"}
    columns = [names.get(column, column) for column in published.COLUMNS]
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE v_published ({', '.join(columns)})")
        rows = [[getattr(cell, column) for column in published.COLUMNS] for cell in published.paper()]
        connection.executemany(
            f"INSERT INTO v_published VALUES ({', '.join('?' * len(columns))})", rows[::-1]
        )
    connection.close()
    return f"sqlite:///{path}"


def test_one_row_a_cell_by_table_and_row_in_the_order_of_columns(url):
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


def test_of_one_source_or_table(url):
    assert set(published.read(url, table="laion")["table"]) == {"laion"}
    assert published.read(url, source="Doe").empty
    assert list(published.read(url, source="Doe").columns) == list(published.COLUMNS)


def test_an_older_store_says_what_to_do(tmp_path):
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE v_runs (experiment)")
    connection.close()
    with pytest.raises(ValueError, match="cannot hold published results yet: run jestlab db upgrade"):
        published.read(f"sqlite:///{path}")
    with pytest.raises(FileNotFoundError, match="no store at"):
        published.read(f"sqlite:///{tmp_path / 'none.db'}")


def test_unknown_scores_stand_before_the_mean():
    known = ["mean", "vqa/accuracy", "imagenet/10_shot", "examples_seen", "aircraft/10_shot", "pets/10_shot"]
    from jestlab.analysis.published.cell import order

    assert sorted(known, key=order) == [
        "examples_seen", "imagenet/10_shot", "pets/10_shot", "aircraft/10_shot", "vqa/accuracy", "mean",
    ]  # fmt: skip
