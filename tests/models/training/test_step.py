"""The step: what reduces to plain training, what changes only how it is computed, what is rejected."""

import functools
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
from jestlab.models.training.learner import spread
from jestlab.models.training.step import build_step

# Only the built-in image tower approximates; the other is the fastest to compile.
TOWERS = {
    **TINY["model"],
    "vision": TINY["model"]["vision"] | {"image_size": 16},
    "text": SMALLEST["model"]["text"],
}


def narrow(config):
    return lambda images: images.mean(axis=(1, 2))


def config(model=TOWERS, **sections):
    return TrainConfig.model_validate(SMALLEST | {"model": model, "selection": {}} | sections)


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


@functools.cache
def _steps(config):
    return steps(TrainConfig.model_validate_json(config))


def metrics_of(cfg):
    """The metrics of each of three steps; computed once."""
    return _steps(cfg.model_dump_json())[0]


def test_without_filtering_or_approximation_the_step_is_plain_training():
    """f = 0: the sub-batch is the super-batch; λ = 0, by either method."""

    def program(**sections):
        cfg = config(**sections)
        step: Any = build_step(cfg, None)
        return step.lower(start_of(cfg), batch_of(cfg, 0), None).as_text()

    plain = program()
    assert program(selection=JOINT | {"filtering_ratio": 0.0}) == plain
    for method in ("flexi", "patch_drop"):
        assert program(approximation={"method": method, "share": 0.0}) == plain


@pytest.mark.parametrize("loss", ["sigmoid", pytest.param("softmax", marks=pytest.mark.full)])
def test_neither_an_approximation_of_the_same_patches_nor_its_execution_changes_the_step(loss):
    """Only the order of sums differs. Microbatches, too, meet the negatives of the whole batch."""
    same = {"patch_size": TOWERS["vision"]["patch_size"], "share": 0.25}
    runtime = {"microbatches": 4, "remat": "all", "scan_layers": True}
    found = metrics_of(config(loss=loss, approximation=same, runtime=runtime))
    assert_like(found, metrics_of(config(loss=loss)))


@pytest.mark.parametrize(
    ("method", "share"), [("patch_drop", 1.0), pytest.param("flexi", 0.5, marks=pytest.mark.full)]
)
def test_an_approximation_changes_the_step(method, share):
    loss = metrics_of(config(approximation={"method": method, "share": share}))[0]["loss"]
    assert loss != pytest.approx(metrics_of(config())[0]["loss"], rel=1e-4)


def test_microbatches_select_what_the_whole_batch_selects():
    runtime = SMALLEST["runtime"] | {"microbatches": 2}
    assert_like(metrics_of(selecting(runtime=runtime)), metrics_of(selecting()))


def test_selected_positions_are_what_is_trained_on():
    """The loss is that of the selected pairs, taken out by hand."""
    cfg, first = selecting(), metrics_of(selecting())[0]
    chosen = np.array(first["selected"])
    assert len(set(chosen.tolist())) == len(chosen) == cfg.batch_size
    taken = {name: x[chosen] for name, x in batch_of(cfg, 0).items()}
    assert first["examples"] == taken["index"].tolist()
    _, metrics = build_step(selecting(selection={}), None)(start_of(cfg), taken, None)
    assert float(metrics["loss"]) == pytest.approx(first["loss"], rel=1e-6)


def test_rejects_configs_that_no_step_can_follow():
    cfg = selecting()
    with pytest.raises(ValueError, match="a reference is needed, but none was given"):
        build_step(cfg, None)(start_of(cfg), batch_of(cfg, 0), None)
    with pytest.raises(ValueError, match=r"runtime.microbatches 3 does not divide the 32 examples"):
        build_step(config(runtime={"microbatches": 3}), None)
    with pytest.raises(ValueError, match="approximation requires the built-in image tower"):
        selecting(approximation={"share": 0.5})
    vision = TOWERS["vision"] | {"architecture": f"{__name__}:narrow"}
    with pytest.raises(ValueError, match=r"must return features \[n, 16\] .* not \[1, 3\]"):
        start_of(config({**TOWERS, "vision": vision}))


def test_custom_code_that_does_the_same_as_the_built_in_code_computes_the_same():
    own = {
        "rule": "jestlab.models.selection.jax:in_chunks",
        "rule_options": {"chunks": JOINT["chunks"]},
        "criterion": f"{own_code.MODULE}:clipped",
        "criterion_options": {"floor": -1e9},
    }
    cfg = selecting(loss="jestlab.models.losses:sigmoid_loss", selection=JOINT | own)
    (found, parameters), (expected, others) = (_steps(c.model_dump_json()) for c in (cfg, selecting()))
    assert_like(found, expected)
    for ours, theirs in zip(*map(jax.tree.leaves, (parameters, others)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_options_reach_custom_code():
    """And a rule that doesn't report an effective sample size has none recorded."""
    selection = {
        "rule": f"{own_code.MODULE}:halves",
        "criterion": f"{own_code.MODULE}:clipped",
        "criterion_options": {"floor": 50.0},  # no pair's loss is so far above the reference's
    }
    history = metrics_of(selecting(selection=JOINT | selection))
    assert [metrics["score_selected"] for metrics in history] == [50.0] * len(history)
    assert {*metrics_of(selecting())[0]} - {*history[0]} == {"effective_sample_size"}


@given(st.integers(1, 200), st.floats(0, 1) | st.just(0.5))
def test_an_approximate_share_is_spread_evenly(size, share):
    marked = round(share * size)
    order = spread(size, marked)
    if 2 * marked == size:  # the paper's halves
        assert order.tolist() == [*range(0, size, 2), *range(1, size, 2)]
    assert sorted(order) == list(range(size))
    approximate = set(order[size - marked :].tolist())
    for start in range(size):
        for length in (2, 5, 11):
            window = range(start, min(start + length, size))
            assert abs(len(approximate.intersection(window)) - marked / size * len(window)) < 1 + 1e-9
