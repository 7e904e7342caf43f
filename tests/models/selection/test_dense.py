"""The readable Algorithm 1 against NumPy in float64, and the paper's sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support.dense import (
    conditional_scores,
    jointly_sample_batch,
    softmax_scores,
)
from tests.models.support.structured import pairs, sigmoid_matrix

from jestlab.models.config import TrainConfig
from jestlab.models.selection.scores import score_matrix
from jestlab.models.selection.select import chunk_sizes

LEARNER, REFERENCE = pairs(40, 16, seed=1), pairs(40, 8, seed=2, temperature=20.0)
CRITERIA = {
    "learnability": (LEARNER, REFERENCE),
    "easy_reference": (None, REFERENCE),
    "hard_learner": (LEARNER, None),
}
CHOSEN = np.array([3, 17, 4, 30])
IS_CHOSEN = jnp.asarray(np.isin(np.arange(40), CHOSEN))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_scores_are_differences_of_losses(criterion):
    expected = sigmoid_matrix(*CRITERIA[criterion])
    np.testing.assert_allclose(score_matrix(criterion, LEARNER, REFERENCE), expected, rtol=1e-4, atol=1e-5)


def test_a_conditional_score_counts_both_directions():
    matrix = sigmoid_matrix(LEARNER, REFERENCE)
    expected = np.diag(matrix) + matrix[CHOSEN].sum(axis=0) + matrix[:, CHOSEN].sum(axis=1)
    found = conditional_scores(score_matrix("learnability", LEARNER, REFERENCE), IS_CHOSEN)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def softmax_loss_within(z, candidate, chosen):
    """Eq. 1 of the paper for one candidate, within the chosen and itself."""
    image, text, t, _ = (np.asarray(x, np.float64) for x in z)
    members = sorted({*chosen, candidate})
    s = t * image @ text.T
    to_texts = np.log(np.exp(s[candidate, members]).sum())
    to_images = np.log(np.exp(s[members, candidate]).sum())
    return 0.5 * (to_texts + to_images) - s[candidate, candidate]


def test_softmax_scores_are_differences_of_equation_1():
    expected = [
        softmax_loss_within(LEARNER, i, CHOSEN) - softmax_loss_within(REFERENCE, i, CHOSEN) for i in range(40)
    ]
    found = softmax_scores("learnability", LEARNER, REFERENCE, IS_CHOSEN)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_with_nothing_chosen_softmax_scores_are_by_the_pairs_own_similarity():
    image, text, t, _ = (np.asarray(x, np.float64) for x in LEARNER)
    found = softmax_scores("hard_learner", LEARNER, None, jnp.zeros(40, bool))
    np.testing.assert_allclose(found, -t * (image * text).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("b, chunks", [(16, 4), (18, 4), (7, 7)])
def test_without_noise_each_chunk_is_the_top_of_the_conditional_scores(b, chunks):
    matrix = sigmoid_matrix(LEARNER, REFERENCE)
    chosen: list[int] = []
    for size in chunk_sizes(b, chunks):
        conditional = np.diag(matrix) + matrix[chosen].sum(axis=0) + matrix[:, chosen].sum(axis=1)
        conditional[chosen] = -np.inf
        chosen += sorted(np.argsort(-conditional)[:size].tolist())
    drawn, _ = jointly_sample_batch(
        jax.random.key(0), LEARNER, REFERENCE, batch_size=b, chunks=chunks, gain=1e6
    )
    assert np.asarray(drawn).tolist() == chosen


def test_the_papers_sub_batch_is_exact():
    """The print's int(B (1 − f) / N) makes chunks of 2,047."""
    tree = {
        "schedule": {"super_batch_size": 163_840},
        "selection": {"rule": "joint", "filtering_ratio": 0.8, "reference": "r"},
    }
    config = TrainConfig.model_validate(tree)
    assert config.batch_size == 32_768
    assert chunk_sizes(config.batch_size, config.selection.chunks) == [2_048] * 16
