"""A wrapped loader yields sub-batches in the form of its super-batches."""

from collections import namedtuple
from typing import Any

import pytest

pytestmark = pytest.mark.oracle

Pair = namedtuple("Pair", "image text")


def wrapped(loader, *, by=None, **changed):
    """Batches whose learnability is that of `by`: the greedy rule selects the largest."""
    import torch

    from jestlab.models.selection.batches import SubBatches

    settings: dict[str, Any] = {"filtering_ratio": 0.75, "rule": "greedy", "criterion": "hard_learner"}
    settings |= changed
    return SubBatches(loader, by, None, generator=torch.Generator(), **settings)


def test_every_form_of_batch_keeps_its_form():
    import torch

    x = torch.tensor([0.0, 6.0, 1.0, 7.0, 2.0, 3.0, 4.0, 5.0])
    names = [f"example {i}" for i in range(8)]
    assert wrapped([x], by=lambda b: b).sub_batch(x).tolist() == [6.0, 7.0]
    [(image, text)] = wrapped([(x, 10 * x)], by=lambda b: b[0])
    assert (image.tolist(), text.tolist()) == ([6, 7], [60, 70])
    [batch] = wrapped([{"x": x, "__key__": names, "inner": [x, x]}], by=lambda b: b["x"])
    assert batch["__key__"] == ["example 1", "example 3"] and batch["inner"][1].tolist() == [6, 7]
    [pair] = wrapped([Pair(x, names)], by=lambda b: b.image)
    assert isinstance(pair, Pair) and pair.text == ["example 1", "example 3"]
    eight = [torch.stack([x, x], dim=1)] * 8  # as many parts as examples
    [batch] = wrapped([eight], by=lambda b: b[0][:, 0])
    assert len(batch) == 8 and batch[0].tolist() == [[6, 6], [7, 7]]


def test_it_has_the_length_and_the_attributes_of_the_loader():
    import copy

    import torch
    from torch.utils.data import DataLoader

    loader = DataLoader(torch.arange(20.0), batch_size=8)
    loader.num_batches = 3
    batches = wrapped(loader, by=lambda b: b)
    assert (len(batches), batches.num_batches, batches.dataset) == (3, 3, loader.dataset)
    assert [b.tolist() for b in batches] == [[6, 7], [14, 15], [19]]  # the last super-batch has 4 examples
    assert batches.selected.own.tolist() == [16, 17, 18, 19]
    assert copy.copy(batches).num_batches == 3
    with pytest.raises(AttributeError, match="nothing"):
        _ = batches.nothing


def test_embeddings_are_computed_without_gradients_and_uniform_batches_differ():
    import torch

    x = torch.arange(64.0)

    def learner(batch):
        assert not torch.is_grad_enabled()
        return batch

    batches = wrapped([x, x], by=learner, rule="uniform")
    first, second = (b.tolist() for b in batches)
    assert len(first) == len(second) == 16 and first != second


def test_says_what_is_wrong():
    import torch

    x = torch.arange(8.0)
    with pytest.raises(ValueError, match="filtering_ratio must be at least 0 and below 1, not 1"):
        wrapped([x], filtering_ratio=1)
    with pytest.raises(ValueError, match="super-batch of 8 examples has embeddings of 4"):
        wrapped([x], by=lambda b: b[:4]).sub_batch(x)
    with pytest.raises(TypeError, match="from str: expected tensors"):
        wrapped([x], by=lambda b: b[0]).sub_batch((x, "text"))
    with pytest.raises(ValueError, match=r"the learner's embeddings .* missing"):
        wrapped([x]).sub_batch(x)


def test_a_small_last_super_batch_is_selected_in_fewer_chunks():
    import torch

    from jestlab.models.selection.batches import SubBatches

    def embed(batch):
        return batch, batch, 1.0, 0.0

    rows = torch.eye(45)
    found = SubBatches(rows.split(40), embed, embed, generator=torch.Generator(), filtering_ratio=0.5)
    assert [len(batch) for batch in found] == [20, 2]
