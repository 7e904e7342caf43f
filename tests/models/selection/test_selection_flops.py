"""The price of selection and of the loss, against XLA's own count of the compiled code.

What a greater width adds is compared, to the FLOP, because XLA also counts what is done to each logit. XLA
counts the body of a loop once, however often it runs: loops are unrolled here.
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


def xla_flops(function, *arguments):
    counted = jax.jit(function).lower(*arguments).compile().cost_analysis()
    assert counted is not None
    return counted["flops"]


@pytest.fixture
def unrolled(monkeypatch):
    """Trace `select` without its cache, and with every scan unrolled."""
    monkeypatch.setattr(jax.lax, "scan", functools.partial(jax.lax.scan, unroll=True))
    return inspect.unwrap(select)


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
def test_choosing_costs_what_xla_counts(unrolled, rule, b, settings):
    alone = "criterion" in settings

    def counted(width):
        reference = None if alone else embeddings(B, REFERENCE + width)
        return xla_flops(
            lambda key, learner, reference: unrolled(
                key, learner, reference, batch_size=b, rule=rule, **settings
            ),
            jax.random.key(0),
            embeddings(B, width),
            reference,
        )

    def priced(width):
        sizes = {name: settings[name] for name in ("chunks", "sweeps") if name in settings}
        return selection_flops(
            rule,
            batch_size=b,
            super_batch_size=B,
            embedding_dims=(width,) if alone else (width, REFERENCE + width),
            traced="trace" in settings,
            **sizes,
        )

    assert counted(WIDE) - counted(NARROW) == priced(WIDE) - priced(NARROW)


@pytest.mark.parametrize("loss", [sigmoid_loss, softmax_loss])
def test_the_loss_costs_what_xla_counts(loss):
    n = 32

    def counted(width):
        return xla_flops(jax.value_and_grad(loss), embeddings(n, width))

    def priced(width):
        return loss_flops(batch_size=n, embedding_dim=width)

    assert counted(WIDE) - counted(NARROW) == pytest.approx(priced(WIDE) - priced(NARROW), rel=1e-3)
