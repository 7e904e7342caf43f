"""The pass that scores, kept for the gradient: the same numbers, and as few FLOPs as the paper counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support.steps_on_devices import batch_of

from jestlab.models.config import TrainConfig
from jestlab.models.devices import Devices
from jestlab.models.training.reused import KeptPass
from jestlab.models.training.step import build_step, initial_state
from jestlab.models.two_towers import TwoTowerModel, initialize
from jestlab.platform.programs.pricing import cost

TOWERS: dict[str, Any] = {
    "vision": {"image_size": 16, "patch_size": 8, "width": 16, "depth": 2, "heads": 2, "mlp_dim": 32},
    "text": {"length": 8, "width": 16, "depth": 2, "heads": 2, "mlp_dim": 32, "vocabulary_size": 80},
    "embedding_dim": 16,
}


def config(reuse: bool = True, **sections: Any) -> TrainConfig:
    tree: dict[str, Any] = {
        "model": TOWERS,
        "schedule": {"batch_size": 8, "examples_seen": 64},
        "selection": {"rule": "joint", "reference": "r", "filtering_ratio": 0.75, "chunks": 2},
        "runtime": {"reuse_scoring": reuse, **sections.pop("runtime", {})},
    }
    for name, section in sections.items():
        tree[name] = tree.get(name, {}) | section if isinstance(section, dict) else section
    return TrainConfig.model_validate(tree)


def test_the_gradient_of_chosen_rows_is_that_of_a_pass_over_them_alone():
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(12, 5, 3)), jnp.float32)
    parameters = {"w": jnp.asarray(rng.normal(size=(3, 4)), jnp.float32), "v": jnp.ones(4)}

    def function(p: Any, x: Any) -> Any:
        joined = x.reshape(-1, 3) @ p["w"]  # rows first, as it must be
        return jnp.tanh(joined.reshape(x.shape[0], 5, 4)).sum(1) * p["v"], x.mean((1, 2))

    chosen = jnp.asarray([7, 0, 11, 3])
    cotangents = (jnp.asarray(rng.normal(size=(4, 4)), jnp.float32), jnp.ones(4))
    kept = KeptPass(function, parameters, rows)
    _, backward = jax.vjp(lambda p: function(p, rows[chosen]), parameters)
    (expected,) = backward(cotangents)
    found = kept.gradient(chosen, cotangents)
    for name in parameters:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-6)


def test_rows_that_are_joined_last_are_refused():
    def function(p: Any, x: Any) -> Any:
        return jnp.sin(jnp.concatenate([x, x[:1]]) @ p)[: x.shape[0]]

    kept = KeptPass(function, jnp.ones((3, 2)), jnp.ones((6, 3)))
    with pytest.raises(ValueError, match="does not have 6 rows on one axis"):
        kept.gradient(jnp.asarray([1, 2]), jnp.ones((2, 2)))


def step_of(cfg: TrainConfig) -> tuple[dict[str, Any], Any]:
    """Metrics of the first step on one device, and the optimiser's state after it."""
    step: Any = build_step(cfg, TwoTowerModel(cfg.model), Devices(jax.devices()[:1]))
    state = initial_state(cfg, initialize(cfg.model, jax.random.key(0)), jax.random.key(1))
    reference = initialize(cfg.model, jax.random.key(9)) if cfg.needs_reference else None
    state, metrics = step(state, batch_of(cfg, 0), reference)
    return jax.tree.map(np.asarray, metrics), state.optimizer


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"model": TOWERS | {"vision": TOWERS["vision"] | {"pooling": "mean"}}},
        {"loss": "softmax"},
        {"selection": {"criterion": "hard_learner", "reference": None}},
        {"runtime": {"scan_layers": True}},
        {"runtime": {"remat": "dots"}},
    ],
    ids=["joint", "mean", "softmax", "hard-learner", "scanned", "remat"],
)
def test_a_step_that_reuses_its_scoring_takes_the_same_step(sections):
    runtime = sections.pop("runtime", {})
    ours, theirs = (step_of(config(reuse, runtime=runtime, **sections))[0] for reuse in (True, False))
    assert ours.keys() == theirs.keys()
    assert ours["selected"].tolist() == theirs["selected"].tolist()
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-5, atol=1e-5, err_msg=name)


def test_gradients_are_equal_to_a_hundred_thousandth():
    """Of every parameter, as Adam gets them: its first moment is the gradient, the second its square."""
    moments = []
    for reuse in (False, True):
        cfg = config(reuse, optimizer={"beta1": 0.0, "clip_norm": None, "warmup_percent": 0.0})
        leaves = jax.tree.leaves(step_of(cfg)[1])
        moments.append([np.asarray(leaf, np.float64) for leaf in leaves if leaf.size > 1])
    norm = max(float(np.linalg.norm(leaf)) for leaf in moments[0])
    assert norm > 0
    for plain, reused in zip(moments[0], moments[1], strict=True):
        np.testing.assert_allclose(reused, plain, rtol=0, atol=1e-5 * norm)


def test_it_costs_what_the_paper_counts():
    """C_JEST = F(2 + B/b) but for loss and selection; `test_step_flops` compares with XLA's count."""
    plain, reusing = (cost(config(reuse), None, 1.0) for reuse in (False, True))
    forward = (plain.image_tower + plain.text_tower) / 3
    assert plain.scoring - reusing.scoring == pytest.approx(forward)
    assert 3 * forward + reusing.scoring == pytest.approx(forward * (2 + 4))


def test_where_nothing_can_be_reused_it_has_no_effect():
    uniform = config(True, selection={"rule": "uniform", "reference": None})
    flexi = config(True, approximation={"score": True, "share": 0.5, "patch_size": 16})
    easy = config(True, selection={"criterion": "easy_reference"})
    assert not (uniform.reuses_scoring or flexi.reuses_scoring or easy.reuses_scoring)
    assert config(True).reuses_scoring
    assert config(True).identity() == config(False).identity(), "how to compute is no part of a run"


def test_what_it_does_not_go_with_is_told():
    with pytest.raises(ValueError, match=r"runtime\.reuse_scoring .* and runtime\.microbatches 2"):
        config(True, runtime={"microbatches": 2})
    with pytest.raises(ValueError, match="is for one device, and there are 2"):
        build_step(config(True), None, Devices(jax.devices()[:1] * 2))
