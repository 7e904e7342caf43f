"""Super-batches that runs record, and read again."""

import numpy as np
import pytest

from jestlab.models.training import records
from jestlab.models.training.records import RecordedBatch


def example() -> RecordedBatch:
    scores = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
    return RecordedBatch(np.array([7, 2**40, 3, 9]), scores, np.array([2, 0], np.int32))


def test_reads_what_was_recorded(tmp_path):
    records.record(tmp_path, 150, example())
    records.record(tmp_path, 1, example())
    assert records.recorded(tmp_path) == [1, 150]
    found = records.load(tmp_path, 150)
    for name in RecordedBatch._fields:
        assert np.array_equal(getattr(found, name), getattr(example(), name))
        assert getattr(found, name).dtype == getattr(example(), name).dtype
    assert found.rejected.tolist() == [1, 3]


def test_rejects_missing_and_damaged_records(tmp_path):
    assert records.recorded(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        records.load(tmp_path, 3)
    records.record(tmp_path, 3, example())
    path = tmp_path / "batches" / "00000003.npz"
    whole = path.read_bytes()
    for damaged in (whole[:50], b"", b"nonsense"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"00000003\.npz: damaged"):
            records.load(tmp_path, 3)
    records.record(tmp_path, 3, example()._replace(selected=np.array([4], np.int32)))
    with pytest.raises(ValueError, match="do not belong together"):
        records.load(tmp_path, 3)
