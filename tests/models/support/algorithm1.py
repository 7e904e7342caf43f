"""Algorithm 1 in float64 NumPy, which decides whether a draw of examples is right.

Two computations that round differently may draw different examples where two scores are nearly equal, and
continue differently. So each draw is judged given the draws before it: the drawn examples must have the
highest perturbed scores, up to the rounding of a score in float32.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jestlab.models.selection import Embeddings
from jestlab.models.selection.sampling import gumbel

Floats = npt.NDArray[np.float64]

PRECISION = 2e-6
"""Error of a float32 score, relative to the largest of the losses that it is a difference of."""

SIGNS = {"learnability": (1, -1), "easy_reference": (0, -1), "hard_learner": (1, 0)}
"""Criterion → signs of the learner's and the reference's loss."""


def conditional_losses(loss: str, z: Embeddings, chunks: Sequence[npt.NDArray[Any]]) -> Iterator[Floats]:
    """Yield one model's losses of all candidates before each chunk, float64 [B], given the chunks before it.

    The losses of examples that are already drawn have no meaning.
    """
    image, text, t, b = (np.asarray(x, np.float64) for x in z)
    s = t * image @ text.T
    for count in range(len(chunks)):
        given = np.concatenate([np.zeros(0, int), *chunks[:count]])
        both = s[:, given], s[given].T
        if loss == "sigmoid":
            yield np.logaddexp(0, -s.diagonal() - b) + sum(np.logaddexp(0, x + b).sum(axis=1) for x in both)
        elif count == 0:
            yield -s.diagonal()
        else:
            sums = [np.logaddexp(np.logaddexp.reduce(x, axis=1), s.diagonal()) for x in both]
            yield sum(sums) / 2 - s.diagonal()


def conditional_scores(
    learner: Embeddings,
    reference: Embeddings,
    chunks: Sequence[npt.NDArray[Any]],
    *,
    criterion: str = "learnability",
    loss: str = "sigmoid",
) -> Iterator[tuple[Floats, float]]:
    """Yield the candidates' scores before each chunk, float64 [B], and the largest loss in one of them."""
    scoring = [(sign, z) for sign, z in zip(SIGNS[criterion], (learner, reference), strict=True) if sign]
    for losses in zip(*(conditional_losses(loss, z, chunks) for _, z in scoring), strict=True):
        values = sum(sign * x for (sign, _), x in zip(scoring, losses, strict=True))
        yield values, float(np.abs(losses).max())


def noise_of(key: jax.Array, draws: int, count: int) -> Floats:
    """The noise that JAX's `select` draws with a key, float64 [draws, B]."""
    return np.array([np.asarray(gumbel(one, count), np.float64) for one in jax.random.split(key, draws)])


def assert_drawn(
    random: jax.Array | Floats | None,
    indices: npt.ArrayLike,
    learner: Embeddings,
    reference: Embeddings,
    *,
    sizes: Sequence[int],
    gain: float = 100.0,
    precision: float = PRECISION,
    few_ties: bool = True,
    **settings: str,
) -> bool:
    """Assert that indices are what Algorithm 1 draws with this key or noise, up to rounding.

    The arguments are those of `select`; `random` is None for no noise. `indices` is int [b], chunk after
    chunk, each ascending; `sizes` are the sizes of the chunks; `precision` is the relative error of a score;
    `few_ties` demands inputs with few near ties.

    Returns:
        Whether rounding could not have changed any draw, so that another computation has to agree exactly.
    """
    drawn = np.asarray(indices)
    assert len(set(drawn.tolist())) == sum(sizes) == len(drawn)
    chunks = np.split(drawn, np.cumsum(sizes)[:-1])
    noise: Any = np.zeros((len(sizes), len(learner.image))) if random is None else random
    if isinstance(noise, jax.Array):
        noise = noise_of(noise, len(sizes), len(learner.image))
    scores = conditional_scores(learner, reference, chunks, **settings)
    is_open, is_decided = np.ones(len(learner.image), bool), True
    for chunk, of_draw, (values, magnitude) in zip(chunks, noise, scores, strict=True):
        assert (np.diff(chunk) > 0).all()
        perturbed = gain * values + of_draw
        tolerance = 2 * gain * precision * magnitude + 5 * precision
        lowest = perturbed[chunk].min()
        near = np.abs(perturbed[is_open] - lowest) < tolerance
        is_open[chunk] = False
        if is_open.any():
            margin = lowest - perturbed[is_open].max()
            assert margin > -tolerance
            is_decided &= bool(margin > tolerance)
            # Or else this would accept nearly anything.
            assert not few_ties or near.sum() <= 1 + len(near) // 25
    return is_decided
