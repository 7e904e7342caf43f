"""Examples chosen by metadata: the right ones, for metadata of any format and order."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jestlab.models.config import Data
from jestlab.models.data import curation
from jestlab.models.data.curation import choose, concepts, recaptions, repeated, select, shares_by_value
from jestlab.models.data.metadata import load_metadata, metadata_columns, metadata_of, without_metadata
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tars import TarWriter


def shards(folder, *tables):
    """Write a tar for each table, keyed 0000, 0001, …, and the table; a list of rows is written as JSON."""
    folder.mkdir(exist_ok=True)
    key = 0
    for number, table in enumerate(tables):
        keys = [f"{key + i:04d}" for i in range(len(table))]
        key += len(table)
        is_table = isinstance(table, pa.Table)
        with TarWriter(folder / f"{number:05d}.tar") as tar:
            for name, row in zip(keys, [None] * len(table) if is_table else table, strict=True):
                tar.add(f"{name}.jpg", b"x")
                tar.add(f"{name}.txt", b"x")
                if row is not None:
                    tar.add(f"{name}.json", row if isinstance(row, bytes) else json.dumps(row).encode())
        if is_table:
            pq.write_table(table.append_column("key", pa.array(keys)), folder / f"{number:05d}.parquet")
    return folder


@pytest.mark.parametrize("form", [list, pa.Table.from_pylist])
def test_metadata_come_from_json_or_parquet(tmp_path, form):
    rows = [{"n": i, "noise": ("clean", "blank")[i % 2]} for i in range(9)]
    shards(tmp_path, *(form(rows[start : start + 3]) for start in (0, 3, 6)))
    selected = select(tmp_path, "n > 2 and noise = 'clean'")
    assert selected.tolist() == [4, 6, 8] and selected.dtype == np.int64
    assert select(tmp_path, None).tolist() == [*range(9)]
    assert curation.count_examples(tmp_path, "n > 2") == (None if form is list else 6)
    assert {*metadata_columns(tmp_path)} == {"key", "n", "noise"}
    some = np.array([7, 3, 4, 3])  # of two of the three shards, in any order
    found = metadata_of(ShardIndex.load(tmp_path), some, ["n", "noise", "license"])
    noise = ["blank", "blank", "clean", "blank"]
    assert found == {"n": [7, 3, 4, 3], "noise": noise, "license": [None] * 4}


def test_rows_are_matched_by_key_and_not_by_position(tmp_path):
    """img2dataset's parquet also lists failed downloads, and in any order."""
    shards(tmp_path, [None] * 4, [{"n": 4}])
    table = pa.table({"key": ["0002", "0009", "0000", "0003"], "n": [2, 9, 0, 3]})
    pq.write_table(table, tmp_path / "00000.parquet")
    assert load_metadata(tmp_path, ["n"])["n"] == [0, None, 2, 3, 4]
    assert select(tmp_path, "n > -1").tolist() == [0, 2, 3, 4]


def test_keys_that_lost_their_zeros_are_an_error(tmp_path):
    shards(tmp_path, [None] * 2)
    pq.write_table(pa.table({"key": [0, 1], "n": [1, 2]}), tmp_path / "00000.parquet")
    with pytest.raises(ValueError, match=r"00000\.parquet: column 'key' is int64, .* '0000': write keys"):
        select(tmp_path, "n > 0")


def test_examples_of_one_name_in_two_folders_of_a_tar_are_an_error(tmp_path):
    with TarWriter(tmp_path / "0.tar") as tar:
        for key in ("a/1", "b/1"):
            tar.add(f"{key}.jpg", b"x")
            tar.add(f"{key}.txt", b"x")
    pq.write_table(pa.table({"key": ["1"], "n": [2]}), tmp_path / "0.parquet")
    with pytest.raises(ValueError, match=r"0\.parquet: two examples have the same key in metadata"):
        select(tmp_path, "n > 0")


