"""The price of choosing and of the loss, against XLA's own count of the compiled code.

XLA also counts what is done to each logit by itself, which does not grow with the embedding width. So it is
what a width adds that is compared, and that to the FLOP. XLA counts the body of a loop once, however often it
runs: loops are unrolled here.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest

from jestlab.analysis.costs import loss_flops, selection_flops
from jestlab.models.losses import sigmoid_loss, softmax_loss
from jestlab.models.selection import select
from jestlab.models.two_towers import Embeddings

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
    """Every scan as a line of code; nothing traced before or meanwhile is used again."""
    jax.clear_caches()
    monkeypatch.setattr(jax.lax, "scan", functools.partial(jax.lax.scan, unroll=True))
    yield
    jax.clear_caches()


@pytest.mark.parametrize(
    ("rule", "b", "settings"),
    [
        ("joint", 8, {"chunks": 3}),  # 3 + 3 + 2, of which the last meets nobody
        ("joint", 8, {"chunks": 1}),
        ("joint", 8, {"chunks": 3, "loss": "softmax"}),
        ("joint", 8, {"chunks": 3, "criterion": "hard_learner"}),
        ("joint", 8, {"chunks": 3, "trace": True}),
        ("independent", 8, {}),
        ("uniform", 8, {}),
        ("greedy", 4, {}),
        ("gibbs", 3, {"sweeps": 2}),
        ("gibbs", 3, {"sweeps": 1, "loss": "softmax"}),
        ("gibbs", 1, {"sweeps": 2}),
        ("gibbs", 3, {"sweeps": 1, "trace": True}),
    ],
)
def test_choosing_costs_what_xla_counts(unrolled, rule, b, settings):
    alone = "criterion" in settings

    def counted(width):
        reference = None if alone else embeddings(B, REFERENCE + width)
        return xla_flops(
            lambda key, learner, reference: select(
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


def test_at_its_width_the_products_are_nearly_all_that_xla_counts(unrolled):
    """What is left out, at E = 1,024: at most 1%."""
    width = 1024
    seen = xla_flops(
        lambda key, *z: select(key, *z, batch_size=8, rule="joint", chunks=3),
        jax.random.key(0),
        embeddings(B, width),
        embeddings(B, width),
    )
    price = selection_flops(
        "joint", batch_size=8, super_batch_size=B, embedding_dims=(width, width), chunks=3
    )
    assert price < seen < 1.02 * price
