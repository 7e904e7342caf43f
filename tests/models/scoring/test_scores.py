"""Scores of a data set against plain float64 NumPy readings of their papers, and of their authors' code."""

import jax
import numpy as np
import pytest

from jestlab.analysis.flops import clip_loss_scores_flops, deduplication_flops, norm_similarity_flops
from jestlab.models.config.programs import NegClipLoss, SemDeDup, SoftCap
from jestlab.models.scoring import score as methods
from jestlab.models.scoring.score import (
    clip_scores,
    duplicate_similarity,
    negative_clip_loss,
    norm_similarity,
    soft_cap_counts,
)


def f64(rows):
    return np.asarray(rows, np.float64)


def unit(n, width=12, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("temperature", [0.01, 0.3])
def test_negcliploss_in_one_batch_is_the_equation(temperature):
    images, texts = unit(40), unit(40, seed=1)
    c = f64(images) @ f64(texts).T
    norms = [np.log(np.exp(c / temperature).sum(axis=axis)) for axis in (0, 1)]
    np.testing.assert_allclose(clip_scores(images, texts), np.diag(c), rtol=1e-5, atol=1e-7)
    expected = np.diag(c) - temperature * np.mean(norms, axis=0)
    found = negative_clip_loss(images, texts, NegClipLoss(batch_size=100, repeats=2), temperature, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n", [12, 9])
def test_negcliploss_averages_over_random_batches(n):
    """Batches of two: the mean over all partners, which many divisions come near. A last one is filled up."""
    images, texts, tau = unit(n), unit(n, seed=1), 0.2
    c = f64(images) @ f64(texts).T

    def with_partner(i, j):
        both = [i, j]
        rows = np.log(np.exp(c[i, both] / tau).sum()) + np.log(np.exp(c[both, i] / tau).sum())
        return c[i, i] - tau * 0.5 * rows

    expected = [np.mean([with_partner(i, j) for j in range(n) if j != i]) for i in range(n)]
    found = negative_clip_loss(images, texts, NegClipLoss(batch_size=2, repeats=600), tau, 0)
    np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("count", [3, methods.TARGET_ROWS, methods.TARGET_ROWS + 5])
def test_normsim_is_a_norm_over_the_targets(count):
    images, targets = unit(count), unit(17, seed=2)
    similar = np.abs(f64(images) @ f64(targets).T)
    np.testing.assert_allclose(norm_similarity(images, targets), similar.max(axis=1), rtol=1e-5)
    by_squares = norm_similarity(images, targets, norm=2)
    np.testing.assert_allclose(by_squares, np.sqrt((similar**2).sum(axis=1)), rtol=1e-5)


@pytest.mark.parametrize("rows", [7, 1_000])
def test_semdedup_in_one_cluster_is_the_authors_matrix(monkeypatch, rows):
    """The maximum of each column of the upper triangle, ordered from the farthest from the centroid.

    A large cluster is compared in parts.
    """
    monkeypatch.setattr(methods, "ROWS", rows)
    images = unit(60)
    center = f64(images).sum(axis=0)
    order = np.argsort(f64(images) @ (center / np.linalg.norm(center)))
    similar = f64(images[order]) @ f64(images[order]).T
    expected = np.empty(60)
    expected[order] = np.triu(similar, 1).max(axis=0)
    found = duplicate_similarity(images, SemDeDup(clusters=1, iterations=2), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_semdedup_keeps_one_of_each_group_of_copies():
    rng = np.random.default_rng(5)
    originals = unit(40, width=32, seed=6)
    copies = np.repeat(originals, 4, axis=0) + 0.01 * rng.normal(size=(160, 32))
    images = (copies / np.linalg.norm(copies, axis=1, keepdims=True)).astype(np.float32)
    images = images[rng.permutation(160)]
    kept = images[duplicate_similarity(images, SemDeDup(clusters=8, iterations=10), 0) < 0.95]
    assert len(kept) == 40
    assert np.all((f64(kept) @ f64(originals).T).max(axis=0) > 0.95)


def authors_sampling(scores, penalty, size, batch_size, rng):
    """Soft-capped sampling as in the authors' notebook."""
    logits = scores.copy()
    drawn: list[int] = []
    while len(drawn) < size:
        p = np.exp(logits - logits.max())
        k = min(batch_size, size - len(drawn))
        batch = rng.choice(len(scores), size=k, p=p / p.sum(), replace=False)
        drawn.extend(batch)
        logits[batch] -= penalty
    return np.bincount(drawn, minlength=len(scores))


def test_soft_capped_sampling_draws_like_the_authors():
    scores, rng = np.array([3.0, 2.0, 1.0, 0.0, -1.0, -4.0], np.float32), np.random.default_rng(0)
    settings = SoftCap(size=20, penalty=0.5, batch_size=2, gain=1.0)
    ours = [soft_cap_counts(scores, settings, seed) for seed in range(600)]
    theirs = [authors_sampling(scores, 0.5, 20, 2, rng) for _ in range(600)]
    assert all(counts.sum() == 20 for counts in ours)
    # Each mean has a standard error of about .06.
    np.testing.assert_allclose(np.mean(ours, axis=0), np.mean(theirs, axis=0), atol=0.2)


def test_soft_capped_sampling_never_draws_scores_of_minus_infinity():
    scores = np.array([0.0, -np.inf, 5.0], np.float32)
    settings = SoftCap(size=7, penalty=1.0, batch_size=100, gain=2.0)
    counts = soft_cap_counts(scores, settings, 0)
    assert counts[1] == 0 and counts.sum() == 7
    with pytest.raises(ValueError, match="no example"):
        soft_cap_counts(scores[1:2], settings, 0)


# ---- prices, against XLA's count of the FLOPs of the compiled code

NARROW, WIDE = 64, 192
WIDER = {"examples": 96, "embedding_dim": WIDE - NARROW}


@pytest.mark.parametrize(
    "scored, price",
    [
        (
            lambda z: negative_clip_loss(
                z, z, NegClipLoss(batch_size=32, repeats=3, temperature=0.1), 1.0, 0
            ),
            clip_loss_scores_flops(batch_size=32, repeats=3, **WIDER),
        ),
        (lambda z: norm_similarity(z, z[:40]), norm_similarity_flops(targets=40, **WIDER)),
        (
            lambda z: duplicate_similarity(z, SemDeDup(clusters=8, iterations=3), 0),
            # NumPy multiplies the pairs within a cluster.
            deduplication_flops(clusters=8, iterations=3, **WIDER) - 2 * 96 * (96 // 8) * (WIDE - NARROW),
        ),
    ],
)
def test_scoring_costs_what_xla_counts(monkeypatch, scored, price):
    """Of a greater width, the additional FLOPs are compared, because XLA also counts other operations."""
    total, jit = [0.0], jax.jit

    def counting(function):
        jitted = jit(function)

        def call(*arguments):
            analysis = jitted.lower(*arguments).compile().cost_analysis()
            assert analysis is not None
            total[0] += analysis["flops"]
            return jitted(*arguments)

        return call

    monkeypatch.setattr(jax, "jit", counting)
    monkeypatch.setattr(methods, "ROWS", 32)
    monkeypatch.setattr(methods, "TARGET_ROWS", 32)
    monkeypatch.setattr(methods, "_nearest", counting(methods._nearest.__wrapped__))  # type: ignore[attr-defined]
    found = []
    for width in (NARROW, WIDE):
        total[0] = 0.0
        scored(unit(96, width))
        found.append(total[0])
    assert found[1] - found[0] == pytest.approx(price, rel=0.02)
