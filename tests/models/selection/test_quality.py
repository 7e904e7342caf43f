"""How learnable the batches are that each rule finds, on a problem with structure."""

from typing import Any

import jax
import numpy as np
import pytest
from tests.models.support.structured import batch_score, climbed, problem, sigmoid_matrix

from jestlab.models.selection import select

SUB_BATCH = 256
RULES: dict[str, dict[str, Any]] = {
    "independent": {"rule": "independent"},
    "joint": {"rule": "joint", "chunks": 16},
    "gibbs": {"rule": "gibbs", "sweeps": 1},
    "greedy": {"rule": "greedy"},
}


@pytest.fixture(scope="module", params=[0, 1, 2])
def quality(request):
    """By rule: 0 for a random batch, 1 for the best that was found by climbing from any of them."""
    learner, reference = problem(request.param)
    matrix = sigmoid_matrix(learner, reference)
    rng = np.random.default_rng(request.param)
    random = [rng.choice(len(matrix), SUB_BATCH, replace=False) for _ in range(20)]
    key = jax.random.key(request.param)
    chosen = {
        name: np.asarray(select(key, learner, reference, batch_size=SUB_BATCH, **rule).indices)
        for name, rule in RULES.items()
    }
    zero = np.mean([batch_score(matrix, batch) for batch in random])
    starts = [*random[:4], *chosen.values()]
    one = max(batch_score(matrix, climbed(matrix, start)) for start in starts)
    return {name: (batch_score(matrix, batch) - zero) / (one - zero) for name, batch in chosen.items()}


def test_joint_selection_finds_what_brute_force_needs_more_draws_for(quality):
    assert quality["joint"] >= 0.9
    assert quality["joint"] > quality["gibbs"] > 0.5  # as many draws as the sub-batch has examples


def test_independent_selection_does_not_find_it(quality):
    assert quality["independent"] <= 0.1


def test_greedy_selection_comes_near_the_best(quality):
    assert quality["greedy"] >= 0.95
