"""The file in which a worker keeps batches while the store is unreachable."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.store.batches import LAST_STEP, records_until
from jestlab.platform.store.spool import Spool

_NUMBERS = st.floats(allow_nan=False) | st.none()
_RECORDS = (
    st.tuples(st.just("point"), st.integers(0, 2**40), st.text(), _NUMBERS)
    | st.tuples(st.just("progress"), st.integers(0, 9), st.integers(0, 9))
    | st.tuples(st.just("replace"), st.integers(0, 9), st.integers(0, LAST_STEP))
    | st.tuples(st.just("end"), st.just("FAILED"), st.none() | st.text(), st.integers())
)
_BATCHES = st.lists(_RECORDS, max_size=6)


@given(st.lists(_BATCHES, max_size=5), st.data())
def test_a_torn_write_loses_only_its_own_batch(batches, data):
    """All batches whose `append` returned are there, in order, and nothing else."""
    with TemporaryDirectory() as folder:
        spool = Spool(Path(folder), 3)
        for batch in batches:
            spool.append(batch)
        whole = spool.path.read_bytes() if batches else b""
        torn = Spool(Path(folder) / "other", 3)
        torn.path.parent.mkdir()
        torn.append(data.draw(_BATCHES))
        line = torn.path.read_bytes()
        cut = data.draw(st.integers(0, len(line) - 1))
        spool.path.write_bytes(whole + line[:cut])
        assert list(spool.batches()) == batches
        after = [("point", 7, "loss", 0.5)]
        spool.append(after)
        assert list(spool.batches()) == [*batches, after]


def test_finds_spools_of_earlier_attempts_in_order(tmp_path):
    for attempt in (12, 3, 9):
        Spool(tmp_path, attempt).append([("progress", attempt, 20)])
    (tmp_path / "spool-notes.jsonl").write_text("my notes\n")
    assert [spool.attempt_id for spool in Spool.left_in(tmp_path, before=12)] == [3, 9]
    Spool(tmp_path, 3).clear()
    Spool(tmp_path, 3).clear()
    assert [spool.attempt_id for spool in Spool.left_in(tmp_path, before=99)] == [9, 12]


def test_records_of_a_replaced_attempt_count_until_a_later_one_resumed():
    batch = [
        ("spent", {"training_seconds": 1.0}),
        ("replace", 3, LAST_STEP),
        *(("point", step, "loss", 0.5) for step in (4, 5, 6)),
        *(("score", step, "toy", "top1", 0.5, None, None, None) for step in (4, 5, 6)),
        ("artifact", "model", "model", 1, "0"),
        ("progress", 6, 9),
        ("end", "COMPLETED", None, 0),
    ]
    kept = records_until(batch, 5)
    assert [record[1] for record in kept if record[0] in ("point", "score")] == [4, 5, 4, 5]
    assert [record for record in kept if record[0] == "replace"] == [("replace", 3, 5)]
    assert {record[0] for record in batch} - {record[0] for record in kept} == {"end"}
    assert records_until(batch, 0) == batch[:1]
