"""The price of scoring a data set against XLA's own count of the compiled code.

What a greater width adds is compared, because XLA also counts what is done to each cosine.
"""

import jax
import numpy as np
import pytest

from jestlab.analysis.flops import clip_loss_scores_flops, deduplication_flops, norm_similarity_flops
from jestlab.models.scoring import duplicates, norm_similarity
from jestlab.models.scoring.clip_loss import negative_clip_loss

NARROW, WIDE = 64, 192


@pytest.fixture
def counted(monkeypatch):
    """Sums up XLA's count of every call of a jitted function, of those that are made from now on."""
    total = [0.0]
    real = jax.jit

    def counting(function):
        jitted = real(function)

        def call(*arguments):
            analysis = jitted.lower(*arguments).compile().cost_analysis()
            assert analysis is not None
            total[0] += analysis["flops"]
            return jitted(*arguments)

        return call

    monkeypatch.setattr(jax, "jit", counting)
    return total


def unit(n, width):
    rows = np.random.default_rng(0).normal(size=(n, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def scored_by_negcliploss(width):
    images = unit(96, width)
    negative_clip_loss(images, images, temperature=0.1, batch_size=32, repeats=3, seed=0)


def scored_by_normsim(width):
    norm_similarity.norm_similarity(unit(96, width), unit(40, width))


def scored_by_semdedup(width):
    duplicates.duplicate_similarity(unit(96, width), clusters=8, iterations=3, seed=0)


WIDER = {"examples": 96, "embedding_dim": WIDE - NARROW}
PRICES = [
    (scored_by_negcliploss, clip_loss_scores_flops(batch_size=32, repeats=3, **WIDER)),
    (scored_by_normsim, norm_similarity_flops(targets=40, **WIDER)),
    # NumPy multiplies the pairs within a cluster.
    (
        scored_by_semdedup,
        deduplication_flops(clusters=8, iterations=3, **WIDER) - 2 * 96 * (96 // 8) * (WIDE - NARROW),
    ),
]


@pytest.mark.parametrize("scored, price", PRICES)
def test_scoring_costs_what_xla_counts(counted, monkeypatch, scored, price):
    for module in (norm_similarity, duplicates):
        monkeypatch.setattr(module, "ROWS", 32)
    monkeypatch.setattr(duplicates, "_nearest", jax.jit(duplicates._nearest.__wrapped__))  # type: ignore[attr-defined]
    found = []
    for width in (NARROW, WIDE):
        counted[0] = 0.0
        scored(width)
        found.append(counted[0])
    assert found[1] - found[0] == pytest.approx(price, rel=0.02)
