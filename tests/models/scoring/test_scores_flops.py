"""The price of scoring a data set against XLA's own count of the compiled code.

As for choosing (`selection/test_selection_flops`), what a width adds is compared: XLA also counts what is
done to each cosine by itself. Loops over parts of the data are in Python here, so their bodies are counted
once a call.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jestlab.analysis.costs import clip_loss_scores_flops, deduplication_flops, norm_similarity_flops
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


def added(counted, compute):
    """What the wider embeddings cost beyond the narrow ones."""
    found = []
    for width in (NARROW, WIDE):
        counted[0] = 0.0
        compute(width)
        found.append(counted[0])
    return found[1] - found[0]


def test_negcliploss(counted):
    n, b, repeats = 96, 32, 3
    of_xla = added(
        counted,
        lambda width: negative_clip_loss(
            unit(n, width), unit(n, width), temperature=0.1, batch_size=b, repeats=repeats, seed=0
        ),
    )
    price = clip_loss_scores_flops(examples=n, embedding_dim=WIDE - NARROW, batch_size=b, repeats=repeats)
    assert of_xla == pytest.approx(price, rel=0.02)


def test_normsim(counted, monkeypatch):
    monkeypatch.setattr(norm_similarity, "ROWS", 32)
    n, m = 96, 40
    of_xla = added(counted, lambda width: norm_similarity.norm_similarity(unit(n, width), unit(m, width)))
    assert of_xla == pytest.approx(
        norm_similarity_flops(examples=n, targets=m, embedding_dim=WIDE - NARROW), rel=0.02
    )


def test_semdedup(counted, monkeypatch):
    """Of the assignment to clusters; pairs within a cluster are multiplied by NumPy."""
    monkeypatch.setattr(duplicates, "ROWS", 32)
    monkeypatch.setattr(duplicates, "_nearest", jax.jit(duplicates._nearest.__wrapped__))  # type: ignore[attr-defined]
    n, k, iterations = 96, 8, 3
    of_xla = added(
        counted,
        lambda width: duplicates.duplicate_similarity(
            unit(n, width), clusters=k, iterations=iterations, seed=0
        ),
    )
    price = deduplication_flops(examples=n, embedding_dim=WIDE - NARROW, clusters=k, iterations=iterations)
    pairs = 2 * n * (n // k) * (WIDE - NARROW)
    assert of_xla == pytest.approx(price - pairs, rel=0.02)
