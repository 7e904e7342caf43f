"""The step: what reduces to plain training, what changes only how it is computed, what is rejected."""

import copy
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.conftest import TINY
from tests.models.support import own_code
from tests.models.support.steps_on_devices import (
    JOINT,
    SMALLEST,
    assert_metrics_like,
    batch_of,
    start_of,
    steps,
)

from jestlab.models.config import TrainConfig
from jestlab.models.devices import Devices
from jestlab.models.training.gradients import spread
from jestlab.models.training.step import build_step

# Only the built-in image tower approximates; the other is the fastest to compile.
TOWERS = {
    **TINY["model"],
    "vision": TINY["model"]["vision"] | {"image_size": 16},
    "text": SMALLEST["model"]["text"],
}
HERE = __name__


def learnability(learner, reference):
    return learner - reference


def sigmoid(z):
    from jestlab.models.losses import sigmoid_loss

    return sigmoid_loss(z)


def by_chunks(key, batch, *, batch_size, gain, chunks):
    from jestlab.models.selection.select import in_chunks

    return in_chunks(key, batch, batch_size=batch_size, chunks=chunks, gain=gain)


def narrow(config):
    return lambda images: images.mean(axis=(1, 2))


def config(model=TOWERS, **sections):
    return TrainConfig.model_validate(copy.deepcopy(SMALLEST) | {"model": model, "selection": {}} | sections)


def selecting(**sections):
    """With joint selection, and towers that are fast to compile."""
    return config(**{"model": SMALLEST["model"], "selection": JOINT} | sections)


def assert_like(found, expected):
    """Assert the same metrics of every step, the gradient's norm among them, and the same selection.

    Parameters may differ: where a gradient is 0 except for rounding, as of the keys' biases, Adam takes full
    steps in its direction.
    """
    for ours, theirs in zip(found, expected, strict=True):
        assert_metrics_like(ours, theirs)


@pytest.fixture(scope="module")
def one():
    return Devices(jax.devices()[:1])


@pytest.fixture(scope="module")
def steps_of(one):
    """A function from a config to the metrics of its steps and the parameters after them.

    It computes each config once.
    """
    known = {}

    def computed(config):
        key = config.model_dump_json()
        if key not in known:
            known[key] = steps(config, devices=one)
        return known[key]

    return computed


@pytest.fixture(scope="module")
def metrics_of(steps_of):
    return lambda config: steps_of(config)[0]


@pytest.fixture(scope="module")
def joint(metrics_of):
    """The metrics of each step with joint selection."""
    return metrics_of(selecting())


def test_without_filtering_or_approximation_the_step_is_plain_training(one):
    """f = 0: the sub-batch is the super-batch; λ = 0, by either method."""

    def program(**sections):
        cfg = config(**sections)
        step: Any = build_step(cfg, None, one)
        return step.lower(start_of(cfg), batch_of(cfg, 0), None).as_text()

    plain = program()
    assert program(selection=JOINT | {"filtering_ratio": 0.0}) == plain
    for method in ("flexi", "patch_drop"):
        assert program(approximation={"method": method, "share": 0.0}) == plain


@pytest.mark.parametrize("loss", ["sigmoid", pytest.param("softmax", marks=pytest.mark.full)])
def test_neither_an_approximation_of_the_same_patches_nor_its_execution_changes_the_step(metrics_of, loss):
    """Only the order of sums differs. Microbatches, too, meet the negatives of the whole batch."""
    same = {"patch_size": TOWERS["vision"]["patch_size"], "share": 0.25}
    runtime = {"microbatches": 4, "remat": "all", "scan_layers": True}
    found = metrics_of(config(loss=loss, approximation=same, runtime=runtime))
    assert_like(found, metrics_of(config(loss=loss)))


@pytest.mark.parametrize(
    ("method", "share"), [("patch_drop", 1.0), pytest.param("flexi", 0.5, marks=pytest.mark.full)]
)
def test_an_approximation_changes_the_step(one, metrics_of, method, share):
    history, _ = steps(config(approximation={"method": method, "share": share}), 1, devices=one)
    assert history[0]["loss"] != pytest.approx(metrics_of(config())[0]["loss"], rel=1e-4)


def test_microbatches_select_what_the_whole_batch_selects(one, joint):
    parts, _ = steps(selecting(runtime=SMALLEST["runtime"] | {"microbatches": 2}), devices=one)
    assert_like(parts, joint)


def test_selected_positions_are_what_is_trained_on(one, joint):
    """The loss is that of the selected pairs, taken out by hand."""
    cfg = selecting()
    chosen = np.array(joint[0]["selected"])
    assert len(set(chosen.tolist())) == len(chosen) == cfg.batch_size
    taken = {name: x[chosen] for name, x in batch_of(cfg, 0).items()}
    assert joint[0]["examples"] == taken["index"].tolist()
    uniform = selecting(selection={})
    _, metrics = build_step(uniform, None, one)(one.replicate(start_of(cfg)), one.split(taken), None)
    assert float(metrics["loss"]) == pytest.approx(joint[0]["loss"], rel=1e-6)


def test_rejects_configs_that_no_step_can_follow(one):
    cfg = selecting()
    with pytest.raises(ValueError, match="a reference is needed, but none was given"):
        build_step(cfg, None, one)(one.replicate(start_of(cfg)), one.split(batch_of(cfg, 0)), None)
    with pytest.raises(ValueError, match=r"runtime.microbatches 3 does not divide the 32 examples"):
        build_step(config(runtime={"microbatches": 3}), None, one)
    with pytest.raises(ValueError, match="approximation requires the built-in image tower"):
        selecting(approximation={"share": 0.5})
    vision = TOWERS["vision"] | {"architecture": f"{HERE}:narrow"}
    with pytest.raises(ValueError, match=r"must return features \[n, 16\] .* not \[1, 3\]"):
        start_of(config({**TOWERS, "vision": vision}))


def test_custom_code_that_does_the_same_as_the_built_in_code_computes_the_same(steps_of):
    rule = {"rule": f"{HERE}:by_chunks", "rule_options": {"chunks": JOINT["chunks"]}}
    own = selecting(loss=f"{HERE}:sigmoid", selection=JOINT | rule | {"criterion": f"{HERE}:learnability"})
    (found, parameters), (expected, others) = steps_of(own), steps_of(selecting())
    assert_like(found, expected)
    for ours, theirs in zip(*map(jax.tree.leaves, (parameters, others)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_options_reach_custom_code(metrics_of, joint):
    """And a rule that doesn't report an effective sample size has none recorded."""
    selection = {
        "rule": f"{own_code.MODULE}:halves",
        "criterion": f"{own_code.MODULE}:clipped",
        "criterion_options": {"floor": 50.0},  # no pair's loss is so far above the reference's
    }
    history = metrics_of(selecting(selection=JOINT | selection))
    assert [metrics["score_selected"] for metrics in history] == [50.0] * len(history)
    assert {*joint[0]} - {*history[0]} == {"effective_sample_size"}


@given(st.integers(1, 200), st.floats(0, 1))
def test_an_approximate_share_is_spread_evenly(size, share):
    marked = round(share * size)
    order = spread(size, marked)
    assert sorted(order) == list(range(size))
    approximate = set(order[size - marked :].tolist())
    for start in range(size):
        for length in (2, 5, 11):
            window = range(start, min(start + length, size))
            assert abs(len(approximate.intersection(window)) - marked / size * len(window)) < 1 + 1e-9


def test_half_of_the_batch_is_every_other_example():
    assert spread(8, 4).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
