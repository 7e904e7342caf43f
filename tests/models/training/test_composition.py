"""What is recorded of the examples that were selected, against the shards' own metadata."""

import json
from collections import Counter

import numpy as np
import pytest

from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.shards import ShardSource
from jestlab.models.training.composition import Composition
from jestlab.models.training.step import NO_EXAMPLE, RECENT_STEPS


@pytest.fixture(scope="module")
def web(tiny, data_cache):
    config = TrainConfig.model_validate(tiny)
    return ensure_web(config.data.train, config.web_seed, data_cache)


def recent_of(*batches):
    """Sub-batches of steps 1, 2, …; the rows that no step has filled hold no example."""
    recent = np.full((RECENT_STEPS, len(batches[0])), NO_EXAMPLE, np.uint32)
    for step, batch in enumerate(batches, start=1):
        recent[(step - 1) % RECENT_STEPS] = batch
    return recent


def test_shares_are_those_of_the_metadata(web):
    selected, candidates = np.arange(3, 35), np.arange(100, 200)
    found = Composition(web, ["noise", "label"])(1, recent_of(selected), candidates)
    source = ShardSource(web)
    for what, examples in (("selected", selected), ("candidates", candidates[:32])):
        for column in ("noise", "label"):
            counts = Counter(json.loads(content)[column] for content in source.metadata(examples))
            shares = {k: v for k, v in found.items() if k.startswith(f"{what}/{column}/")}
            assert shares == {f"{what}/{column}/{value}": n / 32 for value, n in counts.items()}
            assert sum(shares.values()) == pytest.approx(1.0)


def test_a_column_that_no_example_has_is_left_out(web):
    assert Composition(web, ["licence"])(1, recent_of(np.arange(8)), np.arange(8)) == {"selected_again": 0.0}


def test_a_column_with_too_many_values_is_left_out_and_said_so(web, caplog):
    selected = np.arange(256)
    found = Composition(web, ["key", "noise"])(1, recent_of(selected), selected)
    assert not any("/key/" in name for name in found)
    assert any("/noise/" in name for name in found)
    assert "'key' has too many values" in caplog.text


def test_examples_that_were_selected_lately_are_counted(web):
    steps = [np.arange(8), np.arange(8, 16), np.array([0, 8, 15, 100, 101, 102, 103, 104])]
    composition = Composition(web, [])
    assert composition(3, recent_of(*steps), np.arange(8)) == {"selected_again": 3 / 8}
    forgotten = [*steps[:1], *[np.arange(200, 208)] * RECENT_STEPS, np.arange(8)]
    assert composition(len(forgotten), recent_of(*forgotten), np.arange(8)) == {"selected_again": 0.0}
