"""The three criteria of the paper (Sec. 3.1), as signed sums of the losses of learner and reference.

    hard-learner   s^hard  =  ℓ(· | θ)
    easy-reference s^easy  = −ℓ(· | θ*)
    learnability   s^learn =  ℓ(· | θ) − ℓ(· | θ*)

θ is the learner and θ* the reference.
"""

from __future__ import annotations

from typing import NamedTuple

from ..two_towers import Embeddings

_SIGNS = {
    "learnability": {"learner": 1.0, "reference": -1.0},
    "easy_reference": {"reference": -1.0},
    "hard_learner": {"learner": 1.0},
}


class Terms(NamedTuple):
    """What a criterion sums up: the loss of each model that it looks at, times a sign."""

    signs: tuple[float, ...]
    models: tuple[Embeddings, ...]


def terms(criterion: str, learner: Embeddings | None, reference: Embeddings | None) -> Terms:
    """The models that a criterion scores with.

    The paper's pseudo-code has no hard-learner path and names two config fields that it never sets
    (`cfg.scoring`, `cfg.learnability`); here the criterion is one argument.

    Args:
        criterion: "learnability", "easy_reference" or "hard_learner".
        learner: Embeddings by the learner; not looked at by "easy_reference".
        reference: The same pairs by the reference, at any width; not looked at by "hard_learner".

    Raises:
        ValueError: An unknown criterion, the embeddings that it needs are missing, they are of different
            numbers of pairs, or of different widths within a model.
    """
    if criterion not in _SIGNS:
        raise ValueError(f"unknown criterion {criterion!r}: known are {', '.join(_SIGNS)}")
    given = {"learner": learner, "reference": reference}
    signs, models = [], []
    for name, sign in _SIGNS[criterion].items():
        z = given[name]
        if z is None:
            raise ValueError(
                f"criterion {criterion!r} scores with the {name}'s embeddings, which are missing"
            )
        signs.append(sign)
        models.append(z)
    for z in models:
        if z.image.shape[1] != z.text.shape[1]:
            raise ValueError(f"images embedded at width {z.image.shape[1]}, texts at {z.text.shape[1]}")
    counts = {array.shape[0] for z in models for array in (z.image, z.text)}
    if len(counts) > 1:
        raise ValueError(f"embeddings of different numbers of examples: {sorted(counts)}")
    return Terms(tuple(signs), tuple(models))
