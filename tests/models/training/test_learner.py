"""The scoring pass, reused for the gradient: the same numbers, and the paper's number of FLOPs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support.parameters import random_parameters
from tests.models.support.steps_on_devices import batch_of, start_of

from jestlab.models.config import TrainConfig
from jestlab.models.devices import Devices
from jestlab.models.training.learner import reusable_pass
from jestlab.models.training.step import build_step
from jestlab.models.two_towers import TwoTowerModel
from jestlab.platform.programs.pricing import step_of as priced_step

TOWERS: dict[str, Any] = {
    "vision": {"image_size": 16, "patch_size": 8, "width": 16, "depth": 1, "heads": 2, "mlp_dim": 32},
    "text": {"length": 8, "width": 16, "depth": 1, "heads": 2, "mlp_dim": 32, "vocabulary_size": 80},
    "embedding_dim": 16,
}
MEAN_POOLED = TOWERS | {"vision": TOWERS["vision"] | {"pooling": "mean"}}
ALONE = {"criterion": "hard_learner", "reference": None}


def config(reuse: bool = True, **sections: Any) -> TrainConfig:
    tree: dict[str, Any] = {
        "model": TOWERS,
        "schedule": {"batch_size": 8, "examples_seen": 64},
        "selection": {"rule": "joint", "reference": "r", "filtering_ratio": 0.75, "chunks": 2, "gain": 1.0},
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
    _, reuse = reusable_pass(function, parameters, rows)
    _, backward = jax.vjp(lambda p: function(p, rows[chosen]), parameters)
    (expected,) = backward(cotangents)
    (found,) = reuse(chosen)[1](cotangents)
    for name in parameters:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-6)


def test_rejects_functions_that_join_rows_last():
    def function(p: Any, x: Any) -> Any:
        return jnp.sin(jnp.concatenate([x, x[:1]]) @ p)[: x.shape[0]]

    _, reuse = reusable_pass(function, jnp.ones((3, 2)), jnp.ones((6, 3)))
    with pytest.raises(ValueError, match="does not have 6 rows on one axis"):
        reuse(jnp.asarray([1, 2]))


def step_of(cfg: TrainConfig) -> tuple[dict[str, Any], Any]:
    """Metrics of the first step on one device, and the optimizer's state after it."""
    step: Any = build_step(cfg, TwoTowerModel(cfg.model), Devices(jax.devices()[:1]))
    reference = random_parameters(cfg.model, 9) if cfg.needs_reference else None
    state, metrics = step(start_of(cfg), batch_of(cfg, 0), reference)
    return jax.tree.map(np.asarray, metrics), state.optimizer


@pytest.mark.parametrize(
    "sections",
    [
        {"loss": "softmax", "runtime": {"scan_layers": True}, "model": MEAN_POOLED, "selection": ALONE},
        pytest.param({"runtime": {"remat": "dots"}}, marks=pytest.mark.full),
        pytest.param({"loss": "softmax", "selection": ALONE}, marks=pytest.mark.full),
    ],
)
def test_a_step_that_reuses_its_scoring_takes_the_same_step(sections):
    """The gradient of every parameter, too: it is Adam's first moment here, and its square the second."""
    optimizer = {"beta1": 0.0, "clip_norm": None, "warmup_percent": 0.0}
    found = [step_of(config(reuse, optimizer=optimizer, **sections)) for reuse in (False, True)]
    (plain, _), (reused, _) = found
    assert plain.keys() == reused.keys()
    assert plain["selected"].tolist() == reused["selected"].tolist()
    for name in plain:
        np.testing.assert_allclose(reused[name], plain[name], rtol=2e-5, atol=1e-5, err_msg=name)
    moments = [[leaf for leaf in jax.tree.leaves(state) if leaf.size > 1] for _, state in found]
    norm = max(float(np.linalg.norm(leaf)) for leaf in moments[0])
    assert norm > 0
    for one, other in zip(*moments, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5 * norm)


def test_costs_what_the_paper_counts():
    """C_JEST = F(2 + B/b) but for loss and selection; `test_step_flops` compares with XLA's count."""
    plain, reusing = (priced_step(config(reuse), None).cost() for reuse in (False, True))
    forward = (plain.image_tower + plain.text_tower) / 3
    assert plain.scoring - reusing.scoring == pytest.approx(forward)
    assert 3 * forward + reusing.scoring == pytest.approx(forward * (2 + 4))


def test_has_no_effect_where_nothing_can_be_reused():
    for sections in (
        {"selection": {"rule": "uniform", "reference": None}},
        {"selection": {"criterion": "easy_reference"}},
        {"approximation": {"score": True, "share": 0.5, "patch_size": 16}},
    ):
        assert not config(True, **sections).reuses_scoring
    assert config(True).reuses_scoring
    assert config(True).identity() == config(False).identity(), "execution isn't part of a run's identity"


def test_rejects_microbatches_and_several_devices():
    with pytest.raises(ValueError, match=r"runtime\.reuse_scoring and runtime\.microbatches"):
        config(True, runtime={"microbatches": 2})
    with pytest.raises(ValueError, match="is for one device, and there are 2"):
        build_step(config(True), None, Devices(jax.devices()[:1] * 2))
