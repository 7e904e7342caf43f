"""Training steps by rules, criteria, losses and towers of one's own."""

from __future__ import annotations

import copy

import jax
import numpy as np
import pytest
from tests.models.support import own_code
from tests.models.support.steps_on_devices import JOINT, TINY, steps

from jestlab.models.config import TrainConfig

AS_BUILT_IN = __name__


def learnability(learner, reference):
    return learner - reference


def sigmoid(z):
    from jestlab.models.losses import sigmoid_loss

    return sigmoid_loss(z)


def joint(key, batch, *, batch_size, gain, chunks):
    from jestlab.models.selection.select import in_chunks

    return in_chunks(key, batch, batch_size=batch_size, chunks=chunks, gain=gain)


def taken(**changes):
    return steps(TrainConfig.model_validate(copy.deepcopy(TINY) | changes))


@pytest.fixture(scope="module")
def built_in():
    return taken(selection=JOINT)


def test_the_same_code_of_ones_own_does_the_same(built_in):
    """Nothing on the way treats one's own differently."""
    named = f"{AS_BUILT_IN}:"
    rule = {"rule": f"{named}joint", "rule_options": {"chunks": JOINT["chunks"]}}
    own = taken(loss=f"{named}sigmoid", selection=JOINT | rule | {"criterion": f"{named}learnability"})
    for ours, theirs in zip(own[0], built_in[0], strict=True):
        assert ours.pop("selected") == theirs["selected"]
        np.testing.assert_allclose(ours.pop("scores"), theirs["scores"], rtol=1e-5, atol=1e-5)
        scalars = {name: value for name, value in theirs.items() if name not in ("selected", "scores")}
        assert ours == pytest.approx(scalars, rel=1e-5)
    for ours, theirs in zip(*map(jax.tree.leaves, (own[1], built_in[1])), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_options_reach_the_code():
    selections = {}
    for floor in (0.0, 50.0):
        options = {"criterion": f"{own_code.MODULE}:clipped", "criterion_options": {"floor": floor}}
        history, _ = taken(selection=JOINT | options)
        selections[floor] = [metrics["score_selected"] for metrics in history]
    assert selections[50.0] == [50.0] * len(selections[50.0])  # the loss of no pair is so far above
    assert max(selections[0.0]) < 50.0


def test_a_rule_that_does_not_tell_among_how_many_it_chose_records_nothing_of_it(built_in):
    history, _ = taken(selection=JOINT | {"rule": f"{own_code.MODULE}:halves"})
    assert {*built_in[0][0]} - {*history[0]} == {"effective_sample_size"}


def test_towers_of_ones_own_train():
    vision, text = ({**TINY["model"][tower]} for tower in ("vision", "text"))
    own = {"architecture": f"{own_code.MODULE}:Layer", "options": {"hidden": 8}}
    model = {**TINY["model"], "vision": vision | own, "text": text | own}
    history, parameters = taken(model=model, selection=JOINT)
    assert parameters["img"]["Layer_0"]["Dense_0"]["kernel"].shape == (16 * 16 * 3, 8)
    assert history[-1]["loss"] != history[0]["loss"]
    assert np.isfinite(history[-1]["loss"])
    with pytest.raises(ValueError, match="approximation needs the built-in image tower"):
        TrainConfig.model_validate(
            copy.deepcopy(TINY) | {"model": model, "approximation": {"share": 0.5}, "selection": JOINT}
        )


def test_a_tower_of_another_width_is_told():
    own = {"architecture": f"{AS_BUILT_IN}:narrow"}
    model = {**TINY["model"], "vision": {**TINY["model"]["vision"], **own}}
    with pytest.raises(ValueError, match=r"must return features \[n, 16\] .* not \[1, 3\]"):
        taken(model=model)


def narrow(config):
    return lambda images: images.mean(axis=(1, 2))