@pytest.mark.parametrize("metadata", ["parquet", "json"])
def test_examples_without_metadata_are_counted_where_a_run_reads_metadata(tmp_path, caplog, metadata):
    row = {"n": 1}
    shards(tmp_path, [row] * 6 if metadata == "parquet" else [row] * 4 + [None] * 2)
    if metadata == "parquet":
        table = pa.table({"key": ["0000", "0001", "0002", "0005"], "n": [1, 1, 1, 1]})
        pq.write_table(table, tmp_path / "00000.parquet")
    index = ShardIndex.load(tmp_path)
    assert without_metadata(index) == 2

    def chosen(share, columns=None, **data):
        choose(index, Data().model_copy(update=data), columns, repeats=True, damaged_share=share)

    chosen(0.0)
    chosen(0.0, {"m": np.ones(6)}, filter="m > 0", repeat="m")
    assert not caplog.messages
    for filter, repeat in (("n > 0", None), (None, "n")):
        with pytest.raises(ValueError, match=r"33\.33% of its examples are damaged.*: 2 × no metadata"):
            chosen(0.1, filter=filter, repeat=repeat)
        chosen(0.2, filter=filter, repeat=repeat)
    assert "left out: 2 × no metadata" in caplog.text


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("similarty > 0.3", r"no metadata column 'similarty': did you mean 'similarity'\?"),
        ("qqqq > 0.3", "known: url, caption"),
        ("similarity > 'high'", "cannot be compared with"),
        ("similarity > 5", "none of the 700 examples"),
    ],
)
def test_invalid_filters_are_errors(web, expression, message):
    with pytest.raises(ValueError, match=message):
        select(web, expression)


