"""The file in which a worker keeps batches while the store is unreachable."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.store.spool import Batch, Spool

_NUMBERS = st.floats(allow_nan=False) | st.none()
_BATCHES = st.builds(
    Batch,
    points=st.lists(st.tuples(st.integers(0, 2**40), st.text(), _NUMBERS), max_size=4),
    progress=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    replaced=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**63 - 1)), max_size=2),
    end=st.none() | st.tuples(st.sampled_from(["COMPLETED", "FAILED"]), st.none() | st.text(), st.integers()),
)


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
        after = Batch(points=[(7, "loss", 0.5)])
        spool.append(after)
        assert list(spool.batches()) == [*batches, after]


def test_finds_spools_of_earlier_attempts_in_order(tmp_path):
    for attempt in (12, 3, 9):
        Spool(tmp_path, attempt).append(Batch(progress=(attempt, 20)))
    (tmp_path / "spool-notes.jsonl").write_text("my notes\n")
    assert [spool.attempt_id for spool in Spool.left_in(tmp_path, before=12)] == [3, 9]
    Spool(tmp_path, 3).clear()
    Spool(tmp_path, 3).clear()
    assert [spool.attempt_id for spool in Spool.left_in(tmp_path, before=99)] == [9, 12]


def test_later_batches_override_earlier_ones():
    first = Batch(points=[(1, "loss", 1.0)], progress=(1, 2))
    both = Batch.joined([first, Batch(points=[(1, "loss", 2.0)])])
    assert both == Batch(points=[(1, "loss", 1.0), (1, "loss", 2.0)], progress=(1, 2))
    assert Batch.joined([both, Batch(progress=(2, 2))]).progress == (2, 2)
    assert Batch.joined(both.parts()) == both
    assert [len(part) for part in both.parts()] == [1, 1, 0]
    assert first.parts()[0].parts() == []
    assert not Batch()
    assert Batch(progress=(0, 1))
