"""Properties of the rules that draw a sub-batch, and Algorithm 1 against a plain NumPy oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jestlab.models.selection import score_matrix, select
from jestlab.models.selection.rules import chunk_sizes


def scores_of(super_batch, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(super_batch, super_batch)), jnp.float32)


@given(b=st.integers(1, 40_000), chunks=st.integers(1, 64))
def test_chunk_sizes_sum_to_the_sub_batch_and_differ_by_one_at_most(b, chunks):
    chunks = min(b, chunks)
    sizes = chunk_sizes(b, chunks)
    assert len(sizes) == chunks
    assert sum(sizes) == b
    assert max(sizes) - min(sizes) <= 1


def test_the_papers_sub_batch_is_exact():
    assert chunk_sizes(round(163_840 * (1 - 0.8)), 16) == [2_048] * 16


@settings(max_examples=25, deadline=None)
@given(data=st.data(), rule=st.sampled_from(["independent", "joint"]))
def test_indices_are_distinct_and_in_range(data, rule):
    super_batch = data.draw(st.sampled_from([8, 31, 64]))
    b = data.draw(st.sampled_from([3, 8]))
    chunks = data.draw(st.sampled_from([1, 3]))
    seed = data.draw(st.integers(0, 2**31 - 1))
    gain = data.draw(st.sampled_from([0.01, 1.0, 100.0, 1e4]))
    indices = np.asarray(
        select(
            jax.random.key(seed),
            scores_of(super_batch, seed),
            rule=rule,
            batch_size=b,
            chunks=chunks,
            gain=gain,
        )
    )
    assert len(set(indices.tolist())) == b
    assert indices.min() >= 0
    assert indices.max() < super_batch


def test_joint_with_one_chunk_is_independent():
    scores = scores_of(64)
    key = jax.random.key(3)
    joint = select(key, scores, rule="joint", batch_size=16, chunks=1)
    independent = select(key, scores, rule="independent", batch_size=16)
    np.testing.assert_array_equal(joint, independent)


@pytest.mark.parametrize("b, chunks", [(16, 4), (18, 4), (7, 7)])
def test_joint_without_noise_is_greedy_by_conditional_score(b, chunks):
    """At a huge gain the noise vanishes, and each chunk is the top of S_ii + Σ_chosen (S_ij + S_ji)."""
    scores = np.asarray(scores_of(40), np.float64)
    chosen: list[int] = []
    for size in chunk_sizes(b, chunks):
        conditional = np.diag(scores) + scores[chosen].sum(axis=0) + scores[:, chosen].sum(axis=1)
        conditional[chosen] = -np.inf
        chosen += np.argsort(-conditional)[:size].tolist()
    drawn = select(
        jax.random.key(0),
        jnp.asarray(scores, jnp.float32),
        rule="joint",
        batch_size=b,
        chunks=chunks,
        gain=1e6,
    )
    assert np.asarray(drawn).tolist() == chosen


def test_a_common_offset_of_the_pairs_own_scores_changes_no_choice():
    scores = scores_of(50)
    shifted = scores + 1024.0 * jnp.eye(50)
    for rule in ("independent", "joint"):
        one, other = (
            select(jax.random.key(1), s, rule=rule, batch_size=10, chunks=5, gain=1.0)
            for s in (scores, shifted)
        )
        np.testing.assert_array_equal(one, other)


def test_draws_follow_plackett_luce():
    """Without replacement p(i, j) = p_i p_j / (1 − p_i): χ² on 12 ordered pairs, 11 degrees of freedom."""
    weights = np.array([0.0, 0.5, 1.0, 2.0])
    p = np.exp(weights) / np.exp(weights).sum()
    scores = jnp.diag(jnp.asarray(weights, jnp.float32))
    n = 20_000
    draw = jax.vmap(lambda key: select(key, scores, rule="independent", batch_size=2, gain=1.0))
    pairs = np.asarray(draw(jax.random.split(jax.random.key(0), n)))
    chi2 = 0.0
    for i in range(4):
        for j in range(4):
            if i != j:
                expected = n * p[i] * p[j] / (1 - p[i])
                observed = int(((pairs[:, 0] == i) & (pairs[:, 1] == j)).sum())
                chi2 += (observed - expected) ** 2 / expected
    assert chi2 < 31.3  # the 99.9th percentile


def test_joint_finds_more_learnable_batches_than_independent():
    """On examples with strong pairwise structure, the sum over the chosen block is what JEST maximises."""
    rng = np.random.default_rng(0)
    groups = np.arange(320) % 8
    scores = jnp.asarray(
        0.2 * (groups[:, None] == groups[None, :]) + 0.1 * rng.normal(size=(320, 320)), jnp.float32
    )

    def block(rule):
        i = np.asarray(select(jax.random.key(0), scores, rule=rule, batch_size=64, chunks=16, gain=100.0))
        return float(np.asarray(scores)[np.ix_(i, i)].sum())

    assert block("joint") > 2 * block("independent")


@pytest.mark.parametrize(
    "b, chunks, rule, message",
    [
        (65, 4, "joint", "sub-batch of 65 from a super-batch of 64"),
        (0, 1, "independent", "sub-batch of 0"),
        (4, 5, "joint", "in 5 chunks"),
        (4, 2, "jont", "unknown selection rule"),
    ],
)
def test_impossible_requests_are_refused(b, chunks, rule, message):
    with pytest.raises(ValueError, match=message):
        select(jax.random.key(0), scores_of(64), rule=rule, batch_size=b, chunks=chunks)


def test_criteria_are_differences_of_losses(embeddings):
    learner, reference = embeddings(12, seed=1), embeddings(12, seed=2)
    hard = score_matrix("hard_learner", learner, None)
    easy = score_matrix("easy_reference", None, reference)
    np.testing.assert_allclose(score_matrix("learnability", learner, reference), hard + easy, rtol=1e-6)
    assert (np.asarray(hard) >= 0).all()
    assert (np.asarray(easy) <= 0).all()


@pytest.mark.parametrize("criterion", ["learnability", "easy_reference", "hard_learner", "hardest"])
def test_a_criterion_without_its_embeddings_is_an_error(criterion):
    with pytest.raises(ValueError, match=criterion):
        score_matrix(criterion, None, None)
