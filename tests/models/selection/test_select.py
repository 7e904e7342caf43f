"""`select` against Algorithm 1 in float64: its draws and scores; and properties of all rules."""

import functools
import inspect
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.support import own_code
from tests.models.support.algorithm1 import assert_drawn, conditional_scores
from tests.models.support.structured import pairs, sigmoid_matrix
from tests.models.support.virtual_devices import on_devices

from jestlab.models.devices import AXIS
from jestlab.models.losses import sigmoid_loss, softmax_loss
from jestlab.models.selection import RULES, select
from jestlab.models.selection import scores as scoring
from jestlab.models.selection.criteria import chunk_sizes

KEY = jax.random.key(0)


def models(super_batch, width=32, seed=0):
    """Learner and reference, of different widths."""
    learner = pairs(super_batch, width, seed=2 * seed + 1)
    return learner, pairs(super_batch, width // 2, seed=2 * seed + 2, temperature=30.0, bias=-10.0)


def indices_of(*given, key=KEY, **settings):
    return np.asarray(select(key, *given, **settings).indices)


def assert_distinct(indices, count):
    assert len(set(np.asarray(indices).tolist())) == len(indices) == count


@pytest.mark.parametrize(
    "loss, criterion",
    [
        ("sigmoid", "learnability"),
        ("softmax", "easy_reference"),
        ("sigmoid", "hard_learner"),
        pytest.param("sigmoid", "easy_reference", marks=pytest.mark.full),
        pytest.param("softmax", "learnability", marks=pytest.mark.full),
        pytest.param("softmax", "hard_learner", marks=pytest.mark.full),
    ],
)
def test_draws_what_algorithm_1_draws(loss, criterion):
    for gain in (1.0, 100.0):
        settings = {"loss": loss, "criterion": criterion, "gain": gain}
        found = indices_of(*models(64), batch_size=12, chunks=4, **settings)
        assert assert_drawn(
            KEY, found, *models(64), sizes=[3] * 4, **settings
        )  # no rounding could have changed a draw


def test_draws_from_a_larger_super_batch_block_by_block(monkeypatch):
    """In five blocks of candidates, which don't divide them."""
    monkeypatch.setattr(scoring, "BLOCK_LOGITS", 33 * 200)
    found = indices_of(*models(523), batch_size=100, loss="softmax", chunks=3)
    assert_drawn(KEY, found, *models(523), sizes=[34, 33, 33], loss="softmax")


def test_a_block_has_at_least_one_row(monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK_LOGITS", 4)
    doubled = scoring.over_rows(lambda rows: 2 * rows[:, 0], jnp.arange(3.0)[:, None], chunk_size=5)
    assert doubled.tolist() == [0, 2, 4]


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_scores_are_those_of_algorithm_1(monkeypatch, loss):
    """To 2e-6 of the largest loss, chunk after chunk, in blocks that overlap."""
    monkeypatch.setattr(scoring, "BLOCK_LOGITS", 16 * 100)
    learner, reference = models(320)
    chunks = np.random.default_rng(0).permutation(320)[:64].reshape(4, 16)
    scores = []

    def fixed(key, batch, **_):
        state = batch.unconditioned()
        for chunk in chunks:
            scores.append(np.asarray(state.scores))
            state = batch.condition(state, jnp.asarray(chunk))
        return chunks.ravel()

    inspect.unwrap(select)(KEY, learner, reference, batch_size=64, rule=fixed, loss=loss)
    expected = conditional_scores(learner, reference, list(chunks), loss=loss)
    for number, (found, (values, magnitude)) in enumerate(zip(scores, expected, strict=True)):
        error = np.delete(np.abs(found - values), chunks[:number])
        assert error.max() <= 2e-6 * magnitude


@pytest.mark.parametrize(
    "rule, loss, criterion",
    [
        ("joint", "sigmoid", "learnability"),
        pytest.param("gibbs", "softmax", "learnability", marks=pytest.mark.full),
        pytest.param(own_code.halves, "softmax", own_code.clipped, marks=pytest.mark.full),
    ],
    ids=["joint", "gibbs", "custom"],
)
def test_selects_the_same_on_several_devices(monkeypatch, rule, loss, criterion):
    """The indices, effective sample sizes, and scores of the sub-batch, in many small blocks."""
    monkeypatch.setattr(scoring, "BLOCK_LOGITS", 15)
    both = models(48, width=16)
    settings = {"rule": rule, "loss": loss, "criterion": criterion, "chunks": 5, "sweeps": 1, "trace": True}

    def chosen(both, axis=None):
        return select(jax.random.key(3), *both, batch_size=13, gain=1.0, axis=axis, **settings)

    def of_rows(*rows):
        return chosen([z._replace(image=x, text=y) for z, (x, y) in zip(both, rows, strict=True)], AXIS)

    alone = chosen(both)
    found = jax.jit(lambda: on_devices(3, of_rows, *((z.image, z.text) for z in both)))()
    for indices, effective in zip(found.indices, found.effective, strict=True):
        np.testing.assert_array_equal(indices, alone.indices)
        np.testing.assert_allclose(effective, alone.effective, rtol=1e-4)
    np.testing.assert_allclose(found.own.reshape(-1), alone.own, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.score.sum(axis=0), alone.score, rtol=1e-4, atol=1e-4)


def test_a_custom_rule_has_the_scores_of_the_candidates_and_of_its_sub_batch():
    settings: dict[str, Any] = {"batch_size": 13, "gain": 1.0, "trace": True}
    found = select(KEY, *models(48), rule=own_code.halves, **settings)
    halved = select(KEY, *models(48), rule="joint", chunks=2, **settings)
    np.testing.assert_array_equal(found.own, halved.own)
    assert_distinct(found.indices, 13)
    assert found.score.shape == (1,) and found.effective.shape == (0,)


@pytest.mark.parametrize(
    "rule, loss",
    [
        *itertools.product(RULES, ["sigmoid"]),
        ("gibbs", "softmax"),
        pytest.param("joint", "softmax", marks=pytest.mark.full),
    ],
)
def test_a_trace_ends_in_the_score_of_the_sub_batch(rule, loss):
    """The score is the learner's loss of the sub-batch minus the reference's."""
    learner, reference = models(96)
    settings = {"rule": rule, "loss": loss, "chunks": 5, "sweeps": 2, "trace": True}
    found = select(jax.random.key(1), learner, reference, batch_size=19, **settings)
    chosen = np.asarray(found.indices)
    assert_distinct(chosen, 19)
    assert chosen.min() >= 0 and chosen.max() < 96
    loss_of = {"sigmoid": sigmoid_loss, "softmax": softmax_loss}[loss]
    chosen_of = (z._replace(image=z.image[chosen], text=z.text[chosen]) for z in (learner, reference))
    ours, theirs = map(loss_of, chosen_of)
    assert float(found.score[-1]) == pytest.approx(float(ours - theirs), rel=1e-4, abs=1e-4)
    assert len(found.score) == len(found.effective) == {"joint": 5, "greedy": 19, "gibbs": 38}.get(rule, 1)


def test_a_trace_that_is_decided_step_by_step_does_not_change_the_choice():
    plain, untraced, traced, always = (
        select(KEY, *models(64), batch_size=16, chunks=4, trace=trace)
        for trace in (None, jnp.bool_(False), jnp.bool_(True), True)
    )
    assert not plain.score.size
    assert assert_drawn(KEY, plain.indices, *models(64), sizes=[4] * 4)
    for found in (untraced, traced):
        np.testing.assert_array_equal(found.indices, plain.indices)
    is_same = np.isclose(untraced.score, traced.score, rtol=1e-4, atol=1e-5)
    assert is_same.tolist() == [True, True, True, False]
    np.testing.assert_allclose(traced.score, always.score, rtol=1e-4, atol=1e-5)


def test_special_cases_of_joint_selection_and_of_uniform():
    one_chunk, independent, without_noise, greedy, uniform, others = (
        indices_of(*models(64, seed=settings.pop("seed", 0)), batch_size=16, **settings)
        for settings in (
            {"chunks": 1},
            {"rule": "independent"},
            {"chunks": 16, "gain": 1e7},
            {"rule": "greedy", "key": jax.random.key(4)},
            {"rule": "uniform"},
            {"rule": "uniform", "seed": 1},
        )
    )
    np.testing.assert_array_equal(one_chunk, independent)
    assert assert_drawn(None, greedy, *models(64), sizes=[1] * 16)  # no two scores are nearly equal
    np.testing.assert_array_equal(without_noise, greedy)
    np.testing.assert_array_equal(uniform, others)


@given(b=st.integers(1, 40_000), chunks=st.integers(1, 64))
def test_chunk_sizes_sum_to_the_sub_batch_and_differ_by_one_at_most(b, chunks):
    chunks = min(b, chunks)
    sizes = chunk_sizes(b, chunks)
    assert (len(sizes), sum(sizes)) == (chunks, b)
    assert max(sizes) - min(sizes) <= 1


def test_scores_are_float32_for_embeddings_in_bfloat16():
    half = [jax.tree.map(lambda x: x.astype(jnp.bfloat16), z) for z in models(64)]
    found = select(KEY, *half, batch_size=16, chunks=4)
    assert found.own.dtype == jnp.float32
    assert_drawn(KEY, found.indices, *half, sizes=[4] * 4)


@pytest.mark.parametrize("rule, loss", [("joint", "sigmoid"), ("gibbs", "softmax"), ("greedy", "sigmoid")])
def test_extreme_numbers_draw_no_example_twice(rule, loss):
    """A compiled step cannot raise; the loop stops at the recorded score."""
    learner, reference = models(24)
    settings = {"batch_size": 20, "rule": rule, "loss": loss, "chunks": 3, "sweeps": 1, "trace": True}
    for temperature in (1e4, 1e10, 1e38):
        found = select(KEY, learner._replace(temperature=jnp.float32(temperature)), reference, **settings)
        assert_distinct(found.indices, 20)
        if temperature == 1e4:
            assert all(np.isfinite(x).all() for x in (found.own, found.score, found.effective))
    broken = learner._replace(image=learner.image.at[3].set(jnp.nan))
    assert_distinct(indices_of(broken, reference, **settings), 20)
    for gain in (1e-30, 1e38):
        assert_distinct(indices_of(learner, reference, gain=gain, **settings), 20)


def test_gibbs_sampling_draws_batches_in_proportion_to_their_summed_scores():
    """p(batch) ∝ exp(gain Σ_ij S_ij), by the sigmoid loss: χ² on 10 batches, 9 degrees of freedom."""
    matrix = sigmoid_matrix(*models(5))
    batches = list(itertools.combinations(range(5), 3))
    p = np.exp([0.2 * matrix[np.ix_(batch, batch)].sum() for batch in batches])
    draw = functools.partial(select, batch_size=3, rule="gibbs", sweeps=10, gain=0.2)
    selected = jax.vmap(lambda key: draw(key, *models(5)))(jax.random.split(KEY, 10_000))
    assert selected.score.shape == (10_000, 0)  # without a trace
    found = np.sort(selected.indices, axis=1)
    observed = np.array([(found == batch).all(axis=1).sum() for batch in batches])
    assert observed.sum() == 10_000
    expected = observed.sum() * p / p.sum()
    assert ((observed - expected) ** 2 / expected).sum() < 27.9  # the 99.9th percentile


LEARNER, REFERENCE = models(64)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"batch_size": 65}, "sub-batch of 65 from a super-batch of 64"),
        ({"batch_size": 0, "rule": "independent"}, "sub-batch of 0"),
        ({"batch_size": 4, "chunks": 5}, "sub-batch of 4 in 5 chunks"),
        ({"rule": "jont"}, "unknown selection rule 'jont'.*joint"),
        ({"loss": "hinge"}, "unknown loss 'hinge'.*softmax"),
        ({"criterion": "hardest"}, "unknown criterion 'hardest'.*hard_learner"),
        ({"criterion": abs}, "criterion .*abs.* must take the losses"),
        ({"gain": 0.0}, "gain 0.0"),
        ({"gain": 1e300}, r"gain 1e\+300"),
        ({"rule": "gibbs", "sweeps": 0}, "sweeps 0 must be positive"),
        ({"rule": lambda key, batch, **_: jnp.zeros(16)}, r"must return 16 integers.*float32 \[16\]"),
        ({"reference": None, "criterion": "easy_reference"}, "reference's embeddings .* missing"),
        ({"learner": None, "criterion": "hard_learner"}, "learner's embeddings .* missing"),
        ({"reference": models(32)[1]}, r"n equal in both models, not .*\(32, 16\)"),
        ({"learner": LEARNER._replace(text=REFERENCE.text)}, r"\(64, 32\), \(64, 16\)"),
    ],
)
def test_rejects_impossible_requests(changed, message):
    settings = {"learner": LEARNER, "reference": REFERENCE, "batch_size": 16} | changed
    with pytest.raises(ValueError, match=message):
        select(KEY, **settings)


def test_a_rule_of_concepts_uses_no_scores():
    concepts = jnp.array([[0, 1], [2, -1], [1, -1]])

    def fewest(key, concepts, *, batch_size):
        return jnp.argsort(jnp.sum(concepts >= 0, axis=1))[:batch_size]

    found = select(KEY, None, None, concepts=concepts, rule=fewest, batch_size=2)
    assert found.indices.tolist() == [1, 2]
    assert not found.own.size and not found.effective.size and not found.score.size
    with pytest.raises(ValueError, match="sub-batch of 4 from a super-batch of 3"):
        select(KEY, None, None, concepts=concepts, rule=fewest, batch_size=4)
