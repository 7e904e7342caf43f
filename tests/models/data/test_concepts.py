"""Concepts of examples: values of metadata as numbers, kept until the shards change."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jestlab.models.data.concepts import concepts
from jestlab.models.data.shapes import encode_jpeg
from jestlab.models.data.tars import TarWriter


def folder_of(tmp_path, rows, *, parquet=False):
    """A tar of examples whose metadata are some rows; None for one without."""
    picture = encode_jpeg(np.zeros((8, 8, 3), np.uint8))
    with TarWriter(tmp_path / "00000.tar") as tar:
        for i, row in enumerate(rows):
            key = f"{i:09d}"
            tar.add(f"{key}.jpg", picture)
            tar.add(f"{key}.txt", b"a caption")
            if not parquet and row is not None:
                tar.add(f"{key}.json", json.dumps(row).encode())
    if parquet:
        known = [{"key": f"{i:09d}", **row} for i, row in enumerate(rows) if row is not None]
        pq.write_table(pa.Table.from_pylist(known), tmp_path / "00000.parquet")
    return tmp_path


def named(found):
    """The names of each example's concepts."""
    return [[found.names[number] for number in row if number >= 0] for row in found.numbers]


@pytest.mark.parametrize("parquet", [False, True])
def test_values_and_lists_of_values_are_concepts(tmp_path, parquet):
    rows = [
        {"tags": ["cat", "dog", "cat"], "year": 2020},
        {"tags": [], "year": None},
        None,
        {"tags": ["dog"], "year": 2021},
    ]
    found = concepts(folder_of(tmp_path, rows, parquet=parquet), ["tags", "year"])
    assert found.names == ("tags: cat", "tags: dog", "year: 2020", "year: 2021")
    assert named(found) == [["tags: cat", "tags: dog", "year: 2020"], [], [], ["tags: dog", "year: 2021"]]
    assert found.numbers.dtype == np.int32
    assert found.of(np.array([3, 0])).tolist() == [[1, 3, -1], [0, 1, 2]]


def test_kept_until_the_metadata_change(tmp_path, monkeypatch):
    folder = folder_of(tmp_path, [{"tag": "cat"}, {"tag": "dog"}], parquet=True)
    first = concepts(folder, ["tag"])
    with monkeypatch.context() as patch:
        patch.setattr("jestlab.models.data.concepts.read_table", None)  # a second time nothing is read
        assert named(concepts(folder, ["tag"])) == named(first)
    table = pa.Table.from_pylist([{"key": "000000000", "tag": "bird"}, {"key": "000000001", "tag": "dog"}])
    pq.write_table(table, folder / "00000.parquet")
    assert concepts(folder, ["tag"]).names == ("tag: bird", "tag: dog")


def test_rejects_columns_without_concepts(tmp_path):
    folder = folder_of(tmp_path, [{"tag": "cat", "score": 0.5}])
    with pytest.raises(ValueError, match=r"00000\.tar: metadata column 'score' holds 0\.5, which names no"):
        concepts(folder, ["score"])
    with pytest.raises(ValueError, match="column 'tgs': did you mean 'tag'"):
        concepts(folder, ["tgs"])
