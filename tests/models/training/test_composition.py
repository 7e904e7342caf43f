"""The composition of the selected examples, against the metadata of the shards."""

import json
import shutil
from collections import Counter

import numpy as np

from jestlab.models.config import TrainConfig
from jestlab.models.data.shards import ShardIndex
from jestlab.models.training.diagnose import composition_of
from jestlab.models.training.state import NO_EXAMPLE, RECENT_STEPS


def compose(folder, columns, batches, candidates):
    """Of the last of some steps; the rows that no step has filled hold no example."""
    selection, runtime = {"rule": "joint", "reference": "r"}, {"diagnostics": {"columns": columns}}
    recent = np.full((RECENT_STEPS, len(batches[0])), NO_EXAMPLE, np.uint32)
    for step, batch in enumerate(batches, start=1):
        recent[(step - 1) % RECENT_STEPS] = batch
    config = TrainConfig.model_validate({"selection": selection, "runtime": runtime})
    return composition_of(ShardIndex.load(folder), config, len(batches), recent, candidates)


def test_shares_are_those_of_the_metadata(web):
    selected, candidates = np.arange(3, 35), np.arange(100, 200)
    found = compose(web, ["noise", "label"], [selected], candidates)
    for what, examples in (("joint", selected), ("candidates", candidates[:32])):
        for column in ("noise", "label"):
            counts = Counter(
                json.loads(content)[column] for content in ShardIndex.load(web).metadata(examples)
            )
            prefix = f"selected/{what}/{column}/"
            shares = {k: v for k, v in found.items() if k.startswith(prefix) and v}
            assert shares == {f"{prefix}{value}": n / 32 for value, n in counts.items()}


def test_unreadable_metadata_are_left_out_with_a_warning(web, tmp_path, caplog):
    copy = shutil.copytree(web, tmp_path / "web")
    for table in copy.glob("*.parquet"):
        table.write_bytes(b"")
    assert compose(copy, ["noise"], [np.arange(8)], np.arange(8)) == {"selected_again": 0.0}
    assert "kinds of the selected examples unknown" in caplog.text


def test_recently_selected_examples_are_counted(web):
    steps = [np.arange(8), np.arange(8, 16), np.array([0, 8, 15, 100, 101, 102, 103, 104])]
    forgotten = [*steps[:1], *[np.arange(200, 208)] * RECENT_STEPS, np.arange(8)]
    for batches, share in ((steps, 3 / 8), (forgotten, 0.0)):
        assert compose(web, [], batches, np.arange(8)) == {"selected_again": share}
