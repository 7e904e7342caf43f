"""Algorithm 1 in float64 NumPy, which decides whether a draw of examples is right.

Two computations that round differently may draw different examples where two scores are nearly equal, and
continue differently. So each draw is judged given the draws before it: the drawn examples must have the
highest perturbed scores, up to the rounding of a score in float32.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from jestlab.models.selection import Embeddings
from jestlab.models.selection.sampling import gumbel

Floats = npt.NDArray[np.float64]

PRECISION = 2e-6
"""Error of a float32 score, relative to the largest of the losses that it is a difference of."""


SIGNS = {
    "learnability": {"learner": 1.0, "reference": -1.0},
    "easy_reference": {"reference": -1.0},
    "hard_learner": {"learner": 1.0},
}
"""Criterion → sign of each model's loss."""


class Scores(NamedTuple):
    """Scores of all candidates before a chunk is drawn, float64 [B], and the largest loss in one of them."""

    values: Floats
    magnitude: float


def conditional_scores(
    learner: Embeddings | None,
    reference: Embeddings | None,
    chunks: Iterable[npt.NDArray[np.integer[Any]]],
    *,
    criterion: str = "learnability",
    loss: str = "sigmoid",
) -> Iterator[Scores]:
    """Yield the scores of candidates before each chunk, given the chunks before it.

    The scores of examples that are already drawn have no meaning.

    Arguments are those of `select`, and the indices of the drawn examples, chunk by chunk.
    """
    models = {"learner": learner, "reference": reference}
    signs = list(SIGNS[criterion].values())
    arrays = [[np.asarray(x, np.float64) for x in models[name] or ()] for name in SIGNS[criterion]]
    own = [t * (image * text).sum(axis=1) for image, text, t, _ in arrays]
    if loss == "sigmoid":
        losses = [np.logaddexp(0, -(s + b)) for s, (*_, b) in zip(own, arrays, strict=True)]
    else:
        losses = [-s for s in own]
        over = [[np.full(len(s), -np.inf)] * 2 for s in own]
    for chunk in chunks:
        magnitude = max(float(np.abs(x).max()) for x in losses)
        yield Scores(sum(sign * x for sign, x in zip(signs, losses, strict=True)), magnitude)
        for m, (image, text, t, b) in enumerate(arrays):
            both = [t * image @ text[chunk].T, t * text @ image[chunk].T]
            if loss == "sigmoid":
                losses[m] = losses[m] + sum(np.logaddexp(0, s + b).sum(axis=1) for s in both)
            else:
                sums = [np.logaddexp.reduce(s, axis=1) for s in both]
                over[m] = [np.logaddexp(x, more) for x, more in zip(over[m], sums, strict=True)]
                losses[m] = 0.5 * sum(np.logaddexp(x, own[m]) for x in over[m]) - own[m]


def assert_drawn(
    key: jax.Array | None,
    indices: npt.ArrayLike,
    learner: Embeddings | None,
    reference: Embeddings | None,
    *,
    sizes: Sequence[int],
    gain: float = 100.0,
    criterion: str = "learnability",
    loss: str = "sigmoid",
) -> bool:
    """Assert that indices are what Algorithm 1 draws with this key, up to rounding.

    Arguments are those of `select`, and:

    Args:
        key: PRNG key; None: without noise.
        indices: int [b], chunk after chunk, each ascending.
        sizes: Sizes of the chunks.

    Returns:
        Whether rounding could not have changed any draw, so that another computation has to agree exactly.
    """
    drawn = np.asarray(indices)
    assert len(set(drawn.tolist())) == sum(sizes) == len(drawn)
    chunks = np.split(drawn, np.cumsum(sizes)[:-1])
    keys = [None] * len(sizes) if key is None else list(jax.random.split(key, len(sizes)))
    scores = conditional_scores(learner, reference, chunks, criterion=criterion, loss=loss)
    is_open, is_decided = None, True
    for chunk, round_key, (values, magnitude) in zip(chunks, keys, scores, strict=True):
        is_open = np.ones(len(values), bool) if is_open is None else is_open
        assert (np.diff(chunk) > 0).all()
        perturbed = gain * values
        if round_key is not None:
            perturbed = perturbed + np.asarray(gumbel(round_key, len(values)), np.float64)
        tolerance = 2 * gain * PRECISION * magnitude + 1e-5
        rest = is_open.copy()
        rest[chunk] = False
        if rest.any():
            margin = perturbed[chunk].min() - perturbed[rest].max()
            assert margin > -tolerance
            is_decided &= bool(margin > tolerance)
            # Or else this would accept nearly anything.
            near = np.abs(perturbed[is_open] - perturbed[chunk].min()) < tolerance
            assert near.sum() <= 1 + len(near) // 25
        is_open[chunk] = False
    return is_decided
