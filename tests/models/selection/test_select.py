"""`select` against Algorithm 1 in float64: what it draws and its scores; and what holds for any rule."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.support.algorithm1 import assert_drawn
from tests.models.support.algorithm1 import conditional_scores as exact_scores
from tests.models.support.dense import jointly_sample_batch
from tests.models.support.structured import batch_score, pairs, sigmoid_matrix

from jestlab.models.selection import RULES, select
from jestlab.models.selection import scores as scoring
from jestlab.models.selection.sampling import Candidates, gumbel
from jestlab.models.selection.scores import BLOCKS, scores_by, terms
from jestlab.models.selection.select import SuperBatch, chunk_sizes, in_chunks
from jestlab.models.two_towers import Embeddings

CRITERIA = ("learnability", "easy_reference", "hard_learner")
LOSSES = ("sigmoid", "softmax")


def models(super_batch, width=32, seed=0):
    """Learner and reference, of different widths."""
    learner = pairs(super_batch, width, seed=2 * seed + 1)
    return learner, pairs(super_batch, width // 2, seed=2 * seed + 2, temperature=30.0, bias=-10.0)


@pytest.mark.parametrize("loss, criterion", itertools.product(LOSSES, CRITERIA))
def test_it_draws_what_algorithm_1_draws(loss, criterion):
    """As the readable implementation does with the same key."""
    learner, reference = models(64)
    for gain in (1.0, 100.0):
        settings = {"batch_size": 13, "loss": loss, "criterion": criterion, "chunks": 5, "gain": gain}
        found = select(jax.random.key(0), learner, reference, **settings).indices
        expected, _ = jointly_sample_batch(jax.random.key(0), learner, reference, **settings)
        judged = {"sizes": chunk_sizes(13, 5), "gain": gain, "loss": loss, "criterion": criterion}
        decided = assert_drawn(jax.random.key(0), learner, reference, found, **judged)
        assert assert_drawn(jax.random.key(0), learner, reference, expected, **judged) == decided
        assert decided
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "super_batch, b, chunks, loss, block_logits",
    [
        (1_280, 256, 16, "sigmoid", None),
        (5_119, 1_000, 3, "sigmoid", None),  # blocks of candidates are four, and do not divide them
        (523, 100, 3, "softmax", 33 * 200),  # here five
    ],
)
def test_a_larger_super_batch_is_drawn_from_block_by_block(
    monkeypatch, super_batch, b, chunks, loss, block_logits
):
    if block_logits:
        monkeypatch.setattr(scoring, "BLOCK_LOGITS", block_logits)
    learner, reference = models(super_batch)
    settings = {"batch_size": b, "loss": loss, "chunks": chunks}
    found = select(jax.random.key(0), learner, reference, **settings)
    sizes = chunk_sizes(b, chunks)
    assert_drawn(jax.random.key(0), learner, reference, found.indices, sizes=sizes, loss=loss)


@pytest.mark.parametrize("loss, criterion", itertools.product(LOSSES, CRITERIA))
def test_scores_are_those_of_algorithm_1(monkeypatch, loss, criterion):
    """To 2e-6 of the largest loss, chunk after chunk, in blocks that overlap."""
    monkeypatch.setattr(scoring, "BLOCK_LOGITS", 16 * 100)
    learner, reference = models(320)
    chunks = np.random.default_rng(0).permutation(320)[:64].reshape(4, 16)
    found, found_models = terms(criterion, learner, reference)
    scores = scores_by(loss, found, BLOCKS)

    @jax.jit
    def after(accumulated, chunk):
        rows = [z._replace(image=z.image[chunk], text=z.text[chunk]) for z in found_models]
        accumulated = scores.add(accumulated, found_models, rows)
        return accumulated, scores.given(accumulated, found_models)

    conditional, accumulated = scores.own(found_models), scores.nothing(found_models)
    is_open = np.ones(320, bool)
    expected = exact_scores(learner, reference, chunks, criterion=criterion, loss=loss)
    for chunk, (values, magnitude) in zip(chunks, expected, strict=True):
        np.testing.assert_allclose(
            np.asarray(conditional)[is_open], values[is_open], rtol=0, atol=2e-6 * magnitude
        )
        is_open[chunk] = False
        accumulated, conditional = after(accumulated, chunk)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_trace_ends_in_the_score_of_the_sub_batch(rule, loss):
    """The score is the learner's loss of the sub-batch less the reference's."""
    learner, reference = models(96)
    found = select(
        jax.random.key(1),
        learner,
        reference,
        batch_size=19,
        rule=rule,
        loss=loss,
        chunks=5,
        sweeps=2,
        trace=True,
    )
    chosen = np.asarray(found.indices)
    if loss == "sigmoid":
        expected = batch_score(sigmoid_matrix(learner, reference), chosen)
    else:
        expected = softmax_loss_of(learner, chosen) - softmax_loss_of(reference, chosen)
    assert float(found.score[-1]) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert len(found.score) == len(found.effective) == {"joint": 5, "greedy": 19, "gibbs": 38}.get(rule, 1)


def softmax_loss_of(z, chosen):
    image, text, t, _ = (np.asarray(x, np.float64) for x in z)
    s = t * image[chosen] @ text[chosen].T
    denominators = 0.5 * (np.log(np.exp(s).sum(axis=0)) + np.log(np.exp(s).sum(axis=1)))
    return float((denominators - np.diag(s)).mean())


@given(
    rule=st.sampled_from(RULES),
    loss=st.sampled_from(LOSSES),
    sizes=st.sampled_from([(8, 8), (31, 3)]),
    gain=st.sampled_from([0.01, 100.0, 1e4]),
    seed=st.integers(0, 2**31 - 1),
)
def test_indices_are_distinct_and_in_range(rule, loss, sizes, gain, seed):
    super_batch, b = sizes
    learner, reference = models(super_batch, seed=seed % 1000)
    found = select(
        jax.random.key(seed),
        learner,
        reference,
        batch_size=b,
        rule=rule,
        loss=loss,
        chunks=3,
        gain=gain,
        sweeps=1,
    )
    indices = np.asarray(found.indices)
    assert len(set(indices.tolist())) == b
    assert indices.min() >= 0
    assert indices.max() < super_batch


@pytest.mark.parametrize("loss", LOSSES)
def test_joint_with_one_chunk_is_independent(loss):
    learner, reference = models(64)
    one, other = (
        select(jax.random.key(3), learner, reference, batch_size=16, loss=loss, **rule).indices
        for rule in ({"rule": "joint", "chunks": 1}, {"rule": "independent"})
    )
    np.testing.assert_array_equal(one, other)


def test_joint_one_by_one_without_noise_is_greedy():
    learner, reference = models(64)
    joint = select(jax.random.key(3), learner, reference, batch_size=16, chunks=16, gain=1e7).indices
    greedy = select(jax.random.key(4), learner, reference, batch_size=16, rule="greedy").indices
    assert assert_drawn(None, learner, reference, greedy, sizes=[1] * 16)  # no two scores are nearly equal
    np.testing.assert_array_equal(joint, greedy)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_permutation_of_the_candidates_permutes_the_choice(loss, seed):
    """With the noise that belongs to each candidate: it does not matter where a candidate lies."""
    learner, reference = models(60, seed=seed)
    order = np.random.default_rng(seed).permutation(60)
    criterion, _ = terms("learnability", learner, reference)

    @jax.jit
    def chosen(places, *found_models):
        moved = [z._replace(image=z.image[places], text=z.text[places]) for z in found_models]
        return in_chunks(
            jax.random.key(seed),
            SuperBatch(Candidates(60, None), moved, scores_by(loss, criterion, BLOCKS)),
            batch_size=20,
            chunks=4,
            gain=1.0,
            noise=lambda key, count: gumbel(key, count)[places],
        ).indices

    unmoved = np.asarray(chosen(np.arange(60), learner, reference))
    decided = assert_drawn(
        jax.random.key(seed), learner, reference, unmoved, sizes=[5] * 4, gain=1.0, loss=loss
    )
    assert decided
    moved = np.split(order[np.asarray(chosen(order, learner, reference))], 4)
    for one, other in zip(np.split(unmoved, 4), moved, strict=True):
        assert set(one.tolist()) == set(other.tolist())


@given(b=st.integers(1, 40_000), chunks=st.integers(1, 64))
def test_chunk_sizes_sum_to_the_sub_batch_and_differ_by_one_at_most(b, chunks):
    chunks = min(b, chunks)
    sizes = chunk_sizes(b, chunks)
    assert len(sizes) == chunks
    assert sum(sizes) == b
    assert max(sizes) - min(sizes) <= 1


def test_uniform_selection_looks_at_no_score():
    one, other = (
        select(jax.random.key(0), *models(64, seed=seed), batch_size=16, rule="uniform").indices
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rule, chunks", [("joint", 4), ("independent", 1)])
def test_a_trace_that_is_decided_step_by_step_changes_nothing(rule, chunks):
    learner, reference = models(64)
    settings = {"batch_size": 16, "rule": rule, "chunks": chunks}
    plain = select(jax.random.key(0), learner, reference, **settings)
    always = select(jax.random.key(0), learner, reference, trace=True, **settings)
    assert assert_drawn(jax.random.key(0), learner, reference, plain.indices, sizes=chunk_sizes(16, chunks))
    for trace in (False, True):
        asked = select(jax.random.key(0), learner, reference, trace=jnp.bool_(trace), **settings)
        np.testing.assert_array_equal(asked.indices, plain.indices)
        same = np.isclose(asked.score, always.score, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(same, [True] * (len(asked.score) - 1) + [trace])


def test_scores_are_float32_whatever_the_embeddings_are():
    half = [
        z._replace(image=z.image.astype(jnp.bfloat16), text=z.text.astype(jnp.bfloat16)) for z in models(64)
    ]
    whole = [z._replace(image=z.image.astype(jnp.float32), text=z.text.astype(jnp.float32)) for z in half]
    for loss in LOSSES:
        found = select(jax.random.key(0), *half, batch_size=16, chunks=4, loss=loss)
        assert found.own.dtype == jnp.float32
        assert_drawn(jax.random.key(0), whole[0], whole[1], found.indices, sizes=[4] * 4, loss=loss)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("temperature, broken_row", [(1e10, False), (1e38, False), (10.0, True)])
def test_compiled_selection_of_scores_that_are_not_finite_has_distinct_indices(
    rule, loss, temperature, broken_row
):
    """A compiled step cannot raise; the loop stops at the recorded score."""
    learner, reference = models(24)
    learner = learner._replace(temperature=jnp.float32(temperature))
    if broken_row:
        learner = learner._replace(image=learner.image.at[3].set(jnp.nan))
    found = jax.jit(
        lambda *z: select(jax.random.key(0), *z, batch_size=20, rule=rule, loss=loss, chunks=3, sweeps=1)
    )(learner, reference)
    assert len(set(np.asarray(found.indices).tolist())) == 20


@pytest.mark.parametrize("gain", [1e-30, 1e30, 1e38, 1e300])
def test_no_gain_draws_an_example_twice(gain):
    learner, reference = models(64)
    found = select(jax.random.key(0), learner, reference, batch_size=60, chunks=7, gain=gain)
    assert len(set(np.asarray(found.indices).tolist())) == 60


def chi_squared(observed, p):
    expected = observed.sum() * p
    return ((observed - expected) ** 2 / expected).sum()


def test_joint_selection_draws_one_by_one_in_proportion_to_its_scores():
    """p(i, j) = softmax(S_ii) softmax(S_jj + S_ij + S_ji), j ≠ i: χ² on 20 pairs, 19 degrees of freedom."""
    learner, reference = models(5)
    matrix = sigmoid_matrix(learner, reference)
    first = np.exp(np.diag(matrix)) / np.exp(np.diag(matrix)).sum()
    then = np.exp(np.diag(matrix) + matrix + matrix.T)
    np.fill_diagonal(then, 0.0)
    p = first[:, None] * then / then.sum(axis=1, keepdims=True)
    draws = jax.vmap(lambda key: select(key, learner, reference, batch_size=2, chunks=2, gain=1.0).indices)(
        jax.random.split(jax.random.key(0), 20_000)
    )
    observed = np.zeros((5, 5))
    np.add.at(observed, tuple(np.asarray(draws).T), 1)
    off = ~np.eye(5, dtype=bool)
    assert chi_squared(observed[off], p[off]) < 43.8  # the 99.9th percentile


def test_gibbs_sampling_draws_batches_in_proportion_to_their_summed_scores():
    """p(batch) ∝ exp(gain Σ_ij S_ij), by the sigmoid loss: χ² on 10 batches, 9 degrees of freedom."""
    learner, reference = models(5)
    matrix = sigmoid_matrix(learner, reference)
    batches = list(itertools.combinations(range(5), 3))
    p = np.exp([0.2 * matrix[np.ix_(batch, batch)].sum() for batch in batches])
    draws = jax.vmap(
        lambda key: select(key, learner, reference, batch_size=3, rule="gibbs", sweeps=10, gain=0.2).indices
    )(jax.random.split(jax.random.key(0), 10_000))
    found = np.sort(np.asarray(draws), axis=1)
    observed = np.array([(found == batch).all(axis=1).sum() for batch in batches])
    assert observed.sum() == 10_000
    assert chi_squared(observed, p / p.sum()) < 27.9  # the 99.9th percentile


def test_large_logits_overflow_nowhere():
    learner, reference = models(64)
    hot = learner._replace(temperature=jnp.float32(1e4))
    for loss in LOSSES:
        found = select(jax.random.key(0), hot, reference, batch_size=16, loss=loss, trace=True)
        assert np.isfinite(found.own).all()
        assert np.isfinite(found.score).all()
        assert np.isfinite(found.effective).all()


@pytest.mark.parametrize(
    "b, settings, message",
    [
        (65, {}, "sub-batch of 65 from a super-batch of 64"),
        (0, {"rule": "independent"}, "sub-batch of 0"),
        (4, {"chunks": 5}, "sub-batch of 4 in 5 chunks"),
        (4, {"rule": "jont"}, "unknown selection rule 'jont'.*joint"),
        (16, {"loss": "hinge"}, "unknown loss 'hinge'.*softmax"),
        (16, {"criterion": "hardest"}, "unknown criterion 'hardest'.*hard_learner"),
        (16, {"gain": 0.0}, "gain 0.0"),
        (16, {"gain": float("inf")}, "gain inf"),
    ],
)
def test_impossible_requests_are_refused(b, settings, message):
    with pytest.raises(ValueError, match=message):
        select(jax.random.key(0), *models(64), batch_size=b, **settings)


@pytest.mark.parametrize(
    "criterion, learner, reference, missing",
    [
        ("learnability", 1, 0, "reference"),
        ("easy_reference", 1, 0, "reference"),
        ("hard_learner", 0, 1, "learner"),
    ],
)
def test_a_criterion_without_its_embeddings_is_an_error(criterion, learner, reference, missing):
    z = models(64)
    with pytest.raises(ValueError, match=f"{missing}'s embeddings"):
        select(
            jax.random.key(0),
            z[0] if learner else None,
            z[1] if reference else None,
            batch_size=16,
            criterion=criterion,
        )


def test_learner_and_reference_have_to_embed_the_same_examples():
    with pytest.raises(ValueError, match=r"different numbers of examples: \[32, 64\]"):
        select(jax.random.key(0), models(64)[0], models(32)[1], batch_size=16)


def test_images_and_texts_have_to_be_embedded_at_one_width():
    learner, reference = models(64)
    with pytest.raises(ValueError, match="images embedded at width 32, texts at 16"):
        select(jax.random.key(0), learner._replace(text=reference.text), reference, batch_size=16)


@pytest.mark.parametrize("field", Embeddings._fields)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(field, value):
    learner, reference = models(64)
    broken = np.array(getattr(reference, field))
    broken.flat[-1] = value
    with pytest.raises(ValueError, match=f"not finite: .*{field}"):
        select(jax.random.key(0), learner, reference._replace(**{field: broken}), batch_size=16)
