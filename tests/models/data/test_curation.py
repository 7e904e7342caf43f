"""Selection by metadata: the right examples, whatever form and order the metadata have."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from jestlab.models.data.curation import load_metadata, metadata_columns, select
from jestlab.models.data.tars import TarWriter

FILTER = "similarity > 0.25 and noise != 'blank'"


def test_selects_by_global_number(web):
    metadata = load_metadata(web, ["similarity", "noise"])
    expected = [
        i for i, (s, n) in enumerate(zip(*metadata.values(), strict=True)) if s > 0.25 and n != "blank"
    ]
    indices = select(web, FILTER)
    assert indices.dtype == np.int64
    assert indices.tolist() == expected
    assert max(expected) > 600  # the last shard counts too
    assert select(web, None).tolist() == list(range(700))


def test_json_members_serve_where_there_is_no_parquet(web, own_web):
    for path in own_web.glob("*.parquet"):
        path.unlink()
    assert np.array_equal(select(own_web, FILTER), select(web, FILTER))
    assert metadata_columns(own_web) == sorted(metadata_columns(web))


def test_rows_are_matched_by_key_not_by_place(web, own_web):
    """img2dataset's parquet also lists failed downloads, and in any order."""
    path = own_web / "00001.parquet"
    table = pq.read_table(path)
    order = np.random.default_rng(0).permutation(len(table))
    failed = pa.Table.from_pylist(
        [{"key": "000010999", "status": "failed_to_download", "similarity": None}], table.schema
    )
    pq.write_table(pa.concat_tables([failed, table.take(pa.array(order))]), path)
    assert np.array_equal(select(own_web, FILTER), select(web, FILTER))
    assert load_metadata(own_web, ["caption"]) == load_metadata(web, ["caption"])


def test_an_example_without_a_row_is_not_selected(web, own_web):
    path = own_web / "00000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.filter(pc.field("key") != "000000002"), path)
    assert load_metadata(own_web, ["noise"])["noise"][2] is None
    assert select(own_web, "similarity > -1").tolist() == [0, 1, *range(3, 700)]


def test_unknown_column_names_the_nearest(web):
    with pytest.raises(ValueError, match=r"no metadata column 'similarty': did you mean 'similarity'\?"):
        select(web, "similarty > 0.3")
    with pytest.raises(ValueError, match="known: url, caption"):
        load_metadata(web, ["qqqq"])


@pytest.mark.parametrize("expression", ["similarity > 'high'", "similarity", "noise > 3", "noise in [1, 2]"])
def test_types_that_do_not_compare(web, expression):
    with pytest.raises(ValueError, match="does not fit the metadata"):
        select(web, expression)


def test_nothing_left(web):
    with pytest.raises(ValueError, match="none of the 700 examples"):
        select(web, "similarity > 5")


def test_damaged_metadata_are_named(own_web):
    (own_web / "00002.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ValueError, match=r"00002\.parquet: not a readable parquet"):
        select(own_web, FILTER)


def test_damaged_json_is_named(tmp_path):
    with TarWriter(tmp_path / "0.tar") as tar:
        for i, text in enumerate((json.dumps({"similarity": 1.0}).encode(), b"{nonsense")):
            tar.add(f"{i}.jpg", b"x")
            tar.add(f"{i}.json", text)
            tar.add(f"{i}.txt", b"x")
    with pytest.raises(ValueError, match=r"0\.tar, example '1': its \.json is not JSON"):
        select(tmp_path, "similarity > 0")


def test_no_metadata_at_all(tmp_path):
    with TarWriter(tmp_path / "0.tar") as tar:
        tar.add("0.jpg", b"x")
        tar.add("0.txt", b"x")
    assert select(tmp_path, None).tolist() == [0]
    with pytest.raises(ValueError, match="no metadata column 'similarity'"):
        select(tmp_path, "similarity > 0")