def test_damaged_metadata_are_named(own_web):
    (own_web / "00002.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ValueError, match=r"00002\.parquet: not a readable parquet"):
        select(own_web, "similarity > 0.25")


DAMAGED_JSON = {
    "no JSON": b"{nonsense",
    "no UTF-8": b'{"similarity": "\xff"}',
    "nested beyond any stack": b"[" * 200_000,
    "nested deeply": b'{"similarity":' * 100 + b"1" + b"}" * 100,
    "no object": b"[1]",
    "null": b"null",
    "an integer of 70 bits": b'{"similarity": %d}' % 2**70,
    "an integer of 5,000 digits": b'{"similarity": %s}' % (b"9" * 5_000),
    "half a letter": b'{"similarity": 1, "url": "\\ud800"}',
    "as long as a book": b'{"similarity": 1, "url": "%s"}' % (b"x" * (1 << 21)),
}


@pytest.mark.parametrize("content", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_examples_with_damaged_metadata_are_left_out(tmp_path, content):
    shards(tmp_path, [{"similarity": 1.0}, content])
    assert select(tmp_path, "similarity > 0").tolist() == [0]
    assert metadata_columns(tmp_path) == ["key", "similarity"]
    index = ShardIndex.load(tmp_path)
    assert index.damaged == {"unreadable metadata": 1} and len(index) == 1
    with pytest.raises(ValueError, match=r"damaged_share 0\.00%: 1 × unreadable metadata"):
        index.check(0.0)


def test_a_parquet_replaces_damaged_json(tmp_path):
    shards(tmp_path, [b"[" * 200_000])
    pq.write_table(pa.table({"key": ["0000"], "similarity": [1.0]}), tmp_path / "00000.parquet")
    assert select(tmp_path, "similarity > 0").tolist() == [0]
    assert load_metadata(tmp_path, ["similarity"]) == {"similarity": [1.0]}
    (tmp_path / "00000.parquet").unlink()  # the index of the tar stays
    with pytest.raises(ValueError, match=r"00000\.tar, example '0000': unreadable metadata: repair"):
        load_metadata(tmp_path, ["similarity"])


def test_no_metadata_at_all(tmp_path):
    shards(tmp_path, [None])
    assert select(tmp_path, None).tolist() == [0]
    with pytest.raises(ValueError, match="no metadata column 'similarity'"):
        select(tmp_path, "similarity > 0")


def test_unrated_pairs_are_dropped_whatever_the_type_of_a_shard(tmp_path):
    unrated = pa.table({"punsafe": pa.array([None, None])})
    double = pa.table({"punsafe": pa.array([0.1, 0.9], pa.float64())})
    single = pa.table({"punsafe": pa.array([0.1, float("nan")], pa.float32())})
    assert select(shards(tmp_path, unrated, double, single), "punsafe < 0.5").tolist() == [2, 4]


def test_many_shards_in_nested_folders_keep_their_order(tmp_path):
    values = np.random.default_rng(0).random((20, 3))
    for name, part in (("a", values[:10]), ("b", values[10:])):
        shards(tmp_path / name, *(pa.table({"similarity": row}) for row in part))
    assert select(tmp_path, "similarity > 0.5").tolist() == np.flatnonzero(values.ravel() > 0.5).tolist()
    assert load_metadata(tmp_path, ["similarity"])["similarity"] == values.ravel().tolist()


def test_additional_columns_are_read_like_metadata(tmp_path):
    shards(tmp_path, pa.table({"similarity": [0.1, 0.5, None]}), pa.table({"similarity": [0.5, 0.5]}))
    marks = np.array([1, 2, 3, np.nan, 5], np.float32)  # of examples without a score: NaN
    assert select(tmp_path, "mark >= 2", {"mark": marks}).tolist() == [1, 2, 4]
    both = select(tmp_path, "mark < 5 and similarity > 0.3", {"mark": marks, "unused": marks})
    assert both.tolist() == [1]
    hidden = select(tmp_path, "similarity = 1", {"similarity": np.ones(5, np.float32)})
    assert hidden.tolist() == [0, 1, 2, 3, 4]  # an additional column hides the one of the metadata
    with pytest.raises(ValueError, match="no metadata column 'mrak'"):
        select(tmp_path, "mrak > 1 and mark > 1", {"mark": marks})


def test_examples_are_repeated_as_often_as_a_column_says(web):
    index = ShardIndex.load(web)
    counts = np.zeros(len(index), np.float32)
    counts[[3, 5, 9]], counts[11] = (2, 1, 3), np.nan
    assert repeated(index, None, "n", {"n": counts}).tolist() == [3, 3, 5, 9, 9, 9]
    assert repeated(index, np.array([4, 5, 9, 11]), "n", {"n": counts}).tolist() == [5, 9, 9, 9]
    assert len(repeated(index, np.arange(2), "width")) == 2 * 32
    with pytest.raises(ValueError, match="all of the 2 examples have 0 repetitions"):
        repeated(index, np.array([0, 11]), "n", {"n": counts})
    for bad in (-1.0, 0.5, np.inf):
        counts[0] = bad
        with pytest.raises(ValueError, match="not all whole numbers from 0"):
            repeated(index, None, "n", {"n": counts})
    with pytest.raises(ValueError, match="not a column of numbers"):
        repeated(index, None, "caption")


def recaptioned_web(folder):
    aligned = {"similarity": [0.4, 0.1, 0.1], "synthetic_caption": ["unused", "a dog, naïvely", None]}
    others = {"similarity": [0.1, None, 0.1], "synthetic_caption": ["  ", "unused", "a cat"]}
    return shards(folder, pa.table(aligned), pa.table(others))


def test_synthetic_captions_replace_those_that_satisfy_the_condition(tmp_path):
    found = recaptions(recaptioned_web(tmp_path), "similarity < 0.3")
    assert found.numbers.tolist() == [1, 2, 3, 5]
    assert found.missing().tolist() == [2, 3]  # none, and white space
    chosen, _ = choose(ShardIndex.load(tmp_path), Data(recaption="similarity < 0.3"))
    assert chosen is not None and chosen.tolist() == [0, 1, 4, 5]
    captions = [f"own {i}" for i in (5, 0, 1, 4, 1)]
    found.replace(np.array([5, 0, 1, 4, 1]), captions)
    assert captions == ["a cat", "own 0", "a dog, naïvely", "own 4", "a dog, naïvely"]
    nothing = recaptions(tmp_path, "similarity < 0")
    assert nothing.numbers.tolist() == nothing.missing().tolist() == []
    nothing.replace(np.array([1]), captions := ["own"])
    assert captions == ["own"]


def test_synthetic_captions_are_stored_and_follow_the_metadata(tmp_path, monkeypatch):
    folder = recaptioned_web(tmp_path)
    first = recaptions(folder, "similarity < 0.3")
    with monkeypatch.context() as patch:
        patch.setattr(curation, "read_table", None)  # a second time nothing is read
        assert recaptions(folder, "similarity < 0.3").numbers.tolist() == first.numbers.tolist()
    path = folder / "00001.parquet"
    table = pq.read_table(path).drop_columns("synthetic_caption")
    pq.write_table(table.append_column("synthetic_caption", pa.array(["new"] * 3)), path)
    assert recaptions(folder, "similarity < 0.3").missing().tolist() == [2]


def test_synthetic_captions_must_be_a_column_of_text(tmp_path):
    with pytest.raises(ValueError, match="no metadata column 'synthetic_caption'"):
        recaptions(shards(tmp_path / "none", pa.table({"similarity": [0.1]})), "similarity < 0.3")
    numbers = pa.table({"similarity": [0.1], "synthetic_caption": [3]})
    with pytest.raises(ValueError, match="'synthetic_caption' is not all text"):
        recaptions(shards(tmp_path / "numbers", numbers), "similarity < 0.3")


@pytest.mark.parametrize("as_table", [False, True])
def test_values_and_lists_of_values_are_concepts(tmp_path, as_table):
    rows = [{"tags": ["dog", "cat", "cat"], "year": 2020}, {"tags": [], "year": None}]
    rows += [{}, {"tags": ["dog"], "year": 2021}]
    found = concepts(shards(tmp_path, pa.Table.from_pylist(rows) if as_table else rows), ["tags", "year"])
    assert found.dtype == np.int32
    # tags: cat, tags: dog, year: 2020, year: 2021
    assert found.tolist() == [[0, 1, 2], [-1, -1, -1], [-1, -1, -1], [1, 3, -1]]


def test_concepts_are_stored_and_follow_the_metadata(tmp_path, monkeypatch):
    shards(tmp_path, pa.table({"tag": ["cat", "dog"], "score": [0.5, 0.5]}))
    assert concepts(tmp_path, ["tag"]).tolist() == [[0], [1]]
    with monkeypatch.context() as patch:
        patch.setattr(curation, "read_table", None)  # a second time nothing is read
        assert concepts(tmp_path, ["tag"]).tolist() == [[0], [1]]
    with pytest.raises(ValueError, match=r"00000\.tar: metadata column 'score' holds 0\.5, which is not a"):
        concepts(tmp_path, ["score"])
    with pytest.raises(ValueError, match="column 'tgs': did you mean 'tag'"):
        concepts(tmp_path, ["tgs"])
    pq.write_table(pa.table({"key": ["0000", "0001"], "tag": ["sheep", "dog"]}), tmp_path / "00000.parquet")
    assert concepts(tmp_path, ["tag"]).tolist() == [[1], [0]]


def test_shares_by_value(tmp_path):
    values = [f"v{i // 2}" for i in range(140)]  # more than 64 different ones
    shards(tmp_path, pa.table({"v": values, "w": [1.5, None] * 70}))
    groups = {"first": np.array([0, 1, 2, 3, 1]), "rest": np.arange(4, 140)}
    found = shares_by_value(ShardIndex.load(tmp_path), ["v", "w", "absent"], groups)
    assert list(found) == ["v", "w"]
    assert found["v"]["v0"] == {"first": 0.6, "rest": 0.0}
    assert found["v"]["others"] == {"first": 0.0, "rest": 12 / 136} and len(found["v"]) == 65
    assert found["w"] == {"1.5": {"first": 0.4, "rest": 0.5}, "missing": {"first": 0.6, "rest": 0.5}}
