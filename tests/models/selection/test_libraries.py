"""NumPy, PyTorch, and JAX select the same with the same noise, up to near ties: what Algorithm 1 says."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support.algorithm1 import assert_drawn, noise_of
from tests.models.support.structured import pairs

from jestlab.models.selection import jax as in_jax
from jestlab.models.selection import numpy as in_numpy
from jestlab.models.selection.criteria import CRITERIA, RULES, rounds_of

CASES = 200
LOSSES = ("sigmoid", "softmax")


def random_case(seed: int) -> tuple[Any, Any, dict[str, Any], np.ndarray]:
    """Embeddings of both models, settings, and noise."""
    random = np.random.default_rng(seed)
    super_batch = int(random.integers(8, 260))
    batch_size = int(random.integers(1, super_batch + 1))
    learner = pairs(super_batch, int(random.integers(8, 64)), seed=2 * seed)
    reference = pairs(super_batch, int(random.integers(8, 64)), seed=2 * seed + 1, temperature=30.0)
    settings = {
        "batch_size": batch_size,
        "rule": str(random.choice(RULES)),
        "chunks": int(random.integers(1, min(batch_size, 20) + 1)),
        "criterion": str(random.choice(list(CRITERIA))),
        "loss": str(random.choice(LOSSES)),
        "gain": float(10 ** random.uniform(-1, 2)),
    }
    return learner, reference, settings, noise_for(settings, super_batch, random)


def noise_for(settings, super_batch, random):
    given = {name: settings[name] for name in ("rule", "batch_size", "chunks", "gain")}
    draws = len(rounds_of(super_batch=super_batch, **given).sizes)
    return random.gumbel(size=(draws, super_batch))


def assert_agrees(found, learner, reference, settings, noise) -> bool:
    """Assert that indices are NumPy's, or differ by a near tie; return whether they are NumPy's."""
    expected = in_numpy.select(noise, tuple(learner), tuple(reference), **settings)
    found = np.asarray(found)
    if np.array_equal(found, expected.indices):
        return True
    rounds = rounds_of(
        settings["rule"],
        batch_size=settings["batch_size"],
        super_batch=len(learner.image),
        chunks=settings["chunks"],
        gain=settings["gain"],
    )
    asserted = {name: settings[name] for name in ("criterion", "loss")}
    is_decided = assert_drawn(
        noise if rounds.has_noise else None,
        found,
        learner,
        reference,
        sizes=rounds.sizes,
        gain=rounds.gain,
        few_ties=False,
        **asserted,
    )
    assert not is_decided
    return False


@pytest.mark.oracle
def test_pytorch_selects_what_numpy_selects():
    import torch

    from jestlab.models.selection.torch import select

    near_ties = []
    for seed in range(CASES):
        learner, reference, settings, noise = random_case(seed)
        tensors = [tuple(torch.tensor(np.asarray(x)) for x in z) for z in (learner, reference)]
        found = select(torch.as_tensor(noise), *tensors, **settings).indices
        if not assert_agrees(found, learner, reference, settings, noise):
            near_ties.append({"seed": seed, **settings})
    print(f"near ties in {len(near_ties)} of {CASES}:", *near_ties, sep="\n")
    assert len(near_ties) <= CASES // 50


@pytest.mark.parametrize("loss, criterion", itertools.product(LOSSES, CRITERIA))
def test_jax_selects_what_numpy_selects(loss, criterion):
    """200 cases in all; one shape for each loss and criterion, because each is compiled."""
    settings: dict[str, Any] = {"batch_size": 40, "chunks": 7, "rule": "joint", "gain": 3.0}
    settings |= {"loss": loss, "criterion": criterion}
    near_ties = 0
    for seed in range(-(-CASES // 6)):
        learner, reference = pairs(150, 16, seed=2 * seed), pairs(150, 8, seed=2 * seed + 1, temperature=30.0)
        key = jax.random.key(seed)
        found = in_jax.select(key, learner, reference, **settings).indices
        near_ties += not assert_agrees(found, learner, reference, settings, noise_of(key, 7, 150))
    assert near_ties <= 1


@pytest.mark.parametrize("seed", range(20))
def test_numpy_selects_what_algorithm_1_selects(seed):
    learner, reference, settings, noise = random_case(1_000 + seed)
    found = in_numpy.select(noise, tuple(learner), tuple(reference), **settings).indices
    given = {name: settings[name] for name in ("rule", "batch_size", "chunks", "gain")}
    rounds = rounds_of(super_batch=len(learner.image), **given)
    assert_drawn(
        noise if rounds.has_noise else None,
        found,
        learner,
        reference,
        sizes=rounds.sizes,
        gain=rounds.gain,
        precision=1e-11,
        few_ties=False,
        criterion=settings["criterion"],
        loss=settings["loss"],
    )


def libraries() -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.oracle] if name == "torch" else [])
        for name in ("numpy", "torch", "jax")
    ]


def library(name: str) -> tuple[Any, Any, Any]:
    """`select`, a source of noise, and a function that makes arrays."""
    if name == "numpy":
        return in_numpy.select, np.random.default_rng(0), np.asarray
    if name == "jax":
        return in_jax.select, jax.random.key(0), lambda x: jnp.asarray(x, jnp.float32)
    import torch

    from jestlab.models.selection.torch import select

    return (
        select,
        torch.Generator().manual_seed(0),
        lambda x: torch.tensor(np.asarray(x), dtype=torch.float32),
    )


@pytest.mark.parametrize("name", libraries())
def test_examples_with_losses_of_their_own_are_selected_by_their_difference(name):
    """Sequences or tokens of a language model: `greedy` keeps the highest excess losses, as RHO-1 does."""
    select, random, array = library(name)
    learner, reference = np.random.default_rng(0).normal(size=(2, 100)) + 5
    found = select(random, array(learner), array(reference), batch_size=30, rule="greedy")
    expected = np.argsort(reference - learner, kind="stable")[:30]
    assert sorted(np.asarray(found.indices).tolist()) == sorted(expected.tolist())
    np.testing.assert_allclose(np.asarray(found.own), learner - reference, atol=1e-5)
    drawn = select(random, array(learner), array(reference), batch_size=30, rule="independent", gain=3.0)
    chosen = (learner - reference)[np.asarray(drawn.indices)].mean()
    assert (learner - reference).mean() + 0.3 < chosen < (learner - reference)[expected].mean()
    alone = select(random, None, array(reference), batch_size=30, rule="greedy", criterion="easy_reference")
    assert sorted(np.asarray(alone.indices).tolist()) == sorted(np.argsort(reference)[:30].tolist())
    with pytest.raises(ValueError, match=r"'joint' needs embeddings: .* select with rule 'independent'"):
        select(random, array(learner), array(reference), batch_size=30)
    with pytest.raises(ValueError, match=r"losses \[n\], n equal in both models"):
        select(random, array(learner), array(reference[:50]), batch_size=30, rule="greedy")


@pytest.mark.parametrize("name", libraries())
@pytest.mark.parametrize(
    "changed, message",
    [
        ({"batch_size": 65}, "sub-batch of 65 from a super-batch of 64"),
        ({"batch_size": 4, "chunks": 5}, "sub-batch of 4 in 5 chunks"),
        ({"rule": "jont"}, "unknown selection rule 'jont'.*joint"),
        ({"loss": "hinge"}, "unknown loss 'hinge'.*softmax"),
        ({"criterion": "hardest"}, "unknown criterion 'hardest'.*hard_learner"),
        ({"reference": None, "criterion": "easy_reference"}, "reference's embeddings .* missing"),
        ({"width": 9}, r"n equal in both models, not .*\(64, 9\)"),
    ],
)
def test_rejects_impossible_requests(name, changed, message):
    select, random, array = library(name)
    changed = dict(changed)
    image, text = (np.ones((64, width)) for width in (8, changed.pop("width", 8)))
    learner = (array(image), array(text), array(10.0), array(-10.0))
    settings = {"learner": learner, "reference": learner, "batch_size": 16} | changed
    with pytest.raises(ValueError, match=message):
        select(random, **settings)
