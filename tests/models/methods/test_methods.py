"""Every method satisfies the contract of rules or losses, and equals a float64 NumPy reading of its paper."""

from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.losses import sigmoid_loss, softmax_loss
from jestlab.models.methods.concepts import concept_diversity, concept_frequency
from jestlab.models.methods.distillation import distillation_loss, distilled
from jestlab.models.methods.drrho import drrho
from jestlab.models.methods.highest import highest
from jestlab.models.selection import select
from jestlab.testing.training import check_loss, check_rule


@pytest.mark.parametrize(
    "check, method, options",
    [
        (check_rule, highest, {}),
        (check_rule, concept_frequency, {}),
        pytest.param(check_rule, concept_diversity, {"target": 2}, marks=pytest.mark.full),
        (check_loss, drrho, {}),
        (check_loss, distilled, {"loss": "softmax", "weight": 0.5}),
    ],
)
def test_methods_satisfy_their_contract(check, method, options):
    check(method, **options)


def f64(x):
    return np.asarray(x, np.float64)


def cosines(z):
    return f64(z.image) @ f64(z.text).T


# ---- softmax distillation


def log_softmax(z, axis):
    s = float(z.temperature) * cosines(z)
    return s - np.log(np.exp(s).sum(axis=axis, keepdims=True))


@pytest.mark.parametrize("loss, of", [("sigmoid", sigmoid_loss), ("softmax", softmax_loss)])
def test_distillation_is_the_equation(embeddings, loss, of):
    """L_dist = −1/(2b) Σ_i Σ_j [p*_ij log p_ij + q*_ij log q_ij]."""
    z, reference = embeddings(12, 8), embeddings(12, 20, seed=1, temperature=3.0)
    found = jax.jit(lambda *both: distilled(*both, weight=2.0, loss=loss) - of(both[0]))(z, reference)
    total = sum((np.exp(log_softmax(reference, axis)) * log_softmax(z, axis)).sum() for axis in (1, 0))
    np.testing.assert_allclose(found, 2.0 * -total / (2 * 12), rtol=1e-4)


def test_the_gradient_of_distillation_is_the_difference_of_softmaxes(embeddings):
    """∂L_dist / ∂s = (p − p* + q − q*) / (2b), carried to the images by the texts; none to the reference."""
    z, reference = embeddings(9, 8), embeddings(9, 8, seed=1)
    gradients = jax.grad(
        lambda image, other: distillation_loss(z._replace(image=image), reference._replace(image=other)),
        argnums=(0, 1),
    )
    found, theirs = jax.jit(gradients)(z.image, reference.image)
    by_logits = sum(np.exp(log_softmax(z, axis)) - np.exp(log_softmax(reference, axis)) for axis in (1, 0))
    expected = float(z.temperature) * by_logits / (2 * 9) @ f64(z.text)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert not np.asarray(theirs).any()


# ---- DRRho-CLIP


@pytest.mark.parametrize("rho, temperature", [(8.0, 14.0), (0.5, 1.0), (0.5, 100.0)])
def test_drrho_is_the_mean_of_the_risks(embeddings, rho, temperature):
    """F_i of every image, then of every text, one by one."""
    z, reference = embeddings(10, 8, temperature=temperature), embeddings(10, 24, seed=1)
    tau, c, r, risks = 1.0 / temperature, cosines(z), cosines(reference), []
    for cosine, theirs in ((c, r), (c.T, r.T)):
        for i in range(10):
            difference = cosine[i] - cosine[i, i] - (theirs[i] - theirs[i, i])
            risks.append(tau * np.log(np.exp(np.delete(difference, i) / tau).mean()) + tau * rho)
    np.testing.assert_allclose(drrho(z, reference, rho=rho), np.mean(risks), rtol=1e-5, atol=1e-6)


