"""The price of selection and of the loss, against XLA's own count of the compiled code.

The added FLOPs of a greater width are compared exactly, because XLA also counts operations on each logit. XLA
counts the body of a loop once, regardless of its number of rounds: loops are unrolled here.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import pytest

from jestlab.analysis.flops import loss_flops, selection_flops
from jestlab.models.losses import sigmoid_loss, softmax_loss
from jestlab.models.selection import Embeddings, select

NARROW, WIDE = 128, 256
B, REFERENCE = 40, 32


def embeddings(count, width):
    """Their shapes alone."""
    z, scalar = jnp.zeros((count, width)), jnp.float32(0.0)
    return jax.eval_shape(lambda: Embeddings(z, z, scalar, scalar))


def added_flops(function, *arguments_of):
    """The difference of XLA's counts for the two widths."""

    def count(width):
        compiled = jax.jit(function).lower(*(of(width) for of in arguments_of)).compile()
        return dict(compiled.cost_analysis() or {})["flops"]

    return count(WIDE) - count(NARROW)


@pytest.mark.parametrize(
    ("rule", "b", "settings"),
    [
        ("joint", 8, {"chunks": 3}),  # 3 + 3 + 2; nothing is conditioned on the last chunk
        pytest.param("joint", 8, {"chunks": 3, "trace": True}, marks=pytest.mark.full),
        ("gibbs", 3, {"sweeps": 1}),
        pytest.param("joint", 8, {"chunks": 3, "loss": "softmax"}, marks=pytest.mark.full),
        pytest.param("joint", 8, {"chunks": 3, "criterion": "hard_learner"}, marks=pytest.mark.full),
        pytest.param("greedy", 4, {}, marks=pytest.mark.full),
        pytest.param("gibbs", 3, {"sweeps": 2, "loss": "softmax", "trace": True}, marks=pytest.mark.full),
    ],
)
def test_choosing_costs_what_xla_counts(monkeypatch, rule, b, settings):
    monkeypatch.setattr(jax.lax, "scan", functools.partial(jax.lax.scan, unroll=True))
    alone = "criterion" in settings
    counted = added_flops(
        functools.partial(inspect.unwrap(select), jax.random.key(0), batch_size=b, rule=rule, **settings),
        lambda width: embeddings(B, width),
        lambda width: None if alone else embeddings(B, REFERENCE + width),
    )
    options = {name: settings[name] for name in ("chunks", "sweeps") if name in settings}
    options |= {"batch_size": b, "super_batch_size": B, "traced": "trace" in settings}
    wide, narrow = (
        selection_flops(rule, embedding_dims=(width,) if alone else (width, REFERENCE + width), **options)
        for width in (WIDE, NARROW)
    )
    assert counted == wide - narrow


@pytest.mark.parametrize("loss", [sigmoid_loss, softmax_loss])
def test_the_loss_costs_what_xla_counts(loss):
    counted = added_flops(jax.value_and_grad(loss), lambda width: embeddings(32, width))
    wide, narrow = (loss_flops(batch_size=32, embedding_dim=width) for width in (WIDE, NARROW))
    assert counted == pytest.approx(wide - narrow, rel=1e-3)