def test_the_gradient_of_drrho_weighs_negatives_that_only_the_reference_separates(embeddings):
    """∂F_i / ∂c_ij = p_ij, with p_ij in proportion to exp((Δ_ij − Δ*_ij) / τ)."""
    z, reference, b = embeddings(7, 7, seed=5, temperature=4.0), embeddings(7, 7, seed=6), 7
    found = jax.jit(jax.grad(lambda text: drrho(z._replace(text=text), reference)))(z.text)
    c, r, of_cosines = cosines(z), cosines(reference), np.zeros((b, b))
    for cosine, theirs, out in ((c, r, of_cosines), (c.T, r.T, of_cosines.T)):
        excess = (cosine - np.diag(cosine)[:, None]) - (theirs - np.diag(theirs)[:, None])
        p = np.where(np.eye(b, dtype=bool), 0.0, np.exp(4.0 * excess))
        out += p / p.sum(axis=1, keepdims=True) - np.eye(b)
    np.testing.assert_allclose(found, of_cosines.T @ f64(z.image) / (2 * b), rtol=1e-4, atol=1e-6)


def test_drrho_rejects_a_batch_without_negatives(embeddings):
    with pytest.raises(ValueError, match="a batch of 1 has none"):
        drrho(embeddings(1), embeddings(1))


# ---- RHO-LOSS


def test_highest_takes_the_examples_of_largest_reducible_loss(embeddings):
    """ℓ(θ) − ℓ(θ_il) of each pair alone by the sigmoid loss, whatever the key."""

    def losses(z):
        return np.log1p(np.exp(-(float(z.temperature) * np.diag(cosines(z)) + float(z.bias))))

    learner, irreducible = embeddings(60, 16), embeddings(60, 8, seed=1, temperature=20.0)
    scores = losses(learner) - losses(irreducible)
    order = np.argsort(-scores)
    assert scores[order[8]] - scores[order[9]] > 1e-3  # rounding can't decide
    for seed in (0, 1):
        chosen = select(jax.random.key(seed), learner, irreducible, batch_size=9, rule=highest).indices
        assert sorted(chosen.tolist()) == sorted(order[:9].tolist())


# ---- CABS, in fractions

B = 12
SETS = st.lists(st.sets(st.integers(0, 9), max_size=4), min_size=B, max_size=B)
SIZES = st.sampled_from([5, B])

compiled_diversity = jax.jit(concept_diversity, static_argnames=("batch_size", "target"))
compiled_frequency = jax.jit(concept_frequency, static_argnames="batch_size")


def padded(sets):
    """int32 [B, 4], sorted, then −1."""
    return jnp.asarray([[*sorted(one), *[-1] * (4 - len(one))] for one in sets], jnp.int32)


def gain(concepts, reached, frequency, t):
    """h(i) by its equation; −1 of a candidate without concepts, which the authors' code never takes."""
    if not concepts:
        return Fraction(-1)
    parts = (Fraction(t - reached[c], t) + Fraction(1, frequency[c]) for c in concepts if reached[c] < t)
    return sum(parts, Fraction(0)) / len(concepts)


@given(SETS, SIZES, st.sampled_from([None, 2]))
def test_diversity_takes_the_largest_gain_each_time(sets, b, target):
    chosen = compiled_diversity(jax.random.key(0), padded(sets), batch_size=b, target=target).tolist()
    assert len(set(chosen)) == b
    frequency = Counter(c for one in sets for c in one)
    t = target or max(1, b // max(1, len(frequency)))
    reached: Counter[int] = Counter()
    left = set(range(len(sets)))
    for i in chosen:
        best = max(gain(sets[j], reached, frequency, t) for j in left)
        # Gains that differ by less than 2^-16 count as equal.
        assert gain(sets[i], reached, frequency, t) >= best - Fraction(1, 2**15)
        reached.update(sets[i])
        left.remove(i)


def test_equal_candidates_are_chosen_at_random():
    equal = padded([{1}] * B)
    choices = [compiled_diversity(jax.random.key(k), equal, batch_size=5).tolist() for k in range(5)]
    assert len({tuple(sorted(chosen)) for chosen in choices}) == 5


@given(SETS, SIZES)
def test_frequency_takes_those_with_the_most_concepts(sets, b):
    chosen = compiled_frequency(jax.random.key(0), padded(sets), batch_size=b).tolist()
    assert len(set(chosen)) == b
    sizes = sorted((len(one) for one in sets), reverse=True)
    assert sorted((len(sets[i]) for i in chosen), reverse=True) == sizes[:b]
